"""Protobuf messages without generated code: ``load`` returns the classes of a compiled ``.proto`` file.

Only this module imports protobuf. Generated code works with a single release of protobuf. The classes of each
file are in a separate descriptor pool, so they never conflict with the names of other files or libraries.
``make generated`` compiles the ``.proto`` files.
"""

from __future__ import annotations

from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_CONTINUES = 0x80  # set in each byte of a varint except the last byte
_MAX_VARINT = 10
# Wire types (protobuf.dev, "Encoding"). _FIXED has the sizes in bytes of the wire types with a fixed size.
_VARINT, _LENGTH = 0, 2
_FIXED = {1: 8, 5: 4}


class MessageError(ValueError):
    """Invalid bytes of a message, or values that do not fit into a message; the text is a single line."""


def load(path: str, proto: str) -> Mapping[str, Any]:
    """Return a map from message names to classes for PROTO (``nri.proto``). PATH is the compiled file.

    The caller must keep all classes alive, also the classes of inner messages. protobuf up to 4.24 crashes
    after the garbage collection of a class.
    """
    with open(path, "rb") as stream:
        data = stream.read()
    # A FileDescriptorSet with one file is a tag, the length of the file (a varint) and the file.
    # descriptor_pb2 can read the set, but its import takes 15 ms.
    start = 1 + next(at for at, byte in enumerate(data[1:], 1) if byte < _CONTINUES)
    pool = DescriptorPool()
    pool.AddSerializedFile(data[start:])
    found = pool.FindFileByName(proto).message_types_by_name
    # Debian 13 has protobuf 3.21.12, which has only the older function.
    if hasattr(message_factory, "GetMessageClass"):
        make = message_factory.GetMessageClass
    else:
        make = message_factory.MessageFactory(pool).GetPrototype  # type: ignore[attr-defined]
    return {name: make(descriptor) for name, descriptor in found.items()}


def read(kind: Any, data: bytes) -> Any:
    """Return the message of KIND in DATA; raise MessageError if DATA is invalid."""
    try:
        return kind.FromString(data)
    # protobuf's Python implementation reports text that is not UTF-8 as ValueError.
    except (DecodeError, ValueError) as error:
        raise MessageError(f"{kind.DESCRIPTOR.name} cannot be read: {error}") from None


def split(data: bytes, number: int) -> Iterator[bytes]:
    """Yield the bytes of each value of the field NUMBER in the message DATA.

    The field is a message or a text. The function reads a long list element by element, because the messages
    of a whole list take 45 times the memory of its bytes. Raises MessageError if DATA is invalid.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        size = _FIXED.get(tag & 7, 0)
        if tag & 7 in {_VARINT, _LENGTH}:
            value, at = _varint(data, at)
            size = value if tag & 7 == _LENGTH else 0
        elif not size:
            raise MessageError(f"a field has the unknown wire type {tag & 7}")
        if at + size > len(data):
            raise MessageError("a field is longer than its message")
        if tag == number << 3 | _LENGTH:
            yield data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at the position AT, and the position after the number."""
    value = 0
    for position, byte in enumerate(data[at : at + _MAX_VARINT]):
        value |= (byte & ~_CONTINUES) << (7 * position)
        if byte < _CONTINUES:
            return value, at + position + 1
    raise MessageError("a number is incomplete or longer than 10 bytes")


def write(kind: Any, **fields: object) -> bytes:
    """Return the bytes of a message of KIND with FIELDS; raise MessageError if FIELDS do not fit."""
    try:
        data: bytes = kind(**fields).SerializeToString()
    # ValueError: a number is too large, or a text has surrogates.
    except (EncodeError, ValueError) as error:
        raise MessageError(f"{kind.DESCRIPTOR.name} cannot be written: {error}") from None
    return data
