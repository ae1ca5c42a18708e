"""The classes of the messages in nri.proto: ``message_class``; ``frontend.descriptors`` makes them."""

from __future__ import annotations

import os

from cdigen.frontend.descriptors import MessageError, load, read, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["DESCRIPTORS", "PROTO", "MessageError", "message_class", "read", "write"]

PROTO = "nri.proto"
DESCRIPTORS = os.path.join(os.path.dirname(__file__), "nri.binpb")


def message_class(name: str) -> Any:
    """Return the class of the message NAME of nri.proto."""
    return _CLASSES[name]


_CLASSES = load(DESCRIPTORS, PROTO)
