"""``VendorPackage``: reads a vendor of another package, and checks each value by its type in the protocol.

A function of the vendor becomes a function that checks each result. A call raises an exception if the
vendor's code raises one, calls sys.exit(), does not end before a deadline, or returns an invalid or too large
value. A new field of a class in the protocol is checked by its annotation, and needs no change here.
"""

from __future__ import annotations

import threading
from functools import cache, partial

from cdigen.model.inventory_json import FILE, FINDING, INVENTORY, LINK, NODE, cuda_version
from cdigen.model.strict import PLAIN, InvalidValue, many, mapping, one_of, reader_of, text, whole
from cdigen.value import fields
from cdigen.vendors.base import Vendor
from cdigen.vendors.labels import is_label

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.model.strict import Reader

# Seconds for a call, and for the import of the package. The daemon's cycle waits for most calls. A failed
# import is not repeated, so a busy host gets more time.
DEADLINE_S, LOAD_DEADLINE_S = 20.0, 60.0
# The length of a result as text. The inventory in examples/hosts/debian13-8xh100.json has 32 KB.
MAX_RESULT = 4 << 20
_MEMBERS = {name: type_ for name, type_ in Vendor.__annotations__.items() if name != "problem"}


class VendorPackage:
    """The package of one vendor. Each call of its code has a separate thread, because the code may hang."""

    def __init__(self) -> None:
        # The thread of a call that did not end before its deadline.
        self._hanging: threading.Thread | None = None
        self._reader: Callable[[str], Reader] = cache(lambda spelled: reader_of(spelled, self._other))

    def vendor(self, load: Callable[[], object]) -> Vendor:
        """Return the vendor that LOAD returns; raise an exception if a member is absent or invalid."""
        vendor: Vendor = self._call(lambda: self._vendor(load()), LOAD_DEADLINE_S)
        return vendor

    def _vendor(self, loaded: object) -> Vendor:
        present = {name: type_ for name, type_ in _MEMBERS.items() if getattr(loaded, name, None) is not None}
        return Vendor(**self._values(loaded, present))

    def _values(self, owner: object, types: Mapping[str, str], path: str = "") -> dict[str, Any]:
        """Return the attributes TYPES of OWNER by name."""
        return {
            name: self._reader(type_)(getattr(owner, name), f"{path}{name}") for name, type_ in types.items()
        }

    def _other(self, annotation: str) -> Reader:
        """Return the reader for functions and pairs, and for the classes and aliases of the protocol."""
        if annotation.startswith("tuple["):
            first, _, second = annotation[len("tuple[") : -1].rpartition(", ")
            return partial(_pair, self._reader(first), self._reader(second))
        if annotation.startswith("Callable["):
            return partial(self._function, self._reader(annotation.partition("], ")[2][:-1]))
        return _NAMED.get(annotation) or partial(self._instance, annotation)

    def _function(self, reader: Reader, value: object, path: str) -> Callable[..., Any]:
        if not callable(value):
            raise InvalidValue(path, "a function")

        def checked(*arguments: object) -> Any:
            result = value(*arguments)
            if len(repr(result)) > MAX_RESULT:
                raise InvalidValue(f"{path}()", f"at most {MAX_RESULT >> 20} MiB long")
            return reader(result, f"{path}()")

        return lambda *arguments: self._call(partial(checked, *arguments), DEADLINE_S)

    def _instance(self, names: str, value: object, path: str) -> Any:
        """Return VALUE, an instance of one of the classes NAMES (``Symptom | Recovery``), with its fields."""
        cls = type(value)
        if cls.__name__ not in names.split(" | ") or not fields(value):
            raise InvalidValue(path, f"of the type {names}")
        reader = _INSTANCES.get(cls.__name__)
        return reader(value, path) if reader else cls(**self._values(value, cls.__annotations__, f"{path}."))

    def _call(self, function: Callable[[], Any], deadline_s: float) -> Any:
        outcome: dict[str, Any] = {}

        def run() -> None:
            try:
                outcome["result"] = function()
            except SystemExit as error:
                outcome["error"] = RuntimeError(f"the vendor called sys.exit({error.code!r})")
            except Exception as error:  # noqa: BLE001 - the calling thread raises it
                outcome["error"] = error

        if self._hanging is not None and self._hanging.is_alive():
            raise TimeoutError("an earlier call still runs")
        thread = threading.Thread(target=run, name="vendor-package", daemon=True)
        thread.start()
        thread.join(deadline_s)
        if not outcome:
            self._hanging = thread
            raise TimeoutError(f"no result within {deadline_s:.0f} s")
        if "error" in outcome:
            raise outcome["error"]
        return outcome["result"]


def _pair(first: Reader, second: Reader, value: object, path: str) -> tuple[Any, Any]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise InvalidValue(path, "a pair")
    return first(value[0], f"{path}[0]"), second(value[1], f"{path}[1]")


def _label(value: object, path: str) -> tuple[str, str]:
    label = _pair(text, text, value, path)
    if not is_label(label):
        raise InvalidValue(path, "a label of Kubernetes")
    return label


# The readers of classes for which a field's type permits invalid values.
_INSTANCES: dict[str, Reader] = {
    "DriverFile": FILE,
    "Finding": FINDING,
    "HostNode": NODE,
    "Inventory": INVENTORY,
    "Link": LINK,
}
_NAMED: dict[str, Reader] = {
    **PLAIN,
    "int": whole(-(1 << 53), 1 << 53),
    "bool | str": lambda value, path: value if isinstance(value, bool) else text(value, path),
    "Mapping[str, str]": mapping(text),
    "list[Label]": many(_label),
    "Clearance": one_of("gone", "reset", "reload", "recovered", "clear_after"),
    "Source": one_of("files", "probe", "log"),
    "Literal['higher', 'lower']": one_of("higher", "lower"),
    "CudaVersion": cuda_version,
}
