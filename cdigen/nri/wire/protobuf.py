"""``read`` and ``write``: the messages of nri.proto by name, with the classes of ``service.descriptors``."""

from __future__ import annotations

import os

from cdigen.service import descriptors
from cdigen.service.descriptors import MessageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["CLASSES", "DESCRIPTORS", "PROTO", "MessageError", "read", "write"]

PROTO = "nri.proto"
DESCRIPTORS = os.path.join(os.path.dirname(__file__), "nri.binpb")
# The classes of the messages by name.
CLASSES = descriptors.load(DESCRIPTORS, PROTO)


def read(name: str, data: bytes) -> Any:
    """Return the message NAME in DATA; raise MessageError if DATA is invalid."""
    return descriptors.read(CLASSES[name], data)


def write(name: str, **fields: object) -> bytes:
    """Return the bytes of the message NAME with FIELDS; raise MessageError if FIELDS do not fit."""
    return descriptors.write(CLASSES[name], **fields)
