"""What the kernel knows of any PCI device's health: ``look_at`` its files, ``heard`` its log, ``noticed``.

A vendor's ``look`` joins what ``look_at`` returns with its own, its ``heard`` and ``noticed`` likewise, and
its ``CAUSES`` has ``PCI_CAUSES``.

A device that sleeps is not read: reading its config space, and with it the width of its link, wakes it
(pci_config_pm_runtime_get in the kernel's drivers/pci/pci-sysfs.c). Reading ``power/runtime_status`` does
not. A link's speed is not looked at: idle devices lower it.
"""

from __future__ import annotations

import re

from cdigen.host.procfs import read_line, read_text
from cdigen.host.sysfs import PCI_DEVICES, pci_key
from cdigen.model.health import CauseRule, Look, Measurement, Recovery, Symptom
from cdigen.vendors.kernel.pci_link import changes_lanes, lanes, link_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.host.root import Root
    from cdigen.model.health import DeviceEvent, LogRecord
    from cdigen.model.inventory import Inventory

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
    ),
    CauseRule(
        cause="pci-off-bus",
        cleared_by=("gone",),
        clears_when="the config space can be read again",
        meaning="The device does not answer on the PCI bus: its config space reads as ones.",
        reference=_RECOVERY,
    ),
    CauseRule(
        cause="pci-fatal-error",
        # The kernel resets the link and says whether that helped; that it did not is a cause of its own.
        cleared_by=("quiet", "reset", "reload"),
        clears_when="the kernel resets the link, none comes for a while, or the driver is loaded anew",
        meaning="A fatal PCIe error: the link of the device is no longer reliable.",
        reference=_AER,
    ),
    CauseRule(
        cause="pci-nonfatal-error",
        cleared_by=("quiet", "reset", "reload"),
        clears_when="no further one comes for a while, the device is reset, or its driver is loaded anew",
        meaning="An uncorrectable PCIe error that is not fatal: a transaction of the device was lost.",
        reference=_AER,
    ),
    CauseRule(
        cause="pci-recovery-failed",
        cleared_by=("reset", "reload"),
        clears_when="the device or its link is reset, or its driver is loaded anew",
        meaning="The kernel could not recover the device from a PCIe error.",
        reference=_RECOVERY,
    ),
    CauseRule(
        cause="pci-link-narrow",
        cleared_by=("gone",),
        clears_when="the link has as many lanes as earlier in this boot",
        meaning="The PCIe link of the device has fewer lanes than earlier in this boot.",
        reference=_ABI,
    ),
)

# A type 0 header. A virtual function answers ones for its vendor and device alone (SR-IOV, 3.4.1).
_HEADER = 64
_COUNTERS = (
    ("pci-fatal-error", "aer_dev_fatal", "TOTAL_ERR_FATAL", "fatal PCIe errors"),
    ("pci-nonfatal-error", "aer_dev_nonfatal", "TOTAL_ERR_NONFATAL", "non-fatal PCIe errors"),
)


def look_at(host: Root, addresses: Iterable[str]) -> Look:
    """Read what sysfs tells of the PCI devices at ADDRESSES; those that sleep are not ``covered``.

    Others that are no PCI addresses are passed over, and all where HOST shows no PCI bus. Never raises.
    """
    covered: list[str] = []
    symptoms: list[Symptom] = []
    measurements: list[Measurement] = []
    on_bus = set(host.names(PCI_DEVICES))
    # Two devices of an inventory may be parts of one.
    for address in dict.fromkeys(addresses) if on_bus else ():
        if pci_key(address) is None:
            continue
        folder = f"{PCI_DEVICES}/{address}"
        if address not in on_bus:
            covered.append(address)
            symptoms.append(
                Symptom(cause="pci-gone", address=address, detail=f"{folder} is not there any more")
            )
        elif not sleeps(host, address):
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
    return Look(
        source="files",
        covered=tuple(covered),
        symptoms=tuple(symptoms),
        measurements=tuple(measurements),
    )


def sleeps(host: Root, address: str) -> bool:
    """Return whether the PCI device at ADDRESS is suspended, or about to be, so that reading may wake it."""
    status = read_line(host, f"{PCI_DEVICES}/{address}/power/runtime_status")
    return status.startswith("suspend")


def heard(record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
    """Return what RECORD, if it is of the kernel's PCIe error handling, means for INVENTORY's devices; pure.

    A line of a port is for every device below it; one of a non-fatal error only for those on its own link,
    as it does not tell which of those further down lost a transaction.
    """
    found = _LINE.match(record.text)
    return () if found is None else tuple(_meaning(found, record, inventory))


def noticed(event: DeviceEvent) -> tuple[Symptom | Recovery, ...]:
    """Return what EVENT, if it is of the PCI bus, means for the device that it is about; pure.

    That was unbound before, so that discovery has not found it yet. A driver of VFIO mends nothing.
    """
    is_bound = (event.subsystem, event.action) == ("pci", "bind")
    if not is_bound or event.is_synthetic or "vfio" in dict(event.properties).get("DRIVER", ""):
        return ()
    detail = "a driver was bound to the device"
    return (Recovery(clearance="reload", address=event.address, detail=detail, at_s=event.at_s),)


_LINE = re.compile(
    r"\S+ (?P<address>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?:AER: )?(?P<text>"
    # drivers/pci/pcie/aer.c: "Uncorrected" became "Uncorrectable" in 2024.
    r"PCIe Bus Error: severity=Uncorrect(?:ed|able) \((?P<severity>Fatal|Non-Fatal)\).*"
    # drivers/pci/pcie/dpc.c: the port has cut its link off after such an error.
    r"|(?P<contained>DPC: containment event.*)"
    # drivers/pci/pcie/err.c: "Device" became "device" in 2020.
    r"|(?P<failed>[Dd]evice recovery failed)"
    # aer_root_reset; since 2020 with the result in brackets, which is an error's number where it failed.
    r"|(?P<reset>(?:Root|Downstream) Port link has been reset(?: \(0\))?))$"
)
# None: the port has cut the link off.
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
    # Errors of a link may be counted by the port at its other end alone (sysfs-bus-pci-devices-aer_stats).
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
    """Return the number behind LABEL, the last line of a file of AER counters, or None."""
    try:
        lines = read_text(host, path).splitlines()
    except OSError:
        return None
    return next((_number(line.removeprefix(label)) for line in lines if line.startswith(label)), None)


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None
