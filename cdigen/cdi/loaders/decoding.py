"""``decode_document``: converts a document to the data types of the CDI library, like the library's decoder.

The library uses Go's JSON decoder. The name of a field matches in upper or lower case. A field with null
keeps its zero value. Numbers and booleans become text if the field is a text (sigs.k8s.io/yaml does this). If
a field is unknown, the library refuses the whole file. This module does not emulate two spellings of one
field, or floats with more than six digits in a text field.

Sources: specs-go/config.go of the tags v0.5.2 to v1.1.0; Go, encoding/json, decode.go.
"""

from __future__ import annotations

from cdigen.cdi.library import CdiLibrary
from cdigen.cdi.rules.fields import MAX_INT64, MAX_UINT32, type_name
from cdigen.cdi.text.scalars import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Decode = Callable[[object, CdiLibrary], object]

# Up to this number, Go writes a float without a fraction as an integer of equal value.
_MAX_EXACT_FLOAT = 2.0**53
# Any release can be used to compute zero values, because these are the same in all releases.
_NO_LIBRARY = CdiLibrary((0, 0, 0))


class RefusedError(Exception):
    """The error for a document that a library refuses; the text is the reason."""


class UnknownError(Exception):
    """The error for a document if a library's behaviour is random or unknown; the text is the reason."""


def decode_document(value: object, library: CdiLibrary) -> dict[str, object]:
    """Return VALUE as the data type ``Spec`` of LIBRARY.

    The result has the fields of all releases, with their names in JSON. A missing field has Go's zero value,
    which is None for lists, maps and pointers. Raise RefusedError if LIBRARY refuses VALUE, or UnknownError
    if the behaviour of LIBRARY is unknown.
    """
    document = _SPEC(value, library)
    if value is None or not isinstance(document, dict):
        raise RefusedError("the file has no document")
    return document


def _struct(fields: dict[str, Decode], *, is_pointer: bool = False) -> Decode:
    """Return the decoder of a struct, or of a pointer to a struct if IS_POINTER is true.

    The struct has the FIELDS that the library supports.
    """
    zero = {name: decode(None, _NO_LIBRARY) for name, decode in fields.items()}
    spellings = {name.casefold(): name for name in fields}

    def decode(value: object, library: CdiLibrary) -> object:
        if value is None:
            return None if is_pointer else zero
        decoded: dict[str, object] = {}
        for key, item in _members(value).items():
            name = key if key in fields else spellings.get(key.casefold())
            if name is None or len(name) != len(key) or not library.has_field(name):
                raise RefusedError(f"unknown field {key!r:.60}")
            if name in decoded:
                raise UnknownError(f"the field {name} in two spellings")
            decoded[name] = fields[name](item, library)
        return {**zero, **decoded}

    return decode


def _members(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise RefusedError(f"{type_name(value)} instead of an object")
    return value


def _list(item: Decode) -> Decode:
    """Return the decoder of a slice whose items ITEM decodes; null becomes a nil slice."""

    def decode(value: object, library: CdiLibrary) -> object:
        if value is None:
            return None
        if not isinstance(value, list):
            raise RefusedError(f"{type_name(value)} instead of a list")
        return [item(entry, library) for entry in value]

    return decode


def _integer(minimum: int, maximum: int, *, zero: int | None) -> Decode:
    """Return the decoder of an integer from MINIMUM to MAXIMUM.

    ZERO is the zero value, which is None for a pointer to an integer.
    """

    def decode(value: object, _library: CdiLibrary) -> object:
        if value is None:
            return zero
        if isinstance(value, float) and value.is_integer() and abs(value) <= maximum:
            if abs(value) > _MAX_EXACT_FLOAT or str(value) == "-0.0":
                raise UnknownError(f"{value!r} instead of an integer")
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            what = f"{value!r:.30}" if is_number else type_name(value)
            raise RefusedError(f"{what} instead of an integer from {minimum} to {maximum}")
        return value

    return decode


def _text(value: object, _library: CdiLibrary) -> object:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, dict | list):
        raise RefusedError(f"{type_name(value)} instead of a text")
    text = as_text(value)
    if text is None:
        raise UnknownError(f"{value!r} instead of a text")
    return text


def _bool(value: object, _library: CdiLibrary) -> object:
    if value is not None and not isinstance(value, bool):
        raise RefusedError(f"{type_name(value)} instead of a boolean")
    return bool(value)


def _texts_by_key(value: object, library: CdiLibrary) -> object:
    if value is None:
        return None
    return {key: _text(text, library) for key, text in _members(value).items()}


_TEXTS = _list(_text)
_INT64 = _integer(-(2**63), MAX_INT64, zero=0)
_INT64_POINTER = _integer(-(2**63), MAX_INT64, zero=None)
_UINT32 = _integer(0, MAX_UINT32, zero=0)
_UINT32_POINTER = _integer(0, MAX_UINT32, zero=None)

_NODE: dict[str, Decode] = {
    "path": _text,
    "hostPath": _text,
    "type": _text,
    "major": _INT64,
    "minor": _INT64,
    "fileMode": _UINT32_POINTER,
    "permissions": _text,
    "uid": _UINT32_POINTER,
    "gid": _UINT32_POINTER,
}
_HOOK: dict[str, Decode] = {
    "hookName": _text,
    "path": _text,
    "args": _TEXTS,
    "env": _TEXTS,
    "timeout": _INT64_POINTER,
}
_MOUNT: dict[str, Decode] = {"hostPath": _text, "containerPath": _text, "options": _TEXTS, "type": _text}
_NET_DEVICE: dict[str, Decode] = {"hostInterfaceName": _text, "name": _text}
_RDT: dict[str, Decode] = {
    "closID": _text,
    "l3CacheSchema": _text,
    "memBwSchema": _text,
    "enableCMT": _bool,
    "enableMBM": _bool,
    "schemata": _TEXTS,
    "enableMonitoring": _bool,
}

_EDITS = _struct(
    {
        "env": _TEXTS,
        "deviceNodes": _list(_struct(_NODE, is_pointer=True)),
        "netDevices": _list(_struct(_NET_DEVICE, is_pointer=True)),
        "hooks": _list(_struct(_HOOK, is_pointer=True)),
        "mounts": _list(_struct(_MOUNT, is_pointer=True)),
        "intelRdt": _struct(_RDT, is_pointer=True),
        "additionalGids": _list(_UINT32),
    }
)
_DEVICE = _struct({"name": _text, "annotations": _texts_by_key, "containerEdits": _EDITS})
_SPEC = _struct(
    {
        "cdiVersion": _text,
        "kind": _text,
        "annotations": _texts_by_key,
        "devices": _list(_DEVICE),
        "containerEdits": _EDITS,
    }
)
