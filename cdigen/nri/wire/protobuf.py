"""The classes of the messages in nri.proto, and how they are decoded and encoded.

The only module that imports protobuf. The classes are made from the compiled ``nri.proto`` when this module
is loaded, as generated code would bind cdigen to the one release of protobuf that it was generated for. They
live in a pool of their own, where no other library's names can be in the way.
"""

from __future__ import annotations

import os

from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROTO = "nri.proto"
DESCRIPTORS = os.path.join(os.path.dirname(__file__), "nri.binpb")
_CONTINUES = 0x80  # the bit of a varint's bytes after which another one follows


class MessageError(ValueError):
    """Report in one line why bytes are not such a message, or values cannot be written as one."""


def message_class(name: str) -> Any:
    """Return the class of the message NAME of nri.proto."""
    return _CLASSES[name]


def read(kind: Any, data: bytes) -> Any:
    """Return the message of KIND in DATA; raises MessageError."""
    try:
        return kind.FromString(data)
    # ValueError is how protobuf written in Python reports text that is not UTF-8.
    except (DecodeError, ValueError) as error:
        raise MessageError(f"{kind.DESCRIPTOR.name} cannot be read: {error}") from None


def write(kind: Any, **fields: object) -> bytes:
    """Return the bytes of a message of KIND with FIELDS; raises MessageError."""
    try:
        data: bytes = kind(**fields).SerializeToString()
    # ValueError: a number that is too large, text with surrogates.
    except (EncodeError, ValueError) as error:
        raise MessageError(f"{kind.DESCRIPTOR.name} cannot be written: {error}") from None
    return data


def _load() -> dict[str, Any]:
    """Return all classes by their names.

    They are held, those of inner messages as well: protobuf up to 4.24 crashes where one was collected.
    """
    with open(DESCRIPTORS, "rb") as stream:
        data = stream.read()
    # A FileDescriptorSet with one file is that file after a tag and its length, a varint: descriptor_pb2,
    # which could read it, takes 15 ms to import.
    start = 1 + next(at for at, byte in enumerate(data[1:], 1) if byte < _CONTINUES)
    pool = DescriptorPool()
    pool.AddSerializedFile(data[start:])
    found = pool.FindFileByName(PROTO).message_types_by_name
    # Debian 13's protobuf, 3.21.12, has only the older of the two.
    if hasattr(message_factory, "GetMessageClass"):
        make = message_factory.GetMessageClass
    else:
        make = message_factory.MessageFactory(pool).GetPrototype  # type: ignore[attr-defined]
    return {name: make(descriptor) for name, descriptor in found.items()}


_CLASSES = _load()
