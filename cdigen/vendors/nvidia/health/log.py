"""What lines of the kernel's log mean for NVIDIA's GPUs: ``heard``.

Forms of lines: the driver's sources (open-gpu-kernel-modules: src/nvidia/src/kernel/gpu/rc/kernel_rc.c,
kernel-open/nvidia/nv.c), and lines of drivers 470 to 595 as people have published them. In the line of an Xid
the name of a process comes from whoever runs it and may look like anything, also like a line: only what
stands before it is believed, and of an Xid 154, in which the driver's own words come last, the end.
"""

from __future__ import annotations

import re

from cdigen.host.sysfs import pci_address
from cdigen.model.health import Recovery, Symptom
from cdigen.vendors.kernel import pci_health
from cdigen.vendors.nvidia.health.xids import BY_NUMBER, DRIVER_INIT, NVSWITCH, UNKNOWN, UVM, harms_gpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.model.health import LogRecord
    from cdigen.model.inventory import Accelerator, Inventory

    Told = Symptom | Recovery

MAX_DETAIL = 200

_ADDRESS = r"(?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?"
# GPU-I and GPU-CI, the MIG instances, are decimal.
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?{_ADDRESS}(?: GPU-I:(?P<instance>\d{{1,4}}))?(?: [^()]{{1,64}})?\): "
    r"(?P<number>\d{1,5})(?:, (?P<text>.*))?",
    re.ASCII | re.DOTALL,
)
_ACTION = re.compile(
    r"(?:.*, )?GPU recovery action changed from 0x(?P<old>[0-9A-Fa-f]{1,4}) \([^()]*\) "
    r"to 0x(?P<new>[0-9A-Fa-f]{1,4}) \((?P<wanted>[^()]*)\)\s*",
    re.ASCII | re.DOTALL,
)
# Errors of NVLink 5 that the driver calls so need nothing, or what an Xid 154 says (the catalog, 144 to 150).
_NVLINK_5 = range(144, 151)
_NONFATAL = re.compile(
    r"(?:pid='<unknown>', name=<unknown>, )?[A-Z0-9_/]{1,40} +Nonfatal .*", re.ASCII | re.DOTALL
)
_SXID = re.compile(r"nvidia-nvswitch\d+: SXid \(PCI:[0-9A-Fa-f:.]+\): \d+, Fatal, .*", re.ASCII | re.DOTALL)
_OFF_BUS = re.compile(
    rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}:? (?:GPU )?has fallen off the bus.*"
    # Written when the driver first meets it, over several lines.
    rf"|NVRM: The NVIDIA GPU {_ADDRESS.replace('<address>', '<met>')}.{{,120}}fallen off the bus .*",
    re.ASCII | re.DOTALL,
)
_INIT = re.compile(
    rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}: (?:RmInitAdapter|rm_init_adapter) failed.*"
    # The PCI bus of the kernel, with the words of before and after 6.8.
    rf"|nvidia: probe of {_ADDRESS.replace('<address>', '<before>')} failed with error .*"
    rf"|nvidia {_ADDRESS.replace('<address>', '<after>')}: probe with driver nvidia failed with error .*",
    re.ASCII | re.DOTALL,
)
_INIT_BY_MINOR = re.compile(
    r"NVRM: rm_init_adapter failed(?:,| for) device (?:bearing )?minor number (?P<minor>\d{1,7}).*",
    re.ASCII | re.DOTALL,
)
_UVM = re.compile(
    r"NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error .*", re.ASCII | re.DOTALL
)
_LOADING = re.compile(r"NVRM: loading NVIDIA UNIX .*", re.ASCII | re.DOTALL)
_FALLEN = BY_NUMBER[79]

# nvmlDeviceGpuRecoveryAction_t: none, and those that end with a reset of the GPU (reset, drain and reset, bus
# reset). From these to none the way leads over the reset.
_NOTHING = 0
_RESETS = (1, 4, 6)


def heard(record: LogRecord, inventory: Inventory) -> tuple[Told, ...]:
    """Return what RECORD means for the GPUs of INVENTORY; pure."""
    for form, meaning in _FORMS:
        found = form.fullmatch(record.text)
        if found:
            return tuple(meaning(found, record, inventory))
    return pci_health.heard(record, inventory)


def _xid(found: re.Match[str], record: LogRecord, inventory: Inventory) -> Iterator[Told]:
    number = int(found["number"])
    address = _address(found["address"], inventory)
    xid = BY_NUMBER.get(number)
    if number == 154:
        yield from _action(address, found["text"] or "", record)
    elif number in _NVLINK_5 and _NONFATAL.fullmatch(found["text"] or ""):
        return
    elif xid is None or harms_gpu(xid):
        detail = f"Xid {number}: {found['text'] or (xid.meaning if xid else '')}"
        is_whole = xid is not None and xid.whole
        yield Symptom(
            cause=xid.cause if xid else UNKNOWN,
            address=address,
            detail=_shown(detail),
            instance="" if is_whole or not found["instance"] else f"gi{int(found['instance'])}",
            at_s=record.at_s,
        )


def _action(address: str, text: str, record: LogRecord) -> Iterator[Told]:
    """Yield what an Xid 154 means; one of other words, too, says that something has to be done."""
    found = _ACTION.fullmatch(text)
    cause = BY_NUMBER[154].cause
    if found is None or int(found["new"], 16) != _NOTHING:
        detail = f"Xid 154: {found['wanted'] if found else text}"
        yield Symptom(cause=cause, address=address, detail=_shown(detail), at_s=record.at_s)
        return
    detail = "Xid 154: nothing has to be done for the GPU any more"
    if int(found["old"], 16) in _RESETS:
        yield Recovery(clearance="reset", address=address, detail=detail, at_s=record.at_s)
    yield Recovery(clearance="recovered", address=address, detail=detail, at_s=record.at_s)


def _off_bus(found: re.Match[str], record: LogRecord, inventory: Inventory) -> Iterable[Told]:
    address = _address(found["address"] or found["met"], inventory)
    return (Symptom(cause=_FALLEN.cause, address=address, detail=_shown(record.text), at_s=record.at_s),)


def _init(found: re.Match[str], record: LogRecord, inventory: Inventory) -> Iterable[Told]:
    address = _address(found["address"] or found["before"] or found["after"], inventory)
    return (Symptom(cause=DRIVER_INIT, address=address, detail=_shown(record.text), at_s=record.at_s),)


def _init_by_minor(found: re.Match[str], record: LogRecord, inventory: Inventory) -> Iterable[Told]:
    minor = int(found["minor"])
    return (
        Symptom(cause=DRIVER_INIT, address=gpu.address, detail=_shown(record.text), at_s=record.at_s)
        for gpu in inventory.accelerators
        if gpu.minor == minor
    )


def _nvswitch(_: re.Match[str], record: LogRecord, inventory: Inventory) -> Iterable[Told]:
    """Return the symptom for all that a switch may join: a line does not tell which GPU a link leads to."""
    joined = [gpu for gpu in inventory.accelerators if gpu.island] or inventory.accelerators
    return _of_each(NVSWITCH, joined, record)


def _uvm(_: re.Match[str], record: LogRecord, inventory: Inventory) -> Iterable[Told]:
    return _of_each(UVM, inventory.accelerators, record)


def _of_each(cause: str, gpus: Iterable[Accelerator], record: LogRecord) -> Iterable[Told]:
    return (
        Symptom(cause=cause, address=gpu.address, detail=_shown(record.text), at_s=record.at_s)
        for gpu in gpus
    )


def _loading(_: re.Match[str], record: LogRecord, __: Inventory) -> Iterable[Told]:
    return (Recovery(clearance="reload", address="", detail=_shown(record.text), at_s=record.at_s),)


_FORMS = (
    (_XID, _xid),
    (_SXID, _nvswitch),
    (_OFF_BUS, _off_bus),
    (_INIT, _init),
    (_INIT_BY_MINOR, _init_by_minor),
    (_UVM, _uvm),
    (_LOADING, _loading),
)


def _address(written: str, inventory: Inventory) -> str:
    """Return the address in the log as sysfs spells it; the driver leaves out the function."""
    slot = (pci_address(f"{written}.0") or "")[:-1]
    known: Iterator[Accelerator] = (gpu for gpu in inventory.accelerators if gpu.address.startswith(slot))
    return next((gpu.address for gpu in known), f"{slot}0")


def _shown(text: str) -> str:
    return "".join(mark if mark.isprintable() else "?" for mark in text)[:MAX_DETAIL]
