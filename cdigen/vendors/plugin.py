"""Load the vendor of another package (``load``), and enforce the rules of the vendor protocol.

If a function of the vendor violates the protocol, the call raises an exception. The caller reports the
exception as a failure of this vendor (``registry.reporting``).
"""

from __future__ import annotations

import posixpath
import re
from functools import partial
from itertools import chain

from cdigen.model.errors import HostError, described
from cdigen.model.names import is_vendor_or_class
from cdigen.model.profile import is_naming
from cdigen.value import replace
from cdigen.vendors.base import Vendor, Watches
from cdigen.vendors.kernel.pci.place import placed
from cdigen.vendors.labels import is_label
from cdigen.vendors.plugin_values import VendorPackage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from importlib.metadata import EntryPoint
    from typing import NoReturn

    from cdigen.model.cdi import Draft
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.labels import Label, LabelSource

HINT = "fix or remove the package that adds the vendor"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{3,}\*?", re.ASCII)


def load(name: str, entry: EntryPoint, used: tuple[str, ...], variables: tuple[str, ...]) -> Vendor:
    """Return the vendor NAME of the entry point ENTRY.

    USED are the CDI vendors and the domains of resources of other vendors. VARIABLES are the environment
    variables of other vendors. If the vendor cannot be loaded or violates the protocol, the result has a
    ``problem``, and ``discover`` raises HostError.
    """
    try:
        vendor = VendorPackage().vendor(entry.load)
        problem = next(chain(_wrong_names(vendor, name, used), _wrong_variables(vendor, variables)), "")
    except Exception as error:  # noqa: BLE001 - code of another package
        problem = f"cannot be loaded: {described(error)}"
    if problem:
        return _unusable(name, f"the vendor {name} ({entry.value}) {problem}")
    return replace(
        vendor,
        discover=partial(_discover, vendor),
        edits=partial(_edits, vendor),
        VISIBLE_DEVICES=tuple(replace(row, names=_or_word(row.names)) for row in vendor.VISIBLE_DEVICES),
        LABELS=partial(_labels, vendor.LABELS, used) if vendor.LABELS else None,
    )


def _wrong_names(vendor: Vendor, name: str, used: tuple[str, ...]) -> Iterator[str]:
    """Yield the violations of the protocol by the names of VENDOR, except those of VISIBLE_DEVICES."""
    if name != vendor.NAME:
        yield f"has another NAME: {vendor.NAME!r}"
    if not is_vendor_or_class(vendor.CDI_VENDOR):
        yield f"has a CDI_VENDOR that is not valid in a CDI kind: {vendor.CDI_VENDOR!r}"
    if vendor.CDI_VENDOR in used:
        yield f"has the CDI_VENDOR of another vendor: {vendor.CDI_VENDOR!r}"
    for naming in vendor.NAMINGS:
        if not is_naming(naming):
            yield f"has the invalid naming {naming!r} (permitted: small letters, digits, - and _)"
    for resource in (each for row in vendor.RESOURCES for each in (row.name, row.partition) if each):
        if not is_label((resource.replace("{profile}", "x"), "x")):
            yield f"has an invalid name of a resource: {resource!r}"
        if _is_of_another(resource, used):
            yield f"has a resource of another vendor: {resource!r}"
    yield from (f"has no {each}" for each in ("NAMINGS", "MODULES") if not getattr(vendor, each))


def _wrong_variables(vendor: Vendor, used: tuple[str, ...]) -> Iterator[str]:
    """Yield the violations of the protocol by the VISIBLE_DEVICES of VENDOR; raise re.error for a pattern."""
    for row in vendor.VISIBLE_DEVICES:
        if not row.kinds or not all(kind.startswith(f"{vendor.CDI_VENDOR}/") for kind in row.kinds):
            yield f"has VISIBLE_DEVICES with kinds not of {vendor.CDI_VENDOR}: {', '.join(row.kinds)}"
        for pattern in (row.allocated_kinds, row.nodes, row.words):
            re.compile(pattern)
        for variable in row.variables:
            if not _VARIABLE.fullmatch(variable):
                yield f"has VISIBLE_DEVICES with an invalid name of a variable: {variable!r}"
            if other := next((other for other in used if _overlap(variable, other)), ""):
                yield f"has a variable of another vendor: {variable} matches {other}"


def _is_of_another(name: str, used: Iterable[str]) -> bool:
    """Return whether the domain before the slash in NAME is one of USED, or below one of USED."""
    domain = name.partition("/")[0]
    return any(domain == other or domain.endswith(f".{other}") for other in used)


def _overlap(one: str, other: str) -> bool:
    """Return whether the patterns ONE and OTHER can match the same variable."""
    pairs = ((one, other), (other, one))
    return one == other or any(name.endswith("*") and rest.startswith(name[:-1]) for name, rest in pairs)


def _discover(vendor: Vendor, context: DiscoveryContext) -> Inventory:
    """Return VENDOR's inventory, with the places of the accelerators on the PCI bus."""
    found = vendor.discover(context)
    if found.vendor != vendor.NAME:
        raise TypeError(f"discover() returned an inventory of the vendor {found.vendor!r}")
    return replace(found, accelerators=placed(context.host, found.accelerators))


def _edits(vendor: Vendor, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return VENDOR's drafts; raise TypeError for a kind of another draft or vendor, or an unsafe prefix."""
    drafts = vendor.edits(inventory, profiles)
    if len({draft.kind for draft in drafts}) < len(drafts):
        raise TypeError("edits() returned two drafts of one kind")
    for draft in drafts:
        if not draft.kind.startswith(f"{vendor.CDI_VENDOR}/"):
            raise TypeError(f"edits: the kind {draft.kind} does not begin with {vendor.CDI_VENDOR}/")
        if draft.payload and not _may_hold_libraries(draft.payload.prefix):
            raise TypeError(f"edits: the prefix {draft.payload.prefix!r} is not a folder for one vendor only")
    return drafts


def _labels(
    labels: Callable[[LabelSource], list[Label]], used: tuple[str, ...], source: LabelSource
) -> list[Label]:
    """Return the LABELS of a node; raise TypeError for a label of a domain in USED."""
    found = labels(source)
    if other := next((name for name, _ in found if _is_of_another(name, used)), ""):
        raise TypeError(f"LABELS() returned a label of another vendor: {other}")
    return found


def _unusable(name: str, problem: str) -> Vendor:
    """Return the vendor NAME of a package that cannot be used. It has no namings and nothing to watch."""

    def discover(*_: object) -> NoReturn:
        raise HostError(problem, hint=HINT, kind="vendor-defect")

    return Vendor(
        NAME=name,
        # cdigen cannot read the vendor's own CDI vendor. No real CDI vendor ends in ".invalid" (RFC 2606).
        CDI_VENDOR=f"{name}.invalid",
        NAMINGS=(),
        OPTIONS=(),
        MODULES=(),
        PCI_VENDORS=(),
        discover=discover,
        edits=discover,
        watches=lambda _: Watches(files=(), polled=(), subsystems=()),
        missing_nodes=lambda _: (),
        wrong_nodes=lambda _: (),
        diagnostics=lambda *_: (),
        problem=problem,
    )


def _or_word(names: Callable[[str], tuple[str, ...]]) -> Callable[[str], tuple[str, ...]]:
    """Return NAMES, wrapped to return the requested word as the name if NAMES fails or returns no name."""

    def call(word: str) -> tuple[str, ...]:
        try:
            return names(word) or (word,)
        except Exception:  # noqa: BLE001 - code of another package
            return (word,)

    return call


def _may_hold_libraries(prefix: str) -> bool:
    """Return whether PREFIX is empty, or so deep that a mount at PREFIX hides no files of images."""
    levels = 2 if prefix.startswith("/opt/") else 3
    is_clean = prefix.startswith("/") and posixpath.normpath(prefix) == prefix
    return not prefix or (is_clean and prefix.count("/") >= levels)
