"""Load the vendor of another package (``load``), and hold it to the protocol.

Whatever it does wrong is an exception of that call, which the pipeline reports as this vendor's own failure;
one that cannot be loaded at all is an ``UnusableVendor``.
"""

from __future__ import annotations

import json
import posixpath
import re

from cdigen.model.cdi import Draft
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding
from cdigen.model.inventory import HostNode, Inventory
from cdigen.model.inventory_json import from_document, to_document
from cdigen.model.names import is_vendor_or_class
from cdigen.model.profile import is_naming
from cdigen.value import replace
from cdigen.vendors.base import Option, VisibleDevices, Watches
from cdigen.vendors.kernel.pci_place import placed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint
    from typing import Any, NoReturn

    from cdigen.vendors.base import DiscoveryContext

HINT = "fix or remove the package that adds it"
# What base.Vendor asks for: values that are tuples of a type; what methods return, one of a type or a tuple.
_VALUES: dict[str, type] = {"NAMINGS": str, "OPTIONS": Option, "MODULES": str, "PCI_VENDORS": int}
_ONE: dict[str, type] = {"discover": Inventory, "watches": Watches}
_MANY: dict[str, type] = {
    "edits": Draft,
    "missing_nodes": HostNode,
    "wrong_nodes": HostNode,
    "diagnostics": Finding,
}
NEEDED = ("NAME", "CDI_VENDOR", *_VALUES, *_ONE, *_MANY)
# The one name that may be left out.
_VISIBLE = "VISIBLE_DEVICES"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{3,}\*?", re.ASCII)


def load(name: str, entry: EntryPoint, taken: tuple[str, ...], variables: tuple[str, ...]) -> Any:
    """Return the vendor NAME that ENTRY leads to; TAKEN are the CDI vendors and VARIABLES of others."""
    try:
        loaded = _obey(entry.load)
        problem = _problem(loaded, name, taken) or _problem_of_variables(loaded, variables)
        vendor = None if problem else PluginVendor(loaded)
    except Exception as error:  # noqa: BLE001 - the code is another's
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return UnusableVendor(name, f"the vendor {name} cannot be loaded from {entry.value}: {said}")
    return vendor or UnusableVendor(name, f"the vendor {name} ({entry.value}) {problem}")


def _problem(vendor: Any, name: str, taken: tuple[str, ...]) -> str:
    """Return what keeps VENDOR from being one, or nothing."""
    if lacking := [each for each in NEEDED if not hasattr(vendor, each)]:
        return f"lacks {', '.join(lacking)}"
    if name != vendor.NAME:
        return f"calls itself {vendor.NAME!r}"
    if not isinstance(vendor.CDI_VENDOR, str) or not is_vendor_or_class(vendor.CDI_VENDOR):
        return f"has a CDI_VENDOR that no kind can begin with: {vendor.CDI_VENDOR!r}"
    if vendor.CDI_VENDOR in taken:
        return f"would have the kinds of another vendor: its CDI_VENDOR is {vendor.CDI_VENDOR!r}"
    for attribute, kind in _VALUES.items():
        given = getattr(vendor, attribute)
        if not isinstance(given, tuple) or not all(isinstance(each, kind) for each in given):
            return f"has {attribute} that is not a tuple of {kind.__name__}"
    if odd := [naming for naming in vendor.NAMINGS if not is_naming(naming)]:
        return f"has the naming {odd[0]!r}, which is not a word of small letters, digits, - and _"
    return next((f"has no {each}" for each in ("NAMINGS", "MODULES") if not getattr(vendor, each)), "")


def _problem_of_variables(vendor: Any, taken: tuple[str, ...]) -> str:
    """Return what is wrong with how containers ask VENDOR for devices by variables, or nothing."""
    rows = getattr(vendor, _VISIBLE, ())
    if not isinstance(rows, tuple) or not all(isinstance(row, VisibleDevices) for row in rows):
        return f"has {_VISIBLE} that is not a tuple of VisibleDevices"
    for row in rows:
        if not row.kinds or not all(kind.startswith(f"{vendor.CDI_VENDOR}/") for kind in row.kinds):
            return f"has {_VISIBLE} of kinds that are not of {vendor.CDI_VENDOR}: {', '.join(row.kinds)}"
        for variable in row.variables:
            if not _VARIABLE.fullmatch(variable):
                return f"has {_VISIBLE} with {variable!r}, which is not the name of a variable"
            if other := next((other for other in taken if _overlap(variable, other)), ""):
                return f"would have the variable of another vendor: {variable} is {other}"
        for pattern in (row.given_as, row.nodes, row.words):
            re.compile(pattern)
    return ""


def _overlap(one: str, other: str) -> bool:
    """Return whether one variable may be meant by both names."""
    pairs = ((one, other), (other, one))
    return one == other or any(name.endswith("*") and rest.startswith(name[:-1]) for name, rest in pairs)


class PluginVendor:
    """The vendor of another package (``vendors.base.Vendor``); a wrong answer is an exception."""

    def __init__(self, vendor: Any) -> None:
        for name in ("NAME", "CDI_VENDOR", *_VALUES):
            setattr(self, name, getattr(vendor, name))
        self.VISIBLE_DEVICES = tuple(
            replace(row, names=_named_by(row.names)) for row in getattr(vendor, _VISIBLE, ())
        )
        for name, kind in (*_ONE.items(), *_MANY.items()):
            setattr(self, name, _checked(vendor, name, kind))


class UnusableVendor:
    """A vendor that has nothing but its error (``vendors.base.Vendor``)."""

    NAMINGS = OPTIONS = MODULES = PCI_VENDORS = VISIBLE_DEVICES = ()

    def __init__(self, name: str, problem: str) -> None:
        self.NAME = name
        # No kind of anybody's begins so (RFC 2606): what its specs were is not known.
        self.CDI_VENDOR = f"{name}.invalid"
        self._problem = problem

    def discover(self, _: DiscoveryContext) -> NoReturn:
        """Raise HostError: the package is broken."""
        raise HostError(self._problem, hint=HINT, kind="vendor-defect")

    def edits(self, *_: object) -> NoReturn:
        """Raise TypeError: there is no inventory of it."""
        raise TypeError(self._problem)

    def watches(self, _: DiscoveryContext) -> Watches:
        """Return nothing to watch: another package is another start."""
        return Watches(files=(), polled=(), subsystems=())

    def diagnostics(self, *_: object) -> tuple[()]:
        """Return nothing: ``discover`` says it all."""
        return ()

    missing_nodes = wrong_nodes = diagnostics


def _checked(vendor: Any, name: str, kind: type) -> Callable[..., Any]:
    """Return the method NAME of VENDOR, held to return KIND, or a tuple of KIND."""
    method, is_many = getattr(vendor, name), name in _MANY

    def call(*arguments: Any) -> Any:
        answer = _obey(method, *arguments)
        if is_many and not isinstance(answer, tuple):
            raise TypeError(f"{name} gave {type(answer).__name__}, not a tuple")
        for each in answer if is_many else (answer,):
            if not isinstance(each, kind):
                raise TypeError(f"{name} gave {type(each).__name__}, not {kind.__name__}")
        if name == "discover":
            # As strictly as one from a file: whatever it holds, the rest of cdigen can work with it.
            found = from_document(json.loads(json.dumps(to_document({vendor.NAME: answer}))))[vendor.NAME]
            return replace(found, accelerators=placed(arguments[0].host, found.accelerators))
        _require_own(vendor, answer if name == "edits" else ())
        if name == "watches" and not _are_texts((*answer.files, *answer.polled, *answer.subsystems)):
            raise TypeError("watches gave what is not a text")
        return answer

    return call


def _named_by(method: Callable[[str], Any]) -> Callable[[str], tuple[str, ...]]:
    """Return METHOD held to return names; where it does not, a device is called as the variable does."""

    def call(word: str) -> tuple[str, ...]:
        try:
            answer = _obey(method, word)
        except Exception:  # noqa: BLE001 - the code is another's
            return (word,)
        return answer if answer and isinstance(answer, tuple) and _are_texts(answer) else (word,)

    return call


def _obey(method: Callable[..., Any], *arguments: Any) -> Any:
    """Return what METHOD gives; a vendor's sys.exit() ends no program of ours."""
    try:
        return method(*arguments)
    except SystemExit as error:
        raise RuntimeError(f"it called sys.exit({error.code!r})") from None


def _require_own(vendor: Any, drafts: tuple[Draft, ...]) -> None:
    """Raise TypeError for drafts of another vendor's kind, or that would cover folders of images."""
    for draft in drafts:
        if not draft.kind.startswith(f"{vendor.CDI_VENDOR}/"):
            raise TypeError(f"edits: the kind {draft.kind} is not one of {vendor.CDI_VENDOR}")
        if draft.payload and not _may_hold_libraries(draft.payload.prefix):
            raise TypeError(f"edits: the prefix {draft.payload.prefix!r} is not a folder of the vendor's own")


def _may_hold_libraries(prefix: str) -> bool:
    """Return whether PREFIX is empty, or a folder deep enough that a mount there hides nothing of images."""
    levels = 2 if prefix.startswith("/opt/") else 3
    is_clean = prefix.startswith("/") and posixpath.normpath(prefix) == prefix
    return not prefix or (is_clean and prefix.count("/") >= levels)


def _are_texts(values: tuple[object, ...]) -> bool:
    return all(isinstance(value, str) for value in values)
