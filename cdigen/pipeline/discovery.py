"""Discovery: what each vendor finds on this host, or why it finds nothing.

One vendor's failure never affects another vendor's devices: an exception becomes a failure of its vendor.
"""

from __future__ import annotations

from cdigen.host import sysfs
from cdigen.model.errors import HostError, StoreError
from cdigen.model.findings import finding_of
from cdigen.model.partition_names import remembered
from cdigen.vendors import registry
from cdigen.vendors.claims import without_shared_nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext, Watches

# Kinds of HostError: this host has no driver of the vendor; the driver is loaded and has no device (udev and
# others load modules on their own); the vendor's code failed.
NOT_LOADED, NO_GPU, DEFECT = "driver-not-loaded", "no-gpu", "vendor-defect"
# Of every kernel; a /sys without it is not that of a host.
_ANY_SYSFS = "/sys/devices/system/cpu"
# The rule of a vendor's findings about devices not bound to its own driver.
UNBOUND = "device-not-bound"


def discover(
    names: tuple[str, ...], context: DiscoveryContext
) -> tuple[dict[str, Inventory], dict[str, HostError]]:
    """Ask each of the vendors NAMES for its inventory; returns those, and why a vendor has none.

    Links are not in them (``pipeline.links``): what is generated needs none.
    """
    inventories: dict[str, Inventory] = {}
    failures: dict[str, HostError] = {}
    for name in names:
        vendor = registry.load(name)
        try:
            inventories[name] = vendor.discover(context)
        except HostError as error:
            failures[name] = error
        except Exception as error:  # noqa: BLE001 - a defect of one vendor's code costs no other's devices
            failures[name] = vendor_defect(name, error)
    inventories, claimed = without_shared_nodes(inventories)
    failures |= claimed
    if not inventories:
        failures = {name: _with_unbound_devices(name, error, context) for name, error in failures.items()}
    return inventories, failures


def _with_unbound_devices(name: str, error: HostError, context: DiscoveryContext) -> HostError:
    """Return ERROR with the devices of the vendor NAME that are not bound to its driver.

    Only if no vendor found anything: reading the PCI bus of a large machine takes longer than everything else
    for a vendor without devices.
    """
    if error.kind != NOT_LOADED:
        return error
    unbound = [finding for finding in diagnostics(name, context, None) if finding.rule == UNBOUND]
    if not unbound:
        return error
    more = f" (and {len(unbound) - 1} more)" if len(unbound) > 1 else ""
    message = f"{error.message}: {unbound[0].message}{more}"
    return HostError(message, hint=unbound[0].hint or error.hint, kind=error.kind)


def vendor_defect(name: str, error: Exception) -> HostError:
    """Return the failure of the vendor NAME whose code raised ERROR."""
    said = " ".join(str(error).split())[:200]
    return HostError(
        f"the code for {name} failed: {type(error).__name__}{': ' if said else ''}{said}",
        hint="report it with the output of 'cdigen doctor --bundle'",
        kind=DEFECT,
    )


def relevant_failures(
    inventories: dict[str, Inventory], failures: dict[str, HostError], host: Root
) -> dict[str, HostError]:
    """Return which FAILURES to report if all vendors were asked because the user named none.

    A host need not have GPUs of every vendor. One that is absent (no module, or a module without a device
    on the PCI bus) is reported only if nothing else was found: first those with a device on the bus, then
    those whose module is loaded, else one line for all.
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


def is_bare(inventories: dict[str, Inventory], failures: dict[str, HostError], host: Root) -> bool:
    """Return whether HOST, whose /sys is there to see, has no GPU of the vendors that were asked."""
    if inventories or not host.exists(_ANY_SYSFS):
        return False
    return all(
        _is_absent(name, error, host) and not _has_hardware(name, host) for name, error in failures.items()
    )


def _is_absent(name: str, error: HostError, host: Root) -> bool:
    return error.kind == NOT_LOADED or (error.kind == NO_GPU and not _has_hardware(name, host))


def _has_hardware(name: str, host: Root) -> bool:
    numbers = registry.load(name).PCI_VENDORS
    return any(sysfs.pci_devices(host, vendor=number, classes=sysfs.ACCELERATORS) for number in numbers)


def watches(
    names: tuple[str, ...], context: DiscoveryContext
) -> tuple[tuple[Watches, ...], dict[str, HostError]]:
    """Return what the daemon has to watch for each vendor, and the vendors whose code failed to tell."""
    wanted: list[Watches] = []
    failures: dict[str, HostError] = {}
    for name in names:
        try:
            wanted.append(registry.load(name).watches(context))
        except Exception as error:  # noqa: BLE001 - as in discover
            failures[name] = vendor_defect(name, error)
    return tuple(wanted), failures


def diagnostics(name: str, context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
    """Return the problems that the vendor NAME finds on this host, or that its code failed."""
    try:
        return registry.load(name).diagnostics(context, inventory)
    except Exception as error:  # noqa: BLE001 - as in discover
        return (finding_of(vendor_defect(name, error), name),)


def save_partition_names(
    inventories: Mapping[str, Inventory],
    failures: Mapping[str, HostError],
    context: DiscoveryContext,
    state_dir: str,
) -> Finding | None:
    """Store the names of GPU partitions for a time when NVML does not answer; returns why that failed."""
    before = context.partition_names()
    absent = [name for name, error in failures.items() if error.kind in {NOT_LOADED, NO_GPU}]
    names = remembered(before, inventories, absent)
    if names == before:
        return None
    from cdigen.store import partition_names  # noqa: PLC0415 - few hosts have partitions

    try:
        partition_names.save(state_dir, context.host, names)
    except StoreError as error:
        return finding_of(error, f"{state_dir}/{partition_names.FILE}")
    return None
