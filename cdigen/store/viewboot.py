"""Which boot of the machine the views were last looked through in: the file ``boot-id`` beside them."""

from __future__ import annotations

from cdigen.store.present import NOTHING, look
from cdigen.store.tempfiles import put, settle, staged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.store.directory import Directory

BOOT_ID = "/proc/sys/kernel/random/boot_id"
FILE = "boot-id"


def current(path: str = BOOT_ID) -> bytes:
    """Return what the kernel calls this boot, or nothing where it does not say."""
    try:
        with open(path, "rb") as file:
            return file.read(64).strip()
    except OSError:
        return b""


def begin(place: Directory) -> None:
    """Count the views of PLACE as looked through in this boot if they never were: the first is being made."""
    if look(place, FILE) == NOTHING and (boot := current()):
        record(place, boot)


def is_done(place: Directory, boot: bytes) -> bool:
    """Return whether ``record`` was called with BOOT."""
    return look(place, FILE).content == boot + b"\n"


def record(place: Directory, boot: bytes) -> None:
    """Remember that the views of PLACE were looked through in BOOT; the caller holds the store's lock."""
    with staged(place, FILE, boot + b"\n") as content:
        put(content, place, FILE)
        settle(place)
