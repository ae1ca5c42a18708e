"""One cycle: discover, build, check. The command, the daemon and the tests all run this.

Writing is the caller's, because a command prints where the daemon stores; a ``Result`` carries all
that either needs.
"""

from __future__ import annotations

from cdigen.cdi.build import ALL, build, conflicting_variables
from cdigen.cdi.fit import REPORTED_BY_FIT, fit, refuse_newer
from cdigen.cdi.parse_cache import check_and_render
from cdigen.cdi.relocate import relocate
from cdigen.cdi.rules.hostcheck import check_host
from cdigen.host import sysfs
from cdigen.host.root import reason
from cdigen.model.errors import ConfigError, HostError, SpecError, StoreError
from cdigen.model.findings import Finding, errors
from cdigen.model.profile import DEFAULT
from cdigen.pipeline import naming
from cdigen.pipeline.delivery import DEFAULT_DELIVERY, deliver
from cdigen.value import frozen, replace
from cdigen.vendors import registry
from cdigen.vendors.claims import without_shared_nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cdigen.host.root import Root
    from cdigen.model.cdi import Draft
    from cdigen.model.findings import Severity
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.model.profile import Profile
    from cdigen.model.target import Target
    from cdigen.pipeline.delivery import DeliveryOptions
    from cdigen.vendors.base import DiscoveryContext, Watches


@frozen
class GeneratedSpec:
    """One kind's spec: the document, its bytes, and what was found while it was made and checked.

    ``driver`` is the version of the driver that it is made for, as its vendor writes it, or empty.
    """

    vendor: str
    kind: str
    driver: str
    document: dict[str, Any]
    content: bytes
    findings: tuple[Finding, ...]


@frozen
class GenerateOptions:
    """What specs are asked for.

    ``profiles`` give the kinds of GPUs; ``kinds``, where given, are the only ones wanted; ``target``
    is what has to read them; containers get the driver's files below ``container_driver_root``.
    """

    profiles: tuple[Profile, ...] = (DEFAULT,)
    kinds: tuple[str, ...] = ()
    target: Target | None = None
    container_driver_root: str = "/"


DEFAULT_OPTIONS = GenerateOptions()
# Kinds of HostError: a vendor that this host has no driver of, and one whose code has failed.
NOT_LOADED, DEFECT = "driver-not-loaded", "vendor-defect"
# The rule of a vendor's findings on devices that no driver of its own has.
UNBOUND = "device-not-bound"
# One whose module is there, and has no device: udev, and whatever asks for it, loads modules on their own.
NO_GPU = "no-gpu"


def discover(
    names: tuple[str, ...], context: DiscoveryContext
) -> tuple[dict[str, Inventory], dict[str, HostError]]:
    """Read the inventory of each vendor; one vendor's trouble never costs another's."""
    inventories: dict[str, Inventory] = {}
    failures: dict[str, HostError] = {}
    for name in names:
        vendor = registry.load(name)
        try:
            inventories[name] = vendor.discover(context)
        except HostError as error:
            failures[name] = error
        except Exception as error:  # noqa: BLE001 - a defect of one vendor's code costs no other's devices
            failures[name] = _defect(name, error)
    inventories, claimed = without_shared_nodes(inventories)
    failures |= claimed
    if not inventories:
        failures = {name: _explained(name, error, context) for name, error in failures.items()}
    return inventories, failures


def _explained(name: str, error: HostError, context: DiscoveryContext) -> HostError:
    """Return ERROR with what the vendor NAME knows of devices that no driver of its own has.

    Said here, not where the error is made: every host is asked for every vendor, and reading all of a large
    machine's PCI bus takes longer than all else that a host without the vendor's devices costs.
    """
    if error.kind != NOT_LOADED:
        return error
    unbound = [finding for finding in diagnostics(name, context, None) if finding.rule == UNBOUND]
    if not unbound:
        return error
    more = f" (and {len(unbound) - 1} more)" if len(unbound) > 1 else ""
    message = f"{error.message}: {unbound[0].message}{more}"
    return HostError(message, hint=unbound[0].hint or error.hint, kind=error.kind)


def _defect(name: str, error: Exception) -> HostError:
    said = " ".join(str(error).split())[:200]
    return HostError(
        f"the code for {name} failed: {type(error).__name__}{': ' if said else ''}{said}",
        hint="report it with the output of 'cdigen doctor --bundle'",
        kind=DEFECT,
    )


def relevant_failures(
    inventories: dict[str, Inventory], failures: dict[str, HostError], host: Root
) -> dict[str, HostError]:
    """Return which FAILURES there are to tell where nobody has named a vendor, so that all were asked.

    A host need not have GPUs of every maker: one whose module is not loaded, or has no GPU and nothing is
    on the PCI bus that it could have, is told only where nothing else is there, and then by what is on the
    bus, or which modules are loaded.
    """
    absent = {name: error for name, error in failures.items() if _is_absent(name, error, host)}
    if inventories or len(absent) < len(failures):
        return {name: error for name, error in failures.items() if name not in absent}
    on_bus = {name: error for name, error in absent.items() if _has_hardware(name, host)}
    idle = {name: error for name, error in absent.items() if error.kind == NO_GPU}
    if on_bus or idle or len(absent) < 2:
        return on_bus or idle or absent
    vendors = [registry.load(name) for name in absent]
    commands = ", ".join(f"'modprobe {vendor.MODULES[0]}'" for vendor in vendors)
    nothing = HostError(
        f"no GPU is on the PCI bus, and the drivers of {', '.join(absent)} are not loaded",
        hint=f"one of {commands} loads a driver that is installed",
        kind=NOT_LOADED,
    )
    return {next(iter(absent)): nothing}


def _is_absent(name: str, error: HostError, host: Root) -> bool:
    return error.kind == NOT_LOADED or (error.kind == NO_GPU and not _has_hardware(name, host))


def _has_hardware(name: str, host: Root) -> bool:
    numbers = registry.load(name).PCI_VENDORS
    return any(sysfs.pci_devices(host, vendor=number, classes=sysfs.ACCELERATORS) for number in numbers)


def watches(
    names: tuple[str, ...], context: DiscoveryContext
) -> tuple[tuple[Watches, ...], dict[str, HostError]]:
    """Return what each vendor wants watched, and whose code has failed to say it."""
    wanted: list[Watches] = []
    failures: dict[str, HostError] = {}
    for name in names:
        try:
            wanted.append(registry.load(name).watches(context))
        except Exception as error:  # noqa: BLE001 - as in discover
            failures[name] = _defect(name, error)
    return tuple(wanted), failures


def diagnostics(name: str, context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
    """Return what the vendor NAME knows to go wrong on this host, or that its code has failed."""
    try:
        return registry.load(name).diagnostics(context, inventory)
    except Exception as error:  # noqa: BLE001 - as in discover
        defect = _defect(name, error)
        return (Finding(severity="error", rule=DEFECT, path=name, message=defect.message, hint=defect.hint),)


def make_nodes(names: tuple[str, ...], context: DiscoveryContext) -> tuple[Finding, ...]:
    """Make the device nodes that the vendors NAMES miss; returns which were made and which could not be."""
    from cdigen.store.devnodes import make_node  # noqa: PLC0415 - only where it is allowed

    findings = []
    for name in names:
        try:
            missing = registry.load(name).missing_nodes(context)
        except HostError:
            continue  # discovery will say the same
        except Exception:  # noqa: BLE001, S112 - likewise, and it costs no other vendor's nodes
            continue
        for node in missing:
            try:
                made = make_node(context.dev.outer_path(context.dev.resolve_new(node.path)), node)
            except (OSError, StoreError) as error:
                problem = reason(error) if isinstance(error, OSError) else error.message
                findings.append(_about_node("warning", "node-not-made", node, f"cannot be made: {problem}"))
                continue
            if made:
                numbers = f"{node.major}:{node.minor}"
                findings.append(
                    _about_node("info", "node-made", node, f"was made with the numbers {numbers}")
                )
    return tuple(findings)


def _about_node(severity: Severity, rule: str, node: HostNode, what: str) -> Finding:
    path = node.host_path
    return Finding(severity=severity, rule=rule, path=path, message=f"the device node {path} {what}")


def generate_specs(
    inventories: dict[str, Inventory],
    *,
    host: Root | None,
    options: GenerateOptions = DEFAULT_OPTIONS,
    delivery: DeliveryOptions = DEFAULT_DELIVERY,
) -> tuple[tuple[GeneratedSpec, ...], dict[str, SpecError]]:
    """Compute and check the specs of INVENTORIES; with HOST, hold them against that host as well.

    MEANS says by what the driver's files may reach containers; a view is made here if it may be.

    Returns the specs that are right, and by its kind an error for each that does not fit the target or
    breaks a rule: a defect of cdigen, or a host that changed between reading and checking. Raises
    ConfigError where a profile's class is that of another kind.
    """
    products: list[GeneratedSpec] = []
    broken: dict[str, SpecError] = {}
    seen: set[str] = set()
    for name, inventory in inventories.items():
        try:
            drafts, misnamed = naming.named_drafts(name, inventory, options.profiles)
        except Exception as error:  # noqa: BLE001 - as in discover
            broken[f"{registry.cdi_vendor(name)}/{options.profiles[0].device_class}"] = _edits_defect(
                name, error
            )
            continue
        for draft in drafts:
            if options.kinds and draft.kind not in options.kinds:
                continue
            if draft.kind in seen:
                raise ConfigError(
                    f"two specs would have the kind {draft.kind}", hint="give the profile another class"
                )
            seen.add(draft.kind)
            said = (misnamed[draft.kind],) if draft.kind in misnamed else ()
            try:
                document, content, findings = _document(draft, host, options, delivery)
            except SpecError as error:
                broken[draft.kind] = error
                continue
            products.append(
                GeneratedSpec(
                    vendor=name,
                    kind=draft.kind,
                    driver=inventory.driver.version,
                    document=document,
                    content=content,
                    findings=(*inventory.findings, *said, *findings),
                )
            )
    return tuple(products), broken


def defective_vendors(broken: Mapping[str, SpecError], names: Iterable[str]) -> dict[str, SpecError]:
    """Return which of the vendors NAMES could not say what they offer, so that nothing of theirs is gone."""
    return {registry.vendor_of(kind, names): error for kind, error in broken.items() if error.kind == DEFECT}


def _edits_defect(name: str, error: Exception) -> SpecError:
    defect = _defect(name, error)
    return SpecError(defect.message, hint=defect.hint, kind=DEFECT)


def _document(
    draft: Draft, host: Root | None, options: GenerateOptions, delivery: DeliveryOptions
) -> tuple[dict[str, Any], bytes, tuple[Finding, ...]]:
    """Return the document of DRAFT as it is wished, its bytes, and what there is to say of it.

    Raises SpecError where it breaks a rule or does not hold on the host.
    """
    plain = options.container_driver_root != "/"
    taken = any(
        profile.needs_capability_folders()
        for profile in options.profiles
        if profile.device_class == DEFAULT.device_class
    )
    delivered, said = deliver(draft, host, replace(delivery, plain=plain, folders_taken=taken))
    fitted, dropped = fit(relocate(delivered, options.container_driver_root), options.target)
    document = build(fitted)
    if options.target is not None:
        refuse_newer(document, options.target)
    writing = check_and_render(document)
    findings = tuple(finding for finding in writing.findings if finding.rule not in REPORTED_BY_FIT)
    if host is not None and not errors(findings):
        findings = (*findings, *check_host(document, host))
    if wrong := errors(findings):
        raise _broken(draft.kind, wrong)
    return document, writing.content, (*said, *_unset(draft), *dropped, *findings)


def _unset(draft: Draft) -> tuple[Finding, ...]:
    """Say which variables the device ``all`` has not, because the devices set them to different values."""
    has_own = any(device.name == ALL for device in draft.devices)
    entries = [entry for device in draft.devices for entry in device.edits.env]
    names = () if has_own or not draft.has_all else conflicting_variables(entries)
    message = f"the devices of {draft.kind} set {', '.join(names)} differently: {ALL} sets none of it"
    hint = "ask for the devices one by one; the vendor's code may have a device 'all' of its own"
    finding = Finding(
        severity="warning", rule="all-without-variable", path=draft.kind, message=message, hint=hint
    )
    return (finding,) if names else ()


def _broken(kind: str, wrong: tuple[Finding, ...]) -> SpecError:
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return SpecError(
        f"the spec of {kind} breaks a rule and was not written: {wrong[0].line()}{more}",
        hint="run it again if the driver was being changed; else report it with the output of "
        "'cdigen inspect --json'",
    )
