"""Records of the kernel's log, one a read as from /dev/kmsg: a FIFO in packet mode in its place."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from support.abilities import cannot_run

XID = (
    "NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:17:00): 13, pid=2047, name=python3, Graphics Exception: ESR 0x505648=0x1000e",
)
# What users write into /dev/kmsg; the kernel gives it another facility than the one that is asked for.
FORGED = "<3>NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen off the bus."
# A process that the kernel itself writes a line about, which begins with the name that it has given itself
# (prctl(2): PR_SET_NAME, at most 15 characters, and PR_SET_DUMPABLE): "NVRM: cdigen[812]: segfault at 0
# ...".
FAULT = (
    "import ctypes, sys; prctl = ctypes.CDLL(None).prctl; prctl(4, 0, 0, 0, 0); "
    "prctl(15, sys.argv[1].encode(), 0, 0, 0); ctypes.string_at(0)"
)
AMDGPU = "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!"


def record(text: str, sequence: int, *, level: int = 4, stamp_us: int = 1_000_000, flag: str = "-") -> bytes:
    """Return a record as the kernel writes it; of a facility other than its own with a LEVEL above 7."""
    return f"{level},{sequence},{stamp_us},{flag};{text}\n".encode()


def recent(text: str, sequence: int, *, age_s: float = 0.0) -> bytes:
    """Return a record of AGE_S ago."""
    return record(text, sequence, stamp_us=int((time.monotonic() - age_s) * 1e6))


def xid(number: int, sequence: int, address: str, *, age_s: float = 0.0) -> bytes:
    """Return the record of an Xid of the GPU at ADDRESS."""
    text = f"NVRM: Xid (PCI:{address[:-2]}): {number}, pid='<unknown>', name=<unknown>, it is broken."
    return recent(text, sequence, age_s=age_s)


class FakeLog:
    """A FIFO at PATH that gives one record a read, as pipe2(2) has it for O_DIRECT."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        # For reading as well: it has no end before ``close``, and opening does not wait for anybody.
        self._end = os.open(path, os.O_RDWR)
        fcntl.fcntl(self._end, fcntl.F_SETFL, os.O_DIRECT)
        # Room for 256 records, a page each: the kernel's smallest log has more.
        fcntl.fcntl(self._end, fcntl.F_SETPIPE_SZ, 1 << 20)

    def write(self, *records: bytes) -> None:
        """Write RECORDS; waits while there is no room."""
        for each in records:
            os.write(self._end, each)

    def close(self) -> None:
        """End the log; more than once is once."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1


def written_by_the_kernel(name: str) -> str:
    """Let the kernel of this machine write a line that begins with NAME, and return its beginning."""
    try:
        traced = Path("/proc/sys/debug/exception-trace").read_text().strip()
    except OSError as error:
        cannot_run(f"this kernel writes no lines about processes that fail ({error})")
    if traced == "0":
        cannot_run("this kernel is told to write no lines about processes that fail (debug.exception-trace)")
    process = subprocess.Popen([sys.executable, "-ISBc", FAULT, name], stderr=subprocess.DEVNULL)
    process.wait()
    return f"{name}[{process.pid}]: segfault at 0 "


def forge(text: str = FORGED) -> None:
    """Write TEXT into this machine's log, as a program does; only root may."""
    # Unbuffered: a record for each write.
    with open("/dev/kmsg", "wb", buffering=0) as log:
        log.write(text.encode())
