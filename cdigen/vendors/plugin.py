"""A vendor of another package: its code is loaded here and held to the protocol.

Whatever it does wrong is its own failure, in one line, and costs no other vendor: one that cannot be loaded
is a vendor all the same, which has nothing but its error.
"""

from __future__ import annotations

import json
import posixpath

from cdigen.model.cdi import Draft
from cdigen.model.errors import ConfigError, HostError
from cdigen.model.findings import Finding
from cdigen.model.inventory import HostNode, Inventory
from cdigen.model.inventory_json import from_document, to_document
from cdigen.model.names import is_vendor_or_class
from cdigen.model.profile import is_naming
from cdigen.vendors.base import Option, Watches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint
    from typing import TypeVar

    from cdigen.model.profile import Profile
    from cdigen.vendors.base import DiscoveryContext, Vendor

    T = TypeVar("T")

HINT = "fix or remove the package that adds it"
# What base.Vendor asks for: of values what their items are, of methods nothing more.
_VALUES: dict[str, type] = {"NAMINGS": str, "OPTIONS": Option, "MODULES": str, "PCI_VENDORS": int}
_METHODS = ("discover", "edits", "watches", "missing_nodes", "wrong_nodes", "diagnostics")
NEEDED = ("NAME", "CDI_VENDOR", *_VALUES, *_METHODS)


def load(name: str, entry: EntryPoint, taken: tuple[str, ...]) -> Vendor:
    """Return the vendor NAME that ENTRY leads to; TAKEN are the CDI vendors of others."""
    try:
        vendor = _obey(entry.load)
        if problem := _problem(vendor, name, taken):
            return UnusableVendor(name, f"the vendor {name} ({entry.value}) {problem}")
        return PluginVendor(vendor)
    except Exception as error:  # noqa: BLE001 - the code is another's
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return UnusableVendor(name, f"the vendor {name} cannot be loaded from {entry.value}: {said}")


def _problem(vendor: Vendor, name: str, taken: tuple[str, ...]) -> str:
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
            return f"has {attribute} that is no tuple of {kind.__name__}"
    if odd := [naming for naming in vendor.NAMINGS if not is_naming(naming)]:
        return f"has the naming {odd[0]!r}, which is no word of small letters, digits, - and _"
    if not vendor.NAMINGS:
        return "has no NAMINGS"
    return "" if vendor.MODULES else "has no MODULES"


class PluginVendor:
    """A vendor whose every answer is looked at before anybody works with it (``vendors.base.Vendor``)."""

    def __init__(self, vendor: Vendor) -> None:
        self.NAME, self.CDI_VENDOR, self.NAMINGS = vendor.NAME, vendor.CDI_VENDOR, vendor.NAMINGS
        self.OPTIONS, self.MODULES, self.PCI_VENDORS = vendor.OPTIONS, vendor.MODULES, vendor.PCI_VENDORS
        self._vendor = vendor

    def discover(self, context: DiscoveryContext) -> Inventory:
        """Read the host; raises HostError as the vendor does, TypeError or ConfigError for what is none."""
        inventory = _is_a(Inventory, _obey(lambda: self._vendor.discover(context)), "discover")
        document = json.dumps(to_document({self.NAME: inventory}))
        try:
            return from_document(json.loads(document))[self.NAME]
        except ConfigError as error:
            raise TypeError(f"discover: {error.message}") from None

    def edits(self, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
        """Compute the drafts; raises TypeError for what is none, or of another vendor's kind."""
        drafts = _are(Draft, _obey(lambda: self._vendor.edits(inventory, profiles)), "edits")
        for draft in drafts:
            if not draft.kind.startswith(f"{self.CDI_VENDOR}/"):
                raise TypeError(f"edits: the kind {draft.kind} is not one of {self.CDI_VENDOR}")
            if draft.payload and not _may_hold_libraries(draft.payload.prefix):
                raise TypeError(
                    f"edits: the prefix {draft.payload.prefix!r} is no folder of the vendor's own"
                )
        return drafts

    def watches(self, context: DiscoveryContext) -> Watches:
        """Return what to watch; raises TypeError for what is no such list."""
        watches = _is_a(Watches, _obey(lambda: self._vendor.watches(context)), "watches")
        for given in (watches.files, watches.polled, watches.subsystems):
            _are(str, given, "watches")
        return watches

    def missing_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
        """Read which nodes nobody has made; raises TypeError for what is none."""
        return _are(HostNode, _obey(lambda: self._vendor.missing_nodes(context)), "missing_nodes")

    def wrong_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
        """Read which nodes are others; raises TypeError for what is none."""
        return _are(HostNode, _obey(lambda: self._vendor.wrong_nodes(context)), "wrong_nodes")

    def diagnostics(self, context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
        """Read what goes wrong besides; raises TypeError for what is no finding."""
        return _are(Finding, _obey(lambda: self._vendor.diagnostics(context, inventory)), "diagnostics")


class UnusableVendor:
    """A vendor that has nothing but its error (``vendors.base.Vendor``)."""

    NAMINGS: tuple[str, ...] = ()
    OPTIONS: tuple[Option, ...] = ()
    MODULES: tuple[str, ...] = ()
    PCI_VENDORS: tuple[int, ...] = ()

    def __init__(self, name: str, problem: str) -> None:
        self.NAME = name
        # No kind of anybody's begins so (RFC 2606): what its specs were is not known.
        self.CDI_VENDOR = f"{name}.invalid"
        self._problem = problem

    def discover(self, context: DiscoveryContext) -> Inventory:  # noqa: ARG002
        """Raise HostError: the package is broken."""
        raise HostError(self._problem, hint=HINT, kind="vendor-defect")

    def edits(self, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:  # noqa: ARG002
        """Raise TypeError: nobody reads an inventory of it."""
        raise TypeError(self._problem)

    def watches(self, context: DiscoveryContext) -> Watches:  # noqa: ARG002
        """Return nothing to watch: another package is another start."""
        return Watches(files=(), polled=(), subsystems=())

    def missing_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:  # noqa: ARG002
        """Return nothing."""
        return ()

    def wrong_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:  # noqa: ARG002
        """Return nothing."""
        return ()

    def diagnostics(self, context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:  # noqa: ARG002
        """Return nothing: its failure says it all."""
        return ()


def _may_hold_libraries(prefix: str) -> bool:
    """Return whether PREFIX is none, or a folder deep enough that a mount there hides nothing of images."""
    levels = 2 if prefix.startswith("/opt/") else 3
    is_clean = prefix.startswith("/") and posixpath.normpath(prefix) == prefix
    return not prefix or (is_clean and prefix.count("/") >= levels)


def _obey(call: Callable[[], T]) -> T:
    """Return what CALL gives; a vendor's sys.exit() ends no program of ours."""
    try:
        return call()
    except SystemExit as error:
        raise RuntimeError(f"it called sys.exit({error.code!r})") from None


def _is_a(kind: type[T], given: object, where: str) -> T:
    if not isinstance(given, kind):
        raise TypeError(f"{where} gave {type(given).__name__}, not {kind.__name__}")
    return given


def _are(kind: type[T], given: object, where: str) -> tuple[T, ...]:
    if not isinstance(given, tuple):
        raise TypeError(f"{where} gave {type(given).__name__}, not a tuple")
    return tuple(_is_a(kind, each, where) for each in given)
