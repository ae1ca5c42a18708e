"""Set the access list of a file, as setfacl(1) does, from the text of getfacl(1): ``set_access_list``."""

from __future__ import annotations

import os
import struct

from support.abilities import cannot_run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

# The tags of the kernel's posix_acl.h, for an entry without and with an id.
_TAGS = {"user": (0x01, 0x02), "group": (0x04, 0x08), "mask": (0x10, 0x10), "other": (0x20, 0x20)}


def set_access_list(file: Path, text: str) -> None:
    """Set the access list TEXT (``user::rw-,user:1000:rw-,group::r--,mask::rw-,other::---``) of FILE."""
    value = struct.pack("<I", 2)
    for entry in text.split(","):
        kind, who, rights = entry.split(":")
        bits = sum(bit for letter, bit in zip("rwx", (4, 2, 1), strict=True) if letter in rights)
        value += struct.pack("<HHI", _TAGS[kind][bool(who)], bits, int(who) if who else 0xFFFFFFFF)
    try:
        os.setxattr(file, "system.posix_acl_access", value)
    except OSError as error:
        cannot_run(f"no access lists here: {error.strerror}")
