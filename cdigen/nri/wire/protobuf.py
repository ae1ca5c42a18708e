"""``message_class``: the classes of the messages in nri.proto, which ``service.descriptors`` loads."""

from __future__ import annotations

import os

from cdigen.service.descriptors import MessageError, load, read, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["DESCRIPTORS", "PROTO", "MessageError", "message_class", "read", "write"]

PROTO = "nri.proto"
DESCRIPTORS = os.path.join(os.path.dirname(__file__), "nri.binpb")


def message_class(name: str) -> Any:
    """Return the class of the message NAME in nri.proto."""
    return _CLASSES[name]


_CLASSES = load(DESCRIPTORS, PROTO)
