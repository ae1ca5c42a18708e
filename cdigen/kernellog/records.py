"""``parsed`` parses a record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg).

A record is ``LEVEL,SEQUENCE,STAMP,FLAG[,...];TEXT``, then lines ``" NAME=value"`` about the device. The
kernel escapes backslashes and all characters except printable ASCII as a backslash with hexadecimal digits.
Therefore TEXT is a single line.
"""

from __future__ import annotations

from cdigen.kernellog.drivers import BEGINNINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Sequence, timestamp in microseconds, text ("" if not relevant), the kernel's name of the device.
    Record = tuple[int, int, bytes, bytes]

_DEVICE = b"\n DEVICE="
# The kernel writes only printable ASCII. This table guarantees printable ASCII to the reader of the lines.
_PLAIN = bytes(byte if 32 <= byte < 127 else ord("?") for byte in range(256))


def parsed(raw: bytes, beginnings: tuple[bytes, ...] = BEGINNINGS) -> Record | None:
    """Return sequence, timestamp in microseconds, text and device of RAW, or None if RAW is invalid.

    The text is "" if it begins with none of BEGINNINGS, or if the kernel is not the author of the record.
    Users can write records with syslog(3), or to /dev/kmsg if root permits it. The kernel gives such records
    a facility other than 0 (``devkmsg_write``, printk.c). The text of continuations (flags ``c`` and ``+``)
    is "" as well, because a fragment of an interrupted line may begin with any text.
    """
    head, mark, body = raw.partition(b";")
    fields = head.split(b",", 4)
    if not mark or len(fields) < 4:
        return None
    try:
        level, sequence, stamp_us = int(fields[0]), int(fields[1]), int(fields[2])
    except ValueError:
        return None
    if level > 7 or level < 0 or fields[3] != b"-" or not body.startswith(beginnings):
        return sequence, stamp_us, b"", b""
    text, _, rest = body.partition(b"\n")
    device = (b"\n" + rest).partition(_DEVICE)[2].partition(b"\n")[0]
    return sequence, stamp_us, text.translate(_PLAIN), device.translate(_PLAIN)
