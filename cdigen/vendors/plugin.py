"""Load the vendor of another package (``load``), and enforce the vendor protocol.

If a function of the vendor violates the protocol, the call raises an exception. The pipeline reports the
exception as a failure of this vendor. If cdigen cannot load the vendor, ``load`` returns an
``UnusableVendor``.
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
from cdigen.vendors.base import VendorOption, VisibleDevices, Watches
from cdigen.vendors.kernel.pci_place import placed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint
    from typing import Any, NoReturn

    from cdigen.vendors.base import DiscoveryContext

HINT = "fix or remove the package that adds the vendor"
# The names in base.Vendor of tuples (_VALUES), of methods that return one object (_ONE), and of methods that
# return a tuple (_MANY). Each name is mapped to the type of the object or of the tuple's elements.
_VALUES: dict[str, type] = {"NAMINGS": str, "OPTIONS": VendorOption, "MODULES": str, "PCI_VENDORS": int}
_ONE: dict[str, type] = {"discover": Inventory, "watches": Watches}
_MANY: dict[str, type] = {
    "edits": Draft,
    "missing_nodes": HostNode,
    "wrong_nodes": HostNode,
    "diagnostics": Finding,
}
NEEDED = ("NAME", "CDI_VENDOR", *_VALUES, *_ONE, *_MANY)
# The only optional name of a vendor.
_VISIBLE = "VISIBLE_DEVICES"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{3,}\*?", re.ASCII)


def load(name: str, entry: EntryPoint, used: tuple[str, ...], variables: tuple[str, ...]) -> Any:
    """Return the vendor NAME of the entry point ENTRY.

    USED are the CDI vendors of other vendors. VARIABLES are the environment variables of other vendors. If
    the vendor cannot be loaded or violates the protocol, the result is an ``UnusableVendor``.
    """
    try:
        loaded = _call_vendor(entry.load)
        problem = _problem(loaded, name, used) or _problem_of_variables(loaded, variables)
        vendor = None if problem else PluginVendor(loaded)
    except Exception as error:  # noqa: BLE001 - code of another package
        text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return UnusableVendor(name, f"the vendor {name} cannot be loaded from {entry.value}: {text}")
    return vendor or UnusableVendor(name, f"the vendor {name} ({entry.value}) {problem}")


def _problem(vendor: Any, name: str, used: tuple[str, ...]) -> str:
    """Return the violation of the protocol by VENDOR, or an empty string."""
    if lacking := [each for each in NEEDED if not hasattr(vendor, each)]:
        return f"lacks {', '.join(lacking)}"
    if name != vendor.NAME:
        return f"has another NAME: {vendor.NAME!r}"
    if not isinstance(vendor.CDI_VENDOR, str) or not is_vendor_or_class(vendor.CDI_VENDOR):
        return f"has a CDI_VENDOR that is not valid in a CDI kind: {vendor.CDI_VENDOR!r}"
    if vendor.CDI_VENDOR in used:
        return f"has the CDI_VENDOR of another vendor: {vendor.CDI_VENDOR!r}"
    for attribute, kind in _VALUES.items():
        values = getattr(vendor, attribute)
        if not isinstance(values, tuple) or not all(isinstance(each, kind) for each in values):
            return f"has {attribute} that is not a tuple of {kind.__name__}"
    if odd := [naming for naming in vendor.NAMINGS if not is_naming(naming)]:
        return f"has the invalid naming {odd[0]!r} (permitted: small letters, digits, - and _)"
    return next((f"has no {each}" for each in ("NAMINGS", "MODULES") if not getattr(vendor, each)), "")


def _problem_of_variables(vendor: Any, used: tuple[str, ...]) -> str:
    """Return the problem in the VISIBLE_DEVICES of VENDOR, or an empty string."""
    rows = getattr(vendor, _VISIBLE, ())
    if not isinstance(rows, tuple) or not all(isinstance(row, VisibleDevices) for row in rows):
        return f"has {_VISIBLE} that is not a tuple of VisibleDevices"
    for row in rows:
        if not row.kinds or not all(kind.startswith(f"{vendor.CDI_VENDOR}/") for kind in row.kinds):
            return f"has {_VISIBLE} with kinds not of {vendor.CDI_VENDOR}: {', '.join(row.kinds)}"
        for variable in row.variables:
            if not _VARIABLE.fullmatch(variable):
                return f"has {_VISIBLE} with an invalid name of a variable: {variable!r}"
            if other := next((other for other in used if _overlap(variable, other)), ""):
                return f"has a variable of another vendor: {variable} matches {other}"
        for pattern in (row.allocated_kinds, row.nodes, row.words):
            re.compile(pattern)
    return ""


def _overlap(one: str, other: str) -> bool:
    """Return whether the patterns ONE and OTHER can match the same variable."""
    pairs = ((one, other), (other, one))
    return one == other or any(name.endswith("*") and rest.startswith(name[:-1]) for name, rest in pairs)


class PluginVendor:
    """The vendor of another package, as a ``base.Vendor``.

    If the vendor's function returns a value of a wrong type, the call raises TypeError.
    """

    def __init__(self, vendor: Any) -> None:
        for name in ("NAME", "CDI_VENDOR", *_VALUES):
            setattr(self, name, getattr(vendor, name))
        self.VISIBLE_DEVICES = tuple(
            replace(row, names=_named_by(row.names)) for row in getattr(vendor, _VISIBLE, ())
        )
        for name, kind in (*_ONE.items(), *_MANY.items()):
            setattr(self, name, _checked(vendor, name, kind))


class UnusableVendor:
    """A vendor that cannot be loaded, as a ``base.Vendor``. Its ``discover`` raises the error."""

    NAMINGS = OPTIONS = MODULES = PCI_VENDORS = VISIBLE_DEVICES = ()

    def __init__(self, name: str, problem: str) -> None:
        self.NAME = name
        # cdigen cannot read the vendor's own CDI vendor. No real CDI vendor ends in ".invalid" (RFC 2606).
        self.CDI_VENDOR = f"{name}.invalid"
        self._problem = problem

    def discover(self, _: DiscoveryContext) -> NoReturn:
        """Raise HostError with the reason why the vendor cannot be loaded."""
        raise HostError(self._problem, hint=HINT, kind="vendor-defect")

    def edits(self, *_: object) -> NoReturn:
        """Raise TypeError, because this vendor has no inventory."""
        raise TypeError(self._problem)

    def watches(self, _: DiscoveryContext) -> Watches:
        """Return no files to watch, because cdigen loads a changed package only after a restart."""
        return Watches(files=(), polled=(), subsystems=())

    def diagnostics(self, *_: object) -> tuple[()]:
        """Return an empty tuple, because ``discover`` reports the problem."""
        return ()

    missing_nodes = wrong_nodes = diagnostics


def _checked(vendor: Any, name: str, kind: type) -> Callable[..., Any]:
    """Return the method NAME of VENDOR, wrapped in a check of the returned value.

    The method must return an object of KIND. If NAME is in ``_MANY``, the method must return a tuple of KIND.
    """
    method, is_many = getattr(vendor, name), name in _MANY

    def call(*arguments: Any) -> Any:
        answer = _call_vendor(method, *arguments)
        if is_many and not isinstance(answer, tuple):
            raise TypeError(f"{name} returned {type(answer).__name__}, not a tuple")
        for each in answer if is_many else (answer,):
            if not isinstance(each, kind):
                raise TypeError(f"{name} returned {type(each).__name__}, not {kind.__name__}")
        if name == "discover":
            # The check is as strict as for an inventory file, so that cdigen can process the inventory.
            found = from_document(json.loads(json.dumps(to_document({vendor.NAME: answer}))))[vendor.NAME]
            return replace(found, accelerators=placed(arguments[0].host, found.accelerators))
        _require_own(vendor, answer if name == "edits" else ())
        if name == "watches" and not _are_texts((*answer.files, *answer.polled, *answer.subsystems)):
            raise TypeError("watches returned a value that is not a text")
        return answer

    return call


def _named_by(method: Callable[[str], Any]) -> Callable[[str], tuple[str, ...]]:
    """Return METHOD, wrapped in a check of the returned names.

    If the names are invalid, the wrapper returns the requested word as the name.
    """

    def call(word: str) -> tuple[str, ...]:
        try:
            answer = _call_vendor(method, word)
        except Exception:  # noqa: BLE001 - code of another package
            return (word,)
        return answer if answer and isinstance(answer, tuple) and _are_texts(answer) else (word,)

    return call


def _call_vendor(method: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of METHOD; raise RuntimeError if the vendor calls sys.exit()."""
    try:
        return method(*arguments)
    except SystemExit as error:
        raise RuntimeError(f"the vendor called sys.exit({error.code!r})") from None


def _require_own(vendor: Any, drafts: tuple[Draft, ...]) -> None:
    """Raise TypeError if a draft in DRAFTS has another vendor's kind, or an unsafe prefix."""
    for draft in drafts:
        if not draft.kind.startswith(f"{vendor.CDI_VENDOR}/"):
            raise TypeError(f"edits: the kind {draft.kind} does not begin with {vendor.CDI_VENDOR}/")
        if draft.payload and not _may_hold_libraries(draft.payload.prefix):
            raise TypeError(f"edits: the prefix {draft.payload.prefix!r} is not a folder for one vendor only")


def _may_hold_libraries(prefix: str) -> bool:
    """Return whether PREFIX is empty, or so deep that a mount at PREFIX hides no files of images."""
    levels = 2 if prefix.startswith("/opt/") else 3
    is_clean = prefix.startswith("/") and posixpath.normpath(prefix) == prefix
    return not prefix or (is_clean and prefix.count("/") >= levels)


def _are_texts(values: tuple[object, ...]) -> bool:
    return all(isinstance(value, str) for value in values)
