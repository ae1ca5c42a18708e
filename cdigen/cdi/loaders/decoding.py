"""Fill the CDI library's data types as its JSON decoder does with what YAML gave.

The decoder is Go's: a field's name matches in any case, a null leaves the zero value, numbers and
booleans become text where text is wanted (sigs.k8s.io/yaml does that), and for an unknown field the
whole file is refused. Two spellings of one field, and floats of more than six digits where text is
wanted, are not emulated.

Source: specs-go/config.go of the tags v0.5.2 to v1.1.0; Go, encoding/json, decode.go.
"""

from __future__ import annotations

from cdigen.cdi.library import CdiLibrary
from cdigen.cdi.rules.fields import MAX_INT64, MAX_UINT32, type_name
from cdigen.cdi.text.scalars import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Decode = Callable[[object, CdiLibrary], object]

# Whole floats up to here are the integers that Go writes for them.
_MAX_EXACT_FLOAT = 2.0**53
# Zero values are the same in all releases.
_NO_LIBRARY = CdiLibrary((0, 0, 0))


class RefusedError(Exception):
    """Says that a library refuses the document; the text says why, for people."""


class UnknownError(Exception):
    """Says that what a library does depends on chance or is not known."""


def decode_document(value: object, library: CdiLibrary) -> dict[str, object]:
    """Return VALUE as the ``Spec`` of LIBRARY; RefusedError where its decoder refuses it, or UnknownError.

    Every field that any release has is there, named as in JSON; absent ones have Go's zero value,
    which is None for lists, maps and pointers.
    """
    document = _SPEC(value, library)
    if value is None or not isinstance(document, dict):
        raise RefusedError("there is no document")
    return document


def _struct(fields: dict[str, Decode], *, is_pointer: bool = False) -> Decode:
    """Return the decoder of a struct with FIELDS, as far as a library has them, or of a pointer to it."""
    zero = {name: decode(None, _NO_LIBRARY) for name, decode in fields.items()}
    spellings = {name.casefold(): name for name in fields}

    def decode(value: object, library: CdiLibrary) -> object:
        if value is None:
            return None if is_pointer else zero
        given: dict[str, object] = {}
        for key, item in _members(value).items():
            name = key if key in fields else spellings.get(key.casefold())
            if name is None or len(name) != len(key) or not library.has_field(name):
                raise RefusedError(f"unknown field {key!r:.60}")
            if name in given:
                raise UnknownError(f"the field {name} in two spellings")
            given[name] = fields[name](item, library)
        return {**zero, **given}

    return decode


def _members(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise RefusedError(f"{type_name(value)} where an object is wanted")
    return value


def _list(item: Decode) -> Decode:
    """Return the decoder of a slice; null makes it nil."""

    def decode(value: object, library: CdiLibrary) -> object:
        if value is None:
            return None
        if not isinstance(value, list):
            raise RefusedError(f"{type_name(value)} where a list is wanted")
        return [item(entry, library) for entry in value]

    return decode


def _integer(minimum: int, maximum: int, *, zero: int | None) -> Decode:
    """Return the decoder of an integer within MINIMUM and MAXIMUM; ZERO is None for a pointer to one."""

    def decode(value: object, _library: CdiLibrary) -> object:
        if value is None:
            return zero
        if isinstance(value, float) and value.is_integer() and abs(value) <= maximum:
            if abs(value) > _MAX_EXACT_FLOAT or str(value) == "-0.0":
                raise UnknownError(f"{value!r} where an integer is wanted")
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            what = f"{value!r:.30}" if is_number else type_name(value)
            raise RefusedError(f"{what} where an integer from {minimum} to {maximum} is wanted")
        return value

    return decode


def _text(value: object, _library: CdiLibrary) -> object:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, dict | list):
        raise RefusedError(f"{type_name(value)} where a text is wanted")
    text = as_text(value)
    if text is None:
        raise UnknownError(f"{value!r} where a text is wanted")
    return text


def _bool(value: object, _library: CdiLibrary) -> object:
    if value is not None and not isinstance(value, bool):
        raise RefusedError(f"{type_name(value)} where a boolean is wanted")
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
