"""Read the records that are in the kernel log now (``kernel_messages``).

Source of the format: the kernel's Documentation/ABI/testing/dev-kmsg. The program in ``kernellog`` follows
the log; this module reads the log once.
"""

from __future__ import annotations

import os
import stat
from errno import EINVAL, EPIPE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root

LOG = "/dev/kmsg"
_NUMBERS = (1, 11)  # Documentation/admin-guide/devices.txt
_LONGEST = 1 << 14
# More records than fit into the kernel's buffer of CONFIG_LOG_BUF_SHIFT=20.
_MOST = 1 << 15
_FACILITIES = 8  # Records with a higher number are from programs, not from the kernel.


def kernel_messages(host: Root, beginnings: tuple[str, ...]) -> tuple[str, ...]:
    """Return the kernel's messages that begin with one of BEGINNINGS, oldest first.

    A message is a single line: a line end within a message is a space, without the beginning after it. The
    result is empty if the log cannot be read.
    """
    try:
        descriptor = os.open(host.outer_path(host.resolve(LOG)), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ()
    try:
        status = os.fstat(descriptor)
        is_log = stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(*_NUMBERS)
        if not is_log and not stat.S_ISFIFO(status.st_mode):
            return ()
        return tuple(text for text in _texts(descriptor, beginnings) if text.startswith(beginnings))
    finally:
        os.close(descriptor)


def _texts(descriptor: int, beginnings: tuple[str, ...]) -> Iterator[str]:
    for _ in range(_MOST):
        try:
            record = os.read(descriptor, _LONGEST)
        except OSError as error:
            # EPIPE: the next record was overwritten. EINVAL: the next record is longer than _LONGEST.
            if error.errno in {EPIPE, EINVAL}:
                continue
            return
        if not record:
            return
        head, _, body = record.partition(b";")
        level = head.partition(b",")[0]
        if level.isdigit() and int(level) < _FACILITIES:
            text = body.partition(b"\n")[0].decode("ascii", "replace")
            for beginning in beginnings:
                text = text.replace(f"\\x0a{beginning}", " ")
            yield " ".join(text.replace("\\x0a", " ").split())
