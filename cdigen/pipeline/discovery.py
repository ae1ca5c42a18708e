"""The inventory of each vendor on this host, or the failure of the vendor.

A failure of a vendor never affects the devices of another vendor. An exception in the code of a vendor
becomes a failure of this vendor.
"""

from __future__ import annotations

from cdigen.host import sysfs
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding
from cdigen.model.saved import names_to_store
from cdigen.value import replace
from cdigen.vendors import registry
from cdigen.vendors.claims import without_shared_nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import Watches
    from cdigen.vendors.context import DiscoveryContext

# Kinds of HostError. NOT_LOADED: the driver of the vendor is not loaded. NO_GPU: the driver is loaded,
# possibly by udev, and the host has no device. UNUSABLE: the driver is loaded, and no device is usable.
NOT_LOADED, NO_GPU, UNUSABLE = "driver-not-loaded", "no-gpu", "no-usable-device"
# The kinds for a host without a device of the vendor. For all other kinds, the host has devices, but no
# device is usable.
ABSENT = frozenset((NOT_LOADED, NO_GPU))
# The message in a container without devices.
NO_HOST = "this is a container, and the host is not mounted"
# The hint if no vendor has a device on the PCI bus.
_LIST_DEVICES = "'lspci -nn' lists the devices; in a virtual machine, pass a GPU through"
# The kinds of failures that occur in a container without the devices and driver files of the host. The
# container uses the kernel of the host.
_LACKING_HOST = ABSENT | {"no-nodes", "no-usable-device", "no-mig-instances", "driver-not-found"}
# Every kernel has this folder. If the folder is missing, /sys is not the sysfs of a host.
_ANY_SYSFS = "/sys/devices/system/cpu"
# The rule of findings about devices that are not bound to the driver of their vendor.
UNBOUND = "device-not-bound"
_MAX_ADDRESSES = 4
# The rules of findings about the nodes of a single device.
_OF_SINGLE_DEVICES = frozenset(("gpu-node-missing", "drm-node-missing", "accel-node-missing"))


def discover(
    names: tuple[str, ...], context: DiscoveryContext
) -> tuple[dict[str, Inventory], dict[str, HostError]]:
    """Return the inventories of the vendors NAMES, and the failures of the vendors without an inventory.

    The inventories have no links between GPUs (``pipeline.driver.links``), because specs do not need links.
    """
    inventories: dict[str, Inventory] = {}
    failures: dict[str, HostError] = {}
    for name in names:
        vendor = registry.load(name)
        try:
            inventories[name] = vendor.discover(context)
        except Exception as error:  # noqa: BLE001 - a defect of one vendor's code must not affect others
            failures[name] = _with_unused_devices(name, registry.vendor_defect(name, error), context.host)
    inventories, claimed = without_shared_nodes(inventories)
    failures |= claimed
    inventories = {name: _without_nodes_of_others(each, context.host) for name, each in inventories.items()}
    if context.excluded:
        inventories, failures = _without_excluded(inventories, failures, context)
    if not inventories:
        failures = {name: _with_unbound_devices(name, error, context) for name, error in failures.items()}
    return inventories, failures


def _without_nodes_of_others(inventory: Inventory, host: Root) -> Inventory:
    """Return INVENTORY; in a guest, findings about missing nodes of single devices get the severity info.

    A guest of LXC or Incus lists the devices of its host, and has the nodes of the devices that it may use.
    """
    missing = [f for f in inventory.findings if f.rule in _OF_SINGLE_DEVICES and not host.exists(f.path)]
    if not missing:
        return inventory
    from cdigen.host.containers import is_guest  # noqa: PLC0415 - only with missing nodes

    if not is_guest(host):
        return inventory
    findings = tuple(
        replace(f, severity="info", message=f"{f.message} in this container", hint="") if f in missing else f
        for f in inventory.findings
    )
    return replace(inventory, findings=findings)


def _without_excluded(
    inventories: dict[str, Inventory], failures: dict[str, HostError], context: DiscoveryContext
) -> tuple[dict[str, Inventory], dict[str, HostError]]:
    """Return INVENTORIES without the excluded devices, and FAILURES without the faults of excluded vendors.

    A row of the configuration that matches no device becomes a finding, unless a vendor of the row failed.
    """
    from cdigen.vendors import exclusion  # noqa: PLC0415 - few configurations exclude devices

    inventories, unused = exclusion.without_excluded(inventories, context.excluded, context.host)
    shown = {}
    for name, error in failures.items():
        row = exclusion.row_of_vendor(context.excluded, name)
        is_faulty = row is not None and error.kind not in ABSENT
        shown[name] = HostError(exclusion.exclusion_problem(row), kind=NO_GPU) if is_faulty and row else error
    faulty = {name for name, error in failures.items() if error.kind not in ABSENT}
    names = (*inventories, *failures)
    for row in unused:
        owners = [name for name in names if row.vendor in {"", name}]
        if inventories and owners and faulty.isdisjoint(owners):
            first = owners[0] if owners[0] in inventories else next(iter(inventories))
            found = (*inventories[first].findings, exclusion.unmatched(row, owners))
            inventories[first] = replace(inventories[first], findings=found)
    return inventories, shown


def _with_unused_devices(name: str, error: HostError, host: Root) -> HostError:
    """Return ERROR, with the kind ``no-usable-device`` if the vendor NAME has devices for its driver.

    The function ignores devices that are bound to another driver, such as vfio-pci.
    """
    if error.kind != NO_GPU:
        return error
    by_driver = _devices(name, host)
    if not by_driver.keys() & {"", *registry.load(name).MODULES}:
        return error
    unbound = by_driver.get("", [])
    is_named = not unbound or unbound[0] in error.message
    message = error.message if is_named else f"{error.message}; devices without a driver: {_listed(unbound)}"
    unusable = HostError(message, hint=error.hint, kind=UNUSABLE)
    unusable.driver = error.driver
    return unusable


def _with_unbound_devices(name: str, error: HostError, context: DiscoveryContext) -> HostError:
    """Return ERROR with the devices of the vendor NAME that are not bound to the vendor's driver.

    The caller uses this function only if no vendor has an inventory, because the function reads the PCI bus.
    On a large machine, this read takes most of the discovery time of a vendor without devices.
    """
    if error.kind != NOT_LOADED:
        return error
    unbound = [finding for finding in diagnostics(name, context, None) if finding.rule == UNBOUND]
    if not unbound:
        if "'modprobe " not in error.hint:
            return error
        by_driver = _devices(name, context.host)
        if by_driver and not by_driver.keys() & {"", *registry.load(name).MODULES}:
            return _held(name, error, by_driver)
        hint = _exclusion_hint(name, context.host) if by_driver else _LIST_DEVICES
        return HostError(error.message, hint=hint or error.hint, kind=error.kind)
    more = f" (and {len(unbound) - 1} more)" if len(unbound) > 1 else ""
    message = f"{error.message}: {unbound[0].message}{more}"
    hint = _exclusion_hint(name, context.host, strict=True) or unbound[0].hint or error.hint
    return HostError(message, hint=hint, kind=error.kind)


def _held(name: str, error: HostError, by_driver: dict[str, list[str]]) -> HostError:
    """Return ERROR with the other drivers that hold all devices of the vendor NAME."""
    bound = (
        f"{_listed(addresses)} is bound to the driver {driver}" for driver, addresses in by_driver.items()
    )
    hint = f"see 'cdigen doctor --vendor {name}', which names the setting and the next step"
    return HostError(f"{error.message}: {'; '.join(bound)}", hint=hint, kind=error.kind)


def _exclusion_hint(name: str, host: Root, *, strict: bool = False) -> str:
    """Return the next step if a setting excludes a module of the vendor NAME, else "".

    With STRICT, the setting must exclude a module for a device without a driver, also from ``modprobe``.
    """
    from cdigen.host.kernelmodules import module_exclusions  # noqa: PLC0415 - only after failures
    from cdigen.vendors.kernel.modules import fitting_modules  # noqa: PLC0415 - only after failures

    modules = registry.load(name).MODULES
    for module in fitting_modules(host, modules) if strict else modules:
        for found in module_exclusions(host, module):
            if found.is_strict or not strict:
                return found.remedy(module)
    return ""


def relevant_failures(
    inventories: dict[str, Inventory], failures: dict[str, HostError], host: Root
) -> dict[str, HostError]:
    """Return the FAILURES to report if the user named no vendor and cdigen tried all vendors.

    A host need not have GPUs of every vendor. A vendor is absent if its module is not loaded, or is loaded
    without a device. Absent vendors are reported only if no vendor has an inventory or a different failure.
    Then the result has the vendors with a device on the bus. Without such a vendor, the result has the
    vendors with a loaded module. Otherwise, the result has a single failure for all vendors.
    """
    absent = {name: error for name, error in failures.items() if error.kind in ABSENT}
    if inventories or len(absent) < len(failures):
        return {name: error for name, error in failures.items() if name not in absent}
    on_bus = {name: error for name, error in absent.items() if _devices(name, host)}
    idle = {name: error for name, error in absent.items() if error.kind == NO_GPU}
    if on_bus or idle or len(absent) < 2:
        return on_bus or idle or absent
    nothing = HostError(
        f"no GPU is on the PCI bus, and the drivers of {', '.join(absent)} are not loaded",
        hint=_LIST_DEVICES,
        kind=NOT_LOADED,
    )
    return {next(iter(absent)): nothing}


def with_missing_host(failures: Mapping[str, HostError]) -> dict[str, HostError]:
    """Return FAILURES; in a container, NO_HOST precedes messages that are due to the missing host."""
    from cdigen.host.containers import host_hint, uses_host_kernel  # noqa: PLC0415 - only after failures

    if not uses_host_kernel():
        return dict(failures)
    return {
        name: HostError(f"{NO_HOST}: {error.message}", hint=host_hint(), kind=error.kind)
        if error.kind in _LACKING_HOST
        else error
        for name, error in failures.items()
    }


def is_bare(inventories: dict[str, Inventory], failures: dict[str, HostError], host: Root) -> bool:
    """Return whether HOST has a readable /sys, but no GPU of the vendors in FAILURES."""
    if inventories or not host.exists(_ANY_SYSFS):
        return False
    return all(error.kind in ABSENT and not _devices(name, host) for name, error in failures.items())


def without_driver(names: Iterable[str], host: Root) -> tuple[Finding, ...]:
    """Return a warning for each vendor in NAMES whose devices have no driver, or a rival of the driver.

    NAMES are absent vendors on a host with devices of another vendor. ``relevant_failures`` does not report
    these vendors.
    """
    found = []
    for name in names:
        by_driver = _devices(name, host)
        known = registry.remedies(name)
        for driver in ("", *(known.rivals if known else ())):
            addresses = by_driver.get(driver, [])
            binding = f"bound to the driver {driver}" if driver else "bound to no driver"
            if addresses:
                found.append(
                    Finding(
                        severity="warning",
                        rule=UNBOUND,
                        path=name,
                        message=f"no container can use {_listed(addresses)} ({name}): {binding}",
                        hint=f"see 'cdigen doctor --vendor {name}', or ignore this if it is intended",
                    )
                )
    return tuple(found)


def _devices(name: str, host: Root) -> dict[str, list[str]]:
    """Return driver -> addresses of the PCI devices of the vendor NAME; the driver is "" if none is bound."""
    found: dict[str, list[str]] = {}
    for number in registry.load(name).PCI_VENDORS:
        for address, driver in sysfs.pci_devices(host, vendor=number, classes=sysfs.ACCELERATORS):
            found.setdefault(driver, []).append(address)
    return found


def _listed(addresses: list[str]) -> str:
    more = len(addresses) - _MAX_ADDRESSES
    return ", ".join(addresses[:_MAX_ADDRESSES]) + (f" and {more} more" if more > 0 else "")


def watches(
    names: tuple[str, ...], context: DiscoveryContext
) -> tuple[tuple[Watches, ...], dict[str, HostError]]:
    """Return the files and events that the daemon must watch for each vendor, and the vendors' failures."""
    found: list[Watches] = []
    failures: dict[str, HostError] = {}
    for name in names:
        try:
            found.append(registry.load(name).watches(context))
        except Exception as error:  # noqa: BLE001 - as in discover
            failures[name] = registry.vendor_defect(name, error)
    return tuple(found), failures


def diagnostics(name: str, context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
    """Return the problems that the vendor NAME finds on this host, or the failure of the vendor's code."""
    findings: list[Finding] = []
    with registry.reporting(name, findings):
        findings += registry.load(name).diagnostics(context, inventory)
    return tuple(findings)


def save_partition_names(
    inventories: Mapping[str, Inventory],
    failures: Mapping[str, HostError],
    context: DiscoveryContext,
    state_dir: str,
) -> Finding | None:
    """Store the names of GPU partitions for a later discovery without NVML.

    Return a finding if the names cannot be stored.
    """
    before = context.partition_names()
    absent = [name for name, error in failures.items() if error.kind in ABSENT]
    names = names_to_store(before, inventories, absent)
    if names == before:
        return None
    from cdigen.store.records.saved import PARTITION_NAMES  # noqa: PLC0415 - few hosts have partitions

    return PARTITION_NAMES.save(state_dir, context.host, names)
