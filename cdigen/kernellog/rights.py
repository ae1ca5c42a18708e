"""Give up what is not needed once the log is open: ``shed``."""

from __future__ import annotations

import os
import resource

# The user that owns nothing (Documentation/admin-guide/sysctl/fs.rst, overflowuid).
NOBODY = 65534
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38  # prctl(2)
# More than any kernel has; the first that is refused ends it.
_CAPABILITIES = 64


def shed() -> None:
    """Allow no further open file and no process; and of root, leave nothing.

    Reading needs no right, once /dev/kmsg is open (devkmsg_open, printk.c). Under systemd there is no root
    to begin with. What a container's root may not give up, it keeps.
    """
    if os.geteuid() == 0:
        _leave_root()
    # Descriptors 0 and 1 are open: every other would be refused (getrlimit(2)).
    resource.setrlimit(resource.RLIMIT_NOFILE, (2, 2))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _leave_root() -> None:
    import ctypes  # noqa: PLC0415 - 3 ms and 1 MB, which the service does not need

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
