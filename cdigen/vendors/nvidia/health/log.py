"""Parse lines of the kernel's log about NVIDIA's GPUs (``parse_log``).

The formats of the lines are from the driver's sources (open-gpu-kernel-modules:
src/nvidia/src/kernel/gpu/rc/kernel_rc.c, kernel-open/nvidia/nv.c) and from published lines of drivers 470 to
595.

The line of an Xid contains the name of a process. Any user can choose this name, so that the name may have
the format of another line. Therefore, cdigen reads the number of the Xid and the GPU's address from the text
before the name. For an Xid 154, cdigen also reads the end of the line, because this text is from the driver.
"""

from __future__ import annotations

import re
from functools import partial

from cdigen.host.sysfs import pci_address
from cdigen.model.health import Recovery, Symptom
from cdigen.vendors.kernel.pci import health as pci_health
from cdigen.vendors.nvidia.health.xids import BY_NUMBER, DRIVER_INIT, NVSWITCH, UNKNOWN, UVM, harms_gpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.model.health import LogRecord
    from cdigen.model.inventory import Accelerator, Inventory

    LogResult = Symptom | Recovery

MAX_DETAIL = 200

_ADDRESS = r"(?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?"
# The ids of the MIG instances, GPU-I and GPU-CI, are decimal.
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?{_ADDRESS}(?: GPU-I:(?P<instance>\d{{1,4}}))?(?: [^()]{{1,64}})?\): "
    r"(?P<number>\d{1,5})(?:, (?P<text>.*))?",
    re.ASCII | re.DOTALL,
)
_ACTION = re.compile(
    r"(?:.*, )?GPU recovery action changed from 0x(?P<old>[0-9A-Fa-f]{1,4}) \([^()]*\) "
    r"to 0x(?P<new>[0-9A-Fa-f]{1,4}) \((?P<action>[^()]*)\)\s*",
    re.ASCII | re.DOTALL,
)
# NVLink 5 errors with the word Nonfatal need no action by themselves. If an action is necessary, an Xid 154
# follows (NVIDIA's catalog, 144 to 150).
_NVLINK_5 = range(144, 151)
_NONFATAL = re.compile(
    r"(?:pid='<unknown>', name=<unknown>, )?[A-Z0-9_/]{1,40} +Nonfatal .*", re.ASCII | re.DOTALL
)
_SXID = re.compile(r"nvidia-nvswitch\d+: SXid \(PCI:[0-9A-Fa-f:.]+\): \d+, Fatal, .*", re.ASCII | re.DOTALL)
_OFF_BUS = re.compile(
    rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}:? (?:GPU )?has fallen off the bus.*"
    # When the driver finds a GPU for the first time, it logs the next text in several lines.
    rf"|NVRM: The NVIDIA GPU {_ADDRESS.replace('<address>', '<met>')}.{{,120}}fallen off the bus .*",
    re.ASCII | re.DOTALL,
)
_INIT = re.compile(
    rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}: (?:RmInitAdapter|rm_init_adapter) failed.*"
    # The kernel's PCI code logs the next two lines: the first before Linux 6.8, the second since 6.8.
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

# Values of nvmlDeviceGpuRecoveryAction_t: no action, and the actions that end with a reset of the GPU (reset,
# drain and reset, bus reset). A change from a reset action to no action means that the GPU was reset.
_NOTHING = 0
_RESETS = (1, 4, 6)


def parse_log(record: LogRecord, inventory: Inventory) -> tuple[LogResult, ...]:
    """Return the symptoms and recoveries in RECORD for the GPUs of INVENTORY; do not read the host."""
    for pattern, meaning in _PATTERNS:
        found = pattern.fullmatch(record.text)
        if found:
            return tuple(meaning(found, record, inventory))
    return pci_health.parse_log(record, inventory)


def _xid(found: re.Match[str], record: LogRecord, inventory: Inventory) -> Iterator[LogResult]:
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


def _action(address: str, text: str, record: LogRecord) -> Iterator[LogResult]:
    """Yield the symptom or the recoveries of an Xid 154 with TEXT.

    If TEXT has an unknown format, the result is a symptom.
    """
    found = _ACTION.fullmatch(text)
    cause = BY_NUMBER[154].cause
    if found is None or int(found["new"], 16) != _NOTHING:
        detail = f"Xid 154: {found['action'] if found else text}"
        yield Symptom(cause=cause, address=address, detail=_shown(detail), at_s=record.at_s)
        return
    detail = "Xid 154: the GPU requires no recovery action any more"
    if int(found["old"], 16) in _RESETS:
        yield Recovery(clearance="reset", address=address, detail=detail, at_s=record.at_s)
    yield Recovery(clearance="recovered", address=address, detail=detail, at_s=record.at_s)


def _of_address(
    cause: str, found: re.Match[str], record: LogRecord, inventory: Inventory
) -> Iterable[LogResult]:
    """Return a symptom with CAUSE for the GPU whose address is the only group in FOUND with a text."""
    address = _address(next(filter(None, found.groups())), inventory)
    return (Symptom(cause=cause, address=address, detail=_shown(record.text), at_s=record.at_s),)


def _init_by_minor(found: re.Match[str], record: LogRecord, inventory: Inventory) -> Iterable[LogResult]:
    minor = int(found["minor"])
    return _of_each(DRIVER_INIT, (gpu for gpu in inventory.accelerators if gpu.minor == minor), record)


def _nvswitch(_: re.Match[str], record: LogRecord, inventory: Inventory) -> Iterable[LogResult]:
    """Return a symptom for each GPU that the switch may connect. The line does not identify a GPU."""
    joined = [gpu for gpu in inventory.accelerators if gpu.island] or inventory.accelerators
    return _of_each(NVSWITCH, joined, record)


def _uvm(_: re.Match[str], record: LogRecord, inventory: Inventory) -> Iterable[LogResult]:
    return _of_each(UVM, inventory.accelerators, record)


def _of_each(cause: str, gpus: Iterable[Accelerator], record: LogRecord) -> Iterable[LogResult]:
    return (
        Symptom(cause=cause, address=gpu.address, detail=_shown(record.text), at_s=record.at_s)
        for gpu in gpus
    )


def _loading(_: re.Match[str], record: LogRecord, __: Inventory) -> Iterable[LogResult]:
    return (Recovery(clearance="reload", address="", detail=_shown(record.text), at_s=record.at_s),)


_PATTERNS = (
    (_XID, _xid),
    (_SXID, _nvswitch),
    (_OFF_BUS, partial(_of_address, BY_NUMBER[79].cause)),
    (_INIT, partial(_of_address, DRIVER_INIT)),
    (_INIT_BY_MINOR, _init_by_minor),
    (_UVM, _uvm),
    (_LOADING, _loading),
)


def _address(written: str, inventory: Inventory) -> str:
    """Return WRITTEN, a PCI address in the log, in the format of sysfs.

    In the log, the address has no function number. The result has the function number of INVENTORY's GPU at
    this address, or 0.
    """
    slot = (pci_address(f"{written}.0") or "")[:-1]
    known: Iterator[Accelerator] = (gpu for gpu in inventory.accelerators if gpu.address.startswith(slot))
    return next((gpu.address for gpu in known), f"{slot}0")


def _shown(text: str) -> str:
    return "".join(mark if mark.isprintable() else "?" for mark in text)[:MAX_DETAIL]
