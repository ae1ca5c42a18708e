"""How to make the mount writable that holds a folder of this machine: ``remount``."""

from __future__ import annotations

import os
import re

from cdigen.host.mountinfo import rows

_TABLE = "/proc/self/mountinfo"  # proc_pid_mountinfo(5)
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def remount(folder: str) -> tuple[str, ...]:
    """Return the command that makes the mount of FOLDER writable; nothing where it is unknown."""
    real = os.fsencode(os.path.realpath(folder))
    point, options = b"", ""
    try:
        for row in rows(_TABLE):
            fields, _, file_system = row.partition(b" - ")
            _, _, _, _, at, own, *_ = fields.split(b" ")
            mounted = _ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), at)
            # Of two mounts at one place the later one covers the other.
            if _slashed(real).startswith(_slashed(mounted)) and len(mounted) >= len(point):
                point = mounted
                # A mount may be read-only by itself, as bind mounts are, or its whole file system.
                is_own = _is_read_only(own) and not _is_read_only(file_system.rpartition(b" ")[2])
                options = "remount,bind,rw" if is_own else "remount,rw"
    except OSError:
        return ()
    return ("mount", "-o", options, os.fsdecode(point)) if point else ()


def _is_read_only(options: bytes) -> bool:
    return b"ro" in options.split(b",")


def _slashed(path: bytes) -> bytes:
    return path.rstrip(b"/") + b"/"
