"""Check that the next change of a file will change the time of the file: ``shows_changes``."""

from __future__ import annotations

# The kernel's clock for file times advances in steps of up to 10 ms (CONFIG_HZ). Two changes within one step
# have the same time. Before Linux 6.13, this applies to every file system.
_TICK_NS = 20_000_000
# Some file systems store only seconds: ext4 with 128-byte inodes, ext3, FAT (two seconds).
_SECOND_NS = 1_000_000_000
_COARSE_TICK_NS = 2 * _SECOND_NS + _TICK_NS


def shows_changes(changed_ns: int, now_ns: int) -> bool:
    """Return whether a change at or after NOW_NS gets another time than the last change, CHANGED_NS."""
    tick_ns = _TICK_NS if changed_ns % _SECOND_NS else _COARSE_TICK_NS
    return abs(now_ns - changed_ns) >= tick_ns
