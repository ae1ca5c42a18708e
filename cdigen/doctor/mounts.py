"""The mount that a folder of this machine lies on, to be made writable: ``remount``."""

from __future__ import annotations

import os
import re

from cdigen.doctor.words import quoted

_TABLE = "/proc/self/mountinfo"  # proc_pid_mountinfo(5)
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def remount(folder: str) -> str:
    """Return the command that makes the mount of FOLDER writable; empty where the kernel does not tell it."""
    try:
        with open(_TABLE, "rb") as file:
            rows = [line.split(b" ") for line in file.read().splitlines()]
    except OSError:
        return ""
    real = os.fsencode(os.path.realpath(folder))
    point, options = b"", ""
    for row in rows:
        mounted = _ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), row[4])
        # Of two mounts at one place the later one covers the other.
        if _slashed(real).startswith(_slashed(mounted)) and len(mounted) >= len(point):
            point = mounted
            # A mount may be read-only by itself, as bind mounts are, or its whole file system.
            is_own = b"ro" in row[5].split(b",") and b"ro" not in row[-1].split(b",")
            options = "remount,bind,rw" if is_own else "remount,rw"
    return f"mount -o {options} {quoted(os.fsdecode(point))}" if point else ""


def _slashed(path: bytes) -> bytes:
    return path.rstrip(b"/") + b"/"
