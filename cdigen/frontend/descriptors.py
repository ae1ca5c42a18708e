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
    from collections.abc import Iterator, Mapping
    from typing import Any

_CONTINUES = 0x80  # the bit of a varint's bytes after which another one follows
_MAX_VARINT = 10
# Wire types (protobuf.dev, "Encoding"), and the sizes of those that have one.
_VARINT, _LENGTH = 0, 2
_FIXED = {1: 8, 5: 4}


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


def split(data: bytes, number: int) -> Iterator[bytes]:
    """Yield the values of the field NUMBER, a message or text, of the message in DATA; raises MessageError.

    A long list is read one element at a time this way: as a whole it takes 45 times its size.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        size = _FIXED.get(tag & 7, 0)
        if tag & 7 in {_VARINT, _LENGTH}:
            value, at = _varint(data, at)
            size = value if tag & 7 == _LENGTH else 0
        elif not size:
            raise MessageError(f"a field has the wire type {tag & 7}")
        if at + size > len(data):
            raise MessageError("a field is longer than its message")
        if tag == number << 3 | _LENGTH:
            yield data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at AT, and the position after it."""
    value = 0
    for position, byte in enumerate(data[at : at + _MAX_VARINT]):
        value |= (byte & ~_CONTINUES) << (7 * position)
        if byte < _CONTINUES:
            return value, at + position + 1
    raise MessageError("a number has no end")


def write(kind: Any, **fields: object) -> bytes:
    """Return the bytes of a message of KIND with FIELDS; raises MessageError."""
    try:
        data: bytes = kind(**fields).SerializeToString()
    # ValueError: a number that is too large, text with surrogates.
    except (EncodeError, ValueError) as error:
        raise MessageError(f"{kind.DESCRIPTOR.name} cannot be written: {error}") from None
    return data
