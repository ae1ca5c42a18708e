"""Set devices to unusable that the configuration excludes (``devices: {exclude}``).

Each command and service discovers devices by ``pipeline.discovery``, which calls ``without_excluded``. So no
spec, label, resource or answer of cdigen contains an excluded device. The device stays in the inventory, so
that the indices of the other devices do not change, and each command can show the reason.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from cdigen.host.sysfs import pci_address
from cdigen.model.findings import Finding
from cdigen.value import replace
from cdigen.vendors.context import DeviceFilter
from cdigen.vendors.kernel.drm.displays import has_display

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeVar

    from cdigen.host.root import Root
    from cdigen.model.inventory import Accelerator, Group, HostNode, Inventory, Partition

    Device = TypeVar("Device", Accelerator, Partition)

# The rules of findings: on an excluded device, and on a row that matches no device.
EXCLUDED, UNMATCHED = "device-excluded", "exclusion-unmatched"
KEY = "devices: exclude"


def without_excluded(
    inventories: Mapping[str, Inventory], rows: tuple[DeviceFilter, ...], host: Root
) -> tuple[dict[str, Inventory], tuple[DeviceFilter, ...]]:
    """Return INVENTORIES with the devices that ROWS exclude as unusable, and the rows that match no device.

    Each inventory has a finding for each excluded device. If a row excludes a whole vendor, the vendor's
    inventory also loses its groups of other devices.
    """
    if not rows:
        return dict(inventories), ()
    used: set[DeviceFilter] = set()
    shown = {name: _without(name, one, rows, host, used) for name, one in inventories.items()}
    return shown, tuple(row for row in rows if row not in used)


def unmatched(row: DeviceFilter, vendors: Iterable[str]) -> Finding:
    """Return the finding that ROW matches no device of VENDORS on this host."""
    return Finding(
        severity="warning",
        rule=UNMATCHED,
        path=KEY,
        message=f"{KEY}: {row} matches no device of {', '.join(vendors)}",
        hint="compare the row with 'cdigen inspect', and correct or remove the row",
    )


def row_of_vendor(rows: Iterable[DeviceFilter], vendor: str) -> DeviceFilter | None:
    """Return the row of ROWS that excludes all devices of VENDOR, or None."""
    return next((row for row in rows if row == DeviceFilter(vendor=vendor)), None)


def exclusion_problem(row: DeviceFilter | str) -> str:
    """Return the reason why containers do not get a device that ROW excludes."""
    return f"excluded by the configuration (devices: {{exclude: [{row}]}})"


def _without(
    vendor: str,
    inventory: Inventory,
    rows: tuple[DeviceFilter, ...],
    host: Root,
    used: set[DeviceFilter],
) -> Inventory:
    accelerators = tuple(_marked(vendor, each, rows, host, used) for each in inventory.accelerators)
    whole = row_of_vendor(rows, vendor)
    if whole is not None:
        used.add(whole)
    if accelerators == inventory.accelerators and whole is None:
        return inventory
    groups = () if whole is not None else _groups_without(inventory.groups, accelerators)
    excluded = [each for each in accelerators if each.excluded]
    kept = (_as_information(finding, excluded) for finding in inventory.findings)
    findings = [finding for each in accelerators for finding in _findings(vendor, each)]
    if whole is not None and not excluded:
        findings.append(_finding(vendor, f"the devices of {vendor}", str(whole)))
    return replace(inventory, accelerators=accelerators, groups=groups, findings=(*kept, *findings))


def _marked(
    vendor: str, device: Accelerator, rows: tuple[DeviceFilter, ...], host: Root, used: set[DeviceFilter]
) -> Accelerator:
    """Return DEVICE, which is unusable if ROWS exclude it; add the matching rows to USED."""
    matching = [row for row in rows if _matches(row, vendor, device, host)]
    used.update(matching)
    of_device = str(matching[0]) if matching else ""
    parts = []
    for part in device.partitions:
        of_part = [row for row in rows if _matches_part(row, vendor, device, part, host)]
        used.update(of_part)
        row = of_device or (str(of_part[0]) if of_part else "")
        parts.append(_unusable(part, row) if row else part)
    marked = _unusable(device, of_device) if matching else device
    return replace(marked, partitions=tuple(parts)) if parts else marked


def _unusable(device: Device, row: str) -> Device:
    return replace(device, usable=False, problem=exclusion_problem(row), excluded=row)


def _matches(row: DeviceFilter, vendor: str, device: Accelerator, host: Root) -> bool:
    return (
        row.uuid.casefold() in {"", (device.uuid or "").casefold()}
        and (not row.address or _plain(row.address) == device.address)
        and _meets_others(row, vendor, device, host)
    )


def _matches_part(row: DeviceFilter, vendor: str, device: Accelerator, part: Partition, host: Root) -> bool:
    """Return whether ROW names PART of DEVICE by its UUID or address."""
    by_uuid = bool(row.uuid) and row.uuid.casefold() == (part.uuid or "").casefold()
    by_address = bool(row.address) and _plain(row.address) == part.address
    return (
        (by_uuid or by_address)
        and by_uuid == bool(row.uuid)
        and by_address == bool(row.address)
        and _meets_others(row, vendor, device, host)
    )


def _meets_others(row: DeviceFilter, vendor: str, device: Accelerator, host: Root) -> bool:
    """Return whether DEVICE meets the conditions of ROW except UUID and address."""
    return (
        row.vendor in {"", vendor}
        and row.index in {None, device.index}
        and (not row.model or fnmatchcase(device.model.casefold(), _glob(row.model)))
        and (not row.display or has_display(host, device.address))
    )


def _groups_without(groups: tuple[Group, ...], accelerators: Iterable[Accelerator]) -> tuple[Group, ...]:
    """Return GROUPS without the nodes that only excluded devices of ACCELERATORS have."""
    gone: set[str] = set()
    kept: set[str] = set()
    for device in accelerators:
        (gone if device.excluded else kept).update(_paths(device.nodes))
        for part in device.partitions:
            (gone if device.excluded or part.excluded else kept).update(_paths(part.nodes))
    gone -= kept
    found = []
    for group in groups:
        devices = [
            replace(each, nodes=tuple(node for node in each.nodes if node.host_path not in gone))
            for each in group.devices
        ]
        found.append(replace(group, devices=tuple(each for each in devices if each.nodes)))
    return tuple(group for group in found if group.devices)


def _paths(nodes: Iterable[HostNode]) -> set[str]:
    return {node.host_path for node in nodes}


def _as_information(finding: Finding, excluded: Iterable[Accelerator]) -> Finding:
    """Return FINDING. A problem of one of EXCLUDED affects no container, so it becomes an information."""
    is_about = any(
        device.address and (finding.path == device.address or f"({device.address})" in finding.message)
        for device in excluded
    )
    return replace(finding, severity="info") if is_about else finding


def _findings(vendor: str, device: Accelerator) -> Iterable[Finding]:
    label = f"{device.device_class.upper()} {device.index}"
    details = ", ".join(filter(None, (device.address, device.model)))
    label = f"{vendor}: {label} ({details})" if details else f"{vendor}: {label}"
    if device.excluded:
        yield _finding(device.address or label, label, device.excluded)
        return
    for part in device.partitions:
        if part.excluded:
            name = f"{label}, partition {part.uuid or part.instance or part.label}"
            yield _finding(device.address or label, name, part.excluded)


def _finding(path: str, label: str, row: str) -> Finding:
    return Finding(severity="info", rule=EXCLUDED, path=path, message=f"{label}: {exclusion_problem(row)}")


def _plain(address: str) -> str:
    full = address if address.count(":") == 2 else f"0000:{address}"
    return pci_address(full) or address.lower()


def _glob(pattern: str) -> str:
    """Return PATTERN for fnmatch, in which only ``*`` has a special meaning."""
    return pattern.casefold().replace("[", "[[]").replace("?", "[?]")
