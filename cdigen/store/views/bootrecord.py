"""Remember in which boot the views were last pruned: the file ``boot-id`` beside them."""

from __future__ import annotations

from cdigen.store.snapshot import NO_FILE, take_snapshot
from cdigen.store.tempfiles import replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.store.directory import Directory

BOOT_ID = "/proc/sys/kernel/random/boot_id"
FILE = "boot-id"


def current_boot(path: str = BOOT_ID) -> bytes:
    """Return what the kernel calls this boot, or nothing where it does not say."""
    try:
        with open(path, "rb") as file:
            return file.read(64).strip()
    except OSError:
        return b""


def begin_boot(place: Directory) -> None:
    """Record this boot where PLACE has no record: its first view is being made."""
    if take_snapshot(place, FILE) == NO_FILE and (boot := current_boot()):
        record(place, boot)


def is_done(place: Directory, boot: bytes) -> bool:
    """Return whether ``record`` was called with BOOT."""
    return take_snapshot(place, FILE).content == boot + b"\n"


def record(place: Directory, boot: bytes) -> None:
    """Record that the views of PLACE were pruned in BOOT; the caller holds the store's lock."""
    replace_file(place, FILE, boot + b"\n")
