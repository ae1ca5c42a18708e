"""Whether a file's time tells all of its changes apart: ``shows_changes``."""

from __future__ import annotations

# The kernel's clock for files advances in steps of up to 10 ms (CONFIG_HZ, before Linux 6.13 on every file
# system): a second change within one step leaves the same time.
_TICK_NS = 20_000_000
# File systems without room for less than seconds: ext4 with inodes of 128 bytes, ext3, FAT (two).
_SECOND_NS = 1_000_000_000
_COARSE_TICK_NS = 2 * _SECOND_NS + _TICK_NS


def shows_changes(changed_ns: int, now_ns: int) -> bool:
    """Return whether a change from NOW_NS on gives another time than CHANGED_NS, that of the last change."""
    tick_ns = _TICK_NS if changed_ns % _SECOND_NS else _COARSE_TICK_NS
    return abs(now_ns - changed_ns) >= tick_ns
