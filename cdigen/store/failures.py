"""Turn what the operating system refuses into an error with a hint: ``store_error``."""

from __future__ import annotations

import errno
import os

from cdigen.host.confinement import confinement
from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError

# errno(3) to the next step; other errors have only their strerror.
_HINTS = {
    errno.EACCES: "run the command as root, or name a folder of your own",
    errno.EDQUOT: "free space within the quota of that file system, then run the command again",
    errno.EIO: "the storage below it fails: see the kernel's log (dmesg)",
    errno.ENAMETOOLONG: "choose shorter names",
    errno.ENOSPC: "free space or inodes on that file system (df, df -i), then run the command again",
    errno.EPERM: "run the command as root; as root, look for an immutable flag with lsattr",
    errno.EROFS: "make that file system writable, or choose another directory",
}


def store_error(what: str, path: str, error: OSError) -> StoreError:
    """Return the error for WHAT ("cannot write") that failed at PATH, with the next step as hint."""
    hint = _HINTS.get(error.errno or 0, "")
    if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() == 0:
        looks = "look at lsattr, the mount's options, SELinux and AppArmor"
        hint = f"root is refused too: {confinement() or looks}"
    return StoreError(f"{what} {shown(path)}: {reason(error)}", hint=hint)
