"""Records of /dev/kmsg: ``parsed`` (Documentation/ABI/testing/dev-kmsg).

``LEVEL,SEQUENCE,STAMP,FLAG[,...];TEXT``, then lines ``" NAME=value"`` about the device. All that is no
printable ASCII is written in hexadecimal behind a backslash by the kernel, a backslash too, so TEXT is one
line.
"""

from __future__ import annotations

from cdigen.kernellog.drivers import BEGINNINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Sequence, stamp in microseconds, text, the kernel's name of the device; without text: of no interest.
    Record = tuple[int, int, bytes, bytes]

_DEVICE = b"\n DEVICE="
# A kernel would not write it, but whoever reads the lines counts on printable ASCII.
_PLAIN = bytes(byte if 32 <= byte < 127 else ord("?") for byte in range(256))


def parsed(raw: bytes, beginnings: tuple[bytes, ...] = BEGINNINGS) -> Record | None:
    """Return the record RAW as sequence, stamp in microseconds, text and device; None if it is none.

    The text is empty where it is not the kernel's own, or has none of BEGINNINGS. Not the kernel's own is
    what any user may have written through syslog(3) or, where root lets them, /dev/kmsg: the kernel gives
    such records a facility other than 0 (``devkmsg_write``, printk.c). Nor are continuations believed
    (flags ``c`` and ``+``): the piece of a line that another one has cut may begin with anything.
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
