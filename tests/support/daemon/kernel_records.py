"""Records of the kernel log, and a FIFO that returns one record per read, as /dev/kmsg does (`FakeLog`)."""

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
# A record that a user writes to /dev/kmsg. The kernel changes its facility.
FORGED = "<3>NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen off the bus."
# A script that crashes. The kernel writes a line such as "NVRM: cdigen[812]: segfault at 0 ...", which begins
# with the name that the script sets (prctl(2): PR_SET_NAME, at most 15 characters, and PR_SET_DUMPABLE).
FAULT = (
    "import ctypes, sys; prctl = ctypes.CDLL(None).prctl; prctl(4, 0, 0, 0, 0); "
    "prctl(15, sys.argv[1].encode(), 0, 0, 0); ctypes.string_at(0)"
)
AMDGPU = "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!"


def record(text: str, sequence: int, *, level: int = 4, stamp_us: int = 1_000_000, flag: str = "-") -> bytes:
    """Return a record in the kernel's format; with a LEVEL above 7, its facility is not the kernel's."""
    return f"{level},{sequence},{stamp_us},{flag};{text}\n".encode()


def recent(text: str, sequence: int, *, age_s: float = 0.0) -> bytes:
    """Return a record that is AGE_S old."""
    return record(text, sequence, stamp_us=int((time.monotonic() - age_s) * 1e6))


def xid(number: int, sequence: int, address: str, *, age_s: float = 0.0) -> bytes:
    """Return the record of an Xid of the GPU at ADDRESS."""
    text = f"NVRM: Xid (PCI:{address[:-2]}): {number}, pid='<unknown>', name=<unknown>, it is broken."
    return recent(text, sequence, age_s=age_s)


class FakeLog:
    """A FIFO at PATH that returns one record per read, as pipe2(2) documents for O_DIRECT."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        # Opened for reading too: opening does not block, and a reader gets no end of file before ``close``.
        self._end = os.open(path, os.O_RDWR)
        fcntl.fcntl(self._end, fcntl.F_SETFL, os.O_DIRECT)
        # Space for 256 records, one page for each. By default, the kernel's log has space for more records.
        fcntl.fcntl(self._end, fcntl.F_SETPIPE_SZ, 1 << 20)

    def write(self, *records: bytes) -> None:
        """Write RECORDS; waits while there is no space."""
        for each in records:
            os.write(self._end, each)

    def close(self) -> None:
        """End the log; further calls have no effect."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1


def written_by_the_kernel(name: str) -> str:
    """Make this machine's kernel write a line that begins with NAME; return the beginning of the line."""
    try:
        traced = Path("/proc/sys/debug/exception-trace").read_text().strip()
    except OSError as error:
        cannot_run(f"this kernel writes no lines about processes that fail ({error})")
    if traced == "0":
        cannot_run("this kernel writes no lines about processes that fail (debug.exception-trace)")
    process = subprocess.Popen([sys.executable, "-ISBc", FAULT, name], stderr=subprocess.DEVNULL)
    process.wait()
    return f"{name}[{process.pid}]: segfault at 0 "


def forge(text: str = FORGED) -> None:
    """Write TEXT to this machine's kernel log, as a program of root can."""
    # Unbuffered: one record for each write.
    with open("/dev/kmsg", "wb", buffering=0) as log:
        log.write(text.encode())
