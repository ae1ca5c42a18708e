"""Protobuf messages without generated code: ``load`` makes their classes of a compiled ``.proto`` file.

The only module that imports protobuf. Generated code would bind cdigen to the one release of protobuf that it
was generated for. Each file's classes live in a pool of their own, where no other library's names, and no
other file's, can be in the way. ``make generated`` compiles the ``.proto`` files.
"""

from __future__ import annotations

from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_CONTINUES = 0x80  # the bit of a varint's bytes after which another one follows


class MessageError(ValueError):
    """Report in one line why bytes are not such a message, or values cannot be written as one."""


def load(path: str, proto: str) -> Mapping[str, Any]:
    """Return the classes of the messages of PROTO (``nri.proto``), compiled in the file PATH, by their names.

    The caller holds all of them, those of inner messages as well: protobuf up to 4.24 crashes where one was
    collected.
    """
    with open(path, "rb") as stream:
        data = stream.read()
    # A FileDescriptorSet with one file is that file after a tag and its length, a varint: descriptor_pb2,
    # which could read it, takes 15 ms to import.
    start = 1 + next(at for at, byte in enumerate(data[1:], 1) if byte < _CONTINUES)
    pool = DescriptorPool()
    pool.AddSerializedFile(data[start:])
    found = pool.FindFileByName(proto).message_types_by_name
    # Debian 13's protobuf, 3.21.12, has only the older of the two.
    if hasattr(message_factory, "GetMessageClass"):
        make = message_factory.GetMessageClass
    else:
        make = message_factory.MessageFactory(pool).GetPrototype  # type: ignore[attr-defined]
    return {name: make(descriptor) for name, descriptor in found.items()}


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
