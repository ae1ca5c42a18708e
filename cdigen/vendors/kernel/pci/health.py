"""Read the health of PCI devices of any vendor.

``check`` reads files in sysfs. ``parse_log`` reads the kernel's log. ``parse_uevents`` reads uevents. The
health functions of a vendor include the results of these functions, and its causes include ``PCI_CAUSES``.

``check`` does not read the config space or the link width of suspended devices, because the read
resumes the device (pci_config_pm_runtime_get in the kernel's drivers/pci/pci-sysfs.c). A read of
``power/runtime_status`` does not resume the device. cdigen does not check the speed of a link, because idle
devices reduce the speed.
"""

from __future__ import annotations

import re

from cdigen.host.procfs import read_line, read_text
from cdigen.host.sysfs import PCI_DEVICES, pci_key
from cdigen.model.health import CauseRule, HealthSample, Measurement, Recovery, Symptom
from cdigen.vendors.kernel.pci.place import changes_lanes, lanes, link_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.host.root import Root
    from cdigen.model.health import DeviceEvent, LogRecord
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext

_RECOVERY = "https://docs.kernel.org/PCI/pci-error-recovery.html"
_AER = "https://docs.kernel.org/PCI/pcieaer-howto.html"
_ABI = "the kernel's Documentation/ABI/testing/sysfs-bus-pci"
PCI_CAUSES = (
    CauseRule(
        cause="pci-gone",
        cleared_by=("gone",),
        clears_when="the kernel lists the device on the PCI bus again",
        meaning="The kernel has removed the device from the PCI bus.",
        reference=_ABI,
        next_step="rescan the bus: 'echo 1 >/sys/bus/pci/rescan'; else reseat the card, and reboot the host",
    ),
    CauseRule(
        cause="pci-off-bus",
        cleared_by=("gone",),
        clears_when="the config space can be read again",
        meaning="The device does not answer on the PCI bus: its config space reads as ones.",
        reference=_RECOVERY,
        next_step="reboot the host; if the device stays away, reseat or replace it",
    ),
    CauseRule(
        cause="pci-fatal-error",
        # The kernel resets the link and logs the result. A failed reset has the cause pci-recovery-failed.
        cleared_by=("clear_after", "reset", "reload"),
        clears_when="the kernel resets the link, no error follows for a while, or the driver is loaded again",
        meaning="A fatal PCIe error: the link of the device is no longer reliable.",
        reference=_AER,
    ),
    CauseRule(
        cause="pci-nonfatal-error",
        cleared_by=("clear_after", "reset", "reload"),
        clears_when="no error follows for a while, the device is reset, or its driver is loaded again",
        meaning="An uncorrectable PCIe error that is not fatal: a transaction of the device was lost.",
        reference=_AER,
    ),
    CauseRule(
        cause="pci-recovery-failed",
        cleared_by=("reset", "reload"),
        clears_when="the device or its link is reset, or its driver is loaded again",
        meaning="The kernel could not recover the device from a PCIe error.",
        reference=_RECOVERY,
    ),
    CauseRule(
        cause="pci-link-narrow",
        cleared_by=("gone",),
        clears_when="the link has as many lanes as earlier in this boot",
        meaning="The PCIe link of the device has fewer lanes than earlier in this boot.",
        reference=_ABI,
        next_step="reboot the host; if the link stays narrow, reseat the card or its riser",
    ),
)

# The bytes of a type 0 header. In the header of a virtual function, only the vendor and device fields read as
# ones (SR-IOV, 3.4.1).
_HEADER = 64
_COUNTERS = (
    ("pci-fatal-error", "aer_dev_fatal", "TOTAL_ERR_FATAL", "fatal PCIe errors"),
    ("pci-nonfatal-error", "aer_dev_nonfatal", "TOTAL_ERR_NONFATAL", "non-fatal PCIe errors"),
)


def check(context: DiscoveryContext, inventory: Inventory) -> HealthSample:
    """Return the health of the PCI devices in INVENTORY; raise no exception.

    Suspended devices are not in ``covered``. The function ignores addresses that are not PCI addresses. If
    the host has no PCI bus, the function ignores all addresses.
    """
    host, addresses = context.host, [device.address for device in inventory.accelerators]
    covered: list[str] = []
    symptoms: list[Symptom] = []
    measurements: list[Measurement] = []
    on_bus = set(host.names(PCI_DEVICES))
    # Two devices of an inventory may be parts of one PCI device.
    for address in dict.fromkeys(addresses) if on_bus else ():
        if pci_key(address) is None:
            continue
        folder = f"{PCI_DEVICES}/{address}"
        if address not in on_bus:
            covered.append(address)
            symptoms.append(Symptom(cause="pci-gone", address=address, detail=f"{folder} no longer exists"))
        elif not is_suspended(host, address):
            header = _header(host, folder)
            if header is None:
                continue
            covered.append(address)
            if _is_ones(header):
                detail = f"{folder}/config reads as ones"
                symptoms.append(Symptom(cause="pci-off-bus", address=address, detail=detail))
            else:
                measurements += _measured(host, address)
                measurements += _lanes(host, address)
    return HealthSample(
        source="files", covered=tuple(covered), symptoms=tuple(symptoms), measurements=tuple(measurements)
    )


def is_suspended(host: Root, address: str) -> bool:
    """Return whether the PCI device at ADDRESS is suspended or is being suspended."""
    status = read_line(host, f"{PCI_DEVICES}/{address}/power/runtime_status")
    return status.startswith("suspend")


def parse_log(record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
    """Return the symptoms and recoveries of INVENTORY's devices in RECORD, a record of PCIe error handling.

    The function does not read the host. A line about a port applies to every device below the port. The line
    about a non-fatal error of a port does not contain the device that lost a transaction. Such an error
    applies only to the devices at the other end of the port's link.
    """
    found = _LINE.match(record.text)
    return () if found is None else tuple(_meaning(found, record, inventory))


def parse_uevents(event: DeviceEvent, _: Inventory) -> tuple[Symptom | Recovery, ...]:
    """Return a recovery if EVENT reports that a driver was bound to a PCI device; do not read the host.

    The device may not be in an inventory yet, because the device had no driver before the event. The binding
    of a VFIO driver is not a recovery.
    """
    is_bound = (event.subsystem, event.action) == ("pci", "bind")
    if not is_bound or event.is_synthetic or "vfio" in dict(event.properties).get("DRIVER", ""):
        return ()
    detail = "a driver was bound to the device"
    return (Recovery(clearance="reload", address=event.address, detail=detail, at_s=event.at_s),)


_LINE = re.compile(
    r"\S+ (?P<address>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?:AER: )?(?P<text>"
    # drivers/pci/pcie/aer.c. Since 2024, the text is "Uncorrectable".
    r"PCIe Bus Error: severity=Uncorrect(?:ed|able) \((?P<severity>Fatal|Non-Fatal)\).*"
    # drivers/pci/pcie/dpc.c. The port has disabled its link after a fatal error.
    r"|(?P<contained>DPC: containment event.*)"
    # drivers/pci/pcie/err.c. Since 2020, the text is "device".
    r"|(?P<failed>[Dd]evice recovery failed)"
    # aer_root_reset. Since 2020, the line has the result in brackets. 0 is success, other numbers are errors.
    r"|(?P<reset>(?:Root|Downstream) Port link has been reset(?: \(0\))?))$"
)
# Severity in the line -> cause. None means that the port has disabled the link.
_CAUSE_OF = {None: "pci-fatal-error", "Fatal": "pci-fatal-error", "Non-Fatal": "pci-nonfatal-error"}


def _meaning(found: re.Match[str], record: LogRecord, inventory: Inventory) -> Iterable[Symptom | Recovery]:
    is_of_link = found["severity"] == "Non-Fatal"
    for address in _concerned(found["address"], inventory, is_of_link=is_of_link):
        if found["reset"]:
            yield Recovery(clearance="reset", address=address, detail=record.text, at_s=record.at_s)
        else:
            cause = "pci-recovery-failed" if found["failed"] else _CAUSE_OF[found["severity"]]
            yield Symptom(cause=cause, address=address, detail=record.text, at_s=record.at_s)


def _concerned(address: str, inventory: Inventory, *, is_of_link: bool) -> list[str]:
    concerned = (
        device.address
        for device in inventory.accelerators
        if address == device.address or address in (device.pci_path[-1:] if is_of_link else device.pci_path)
    )
    return list(dict.fromkeys(concerned))


def _header(host: Root, folder: str) -> bytes | None:
    try:
        with host.open(f"{folder}/config") as file:
            return file.read_at(0, _HEADER)
    except OSError:
        return None


def _is_ones(header: bytes) -> bool:
    return len(header) == _HEADER and not header.strip(b"\xff")


def _measured(host: Root, address: str) -> Iterable[Measurement]:
    folder = f"{PCI_DEVICES}/{address}"
    for cause, file, total, what in _COUNTERS:
        value = _total(host, f"{folder}/{file}", total)
        if value is not None:
            yield Measurement(cause=cause, address=address, what=what, value=value, worse="higher")
    link = link_folder(host, folder)
    # For some devices, only the port at the other end of the link has counters
    # (sysfs-bus-pci-devices-aer_stats).
    fatal = _total(host, f"{link.rpartition('/')[0]}/aer_dev_fatal", "TOTAL_ERR_FATAL")
    if fatal is not None:
        what = "fatal PCIe errors of its port"
        yield Measurement(cause="pci-fatal-error", address=address, what=what, value=fatal, worse="higher")


def _lanes(host: Root, address: str) -> Iterable[Measurement]:
    link = link_folder(host, f"{PCI_DEVICES}/{address}")
    now = 0 if changes_lanes(host, link) else lanes(host, link)
    if now:
        yield Measurement(
            cause="pci-link-narrow", address=address, what="PCIe lanes", value=now, worse="lower"
        )


def _total(host: Root, path: str, label: str) -> int | None:
    """Return the number after LABEL in the file PATH of AER counters, or None if there is no number."""
    try:
        lines = read_text(host, path).splitlines()
    except OSError:
        return None
    return next((_number(line.removeprefix(label)) for line in lines if line.startswith(label)), None)


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None
