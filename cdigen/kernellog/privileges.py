"""``drop_privileges``: drops the privileges that are not necessary to read the open log."""

from __future__ import annotations

import os
import resource

# The overflow user, which owns no files (Documentation/admin-guide/sysctl/fs.rst, overflowuid).
NOBODY = 65534
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38  # prctl(2)
# More capabilities than any kernel has. The loop ends at the first unknown capability.
_CAPABILITIES = 64


def drop_privileges() -> None:
    """Forbid further open files and processes, and give up root.

    The read of an open /dev/kmsg requires no privilege (devkmsg_open, printk.c). Under systemd, the program
    never runs as root. If a container does not permit root to change the user, the program stays root.
    """
    if os.geteuid() == 0:
        _leave_root()
    # Descriptors 0 and 1 are open. The kernel rejects any other descriptor (getrlimit(2)).
    resource.setrlimit(resource.RLIMIT_NOFILE, (2, 2))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _leave_root() -> None:
    import ctypes  # noqa: PLC0415 - 3 ms and 1 MB, not needed by the service

    prctl = ctypes.CDLL(None).prctl
    for capability in range(_CAPABILITIES):
        if prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except PermissionError:
        return
