"""The CDI library's data types, and how its JSON decoder fills them from what YAML gave.

The decoder is Go's: a field's name matches in any case, a null leaves the zero value, numbers and
booleans become text where text is wanted (sigs.k8s.io/yaml does that), an unknown field refuses the
whole file, and two fields that differ only in case fill the same place one after the other.
Source: specs-go/config.go of the tags v0.5.2 to v1.1.0; Go, encoding/json, decode.go.
"""

from __future__ import annotations

from cdigen.cdi.library import NEWEST, CdiLibrary, is_everywhere
from cdigen.cdi.rules.fields import type_name
from cdigen.cdi.yaml_scalars import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.cdi.library import Release

    # Takes a value and what its place holds already; None stands for nil and for a zero value.
    Decode = Callable[[object, object, CdiLibrary], object]

_MAX_UINT32 = 2**32 - 1
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
# From here on Go's encoder writes a float with an exponent, which its decoder takes for no integer.
_MAX_PLAIN_FLOAT = 1e21


class RefusedError(Exception):
    """Says that a library refuses the document; the text says why, for people."""


def decode_document(value: object, release: Release) -> dict[str, object]:
    """Return VALUE as the ``Spec`` of library RELEASE; RefusedError where its decoder refuses it.

    Every field that any release has is there, named as in JSON; absent ones have Go's zero value,
    which is None for lists, maps and pointers.
    """
    return decode_for(value, CdiLibrary(release))


def decode_for(value: object, library: CdiLibrary) -> dict[str, object]:
    """Return VALUE as ``decode_document`` does, for what LIBRARY says it knows."""
    document = _SPEC(value, None, library)
    if value is None or not isinstance(document, dict):
        raise RefusedError("there is no document")
    return document


def _struct(fields: dict[str, Decode], *, is_pointer: bool = False) -> Decode:
    """Return the decoder of a struct with FIELDS, as far as a library has them, or of a pointer to it."""
    nothing = CdiLibrary(NEWEST)
    zero = {name: decode(None, None, nothing) for name, decode in fields.items()}
    folded = {name.casefold(): name for name in fields}
    everywhere = frozenset(name for name in fields if is_everywhere(name))

    def name_of(key: str, library: CdiLibrary) -> str:
        name = key if key in fields else folded.get(key.casefold())
        if name is None or len(name) != len(key) or not library.has_field(name):
            raise RefusedError(f"unknown field {key!r:.60}")
        return name

    def decode(value: object, old: object, library: CdiLibrary) -> object:
        if value is None:
            return None if is_pointer else old or zero
        if not isinstance(value, dict):
            raise RefusedError(f"{type_name(value)} where an object is wanted")
        filled = dict(old if isinstance(old, dict) else zero)
        # encoding/json writes a map's keys in the order of their bytes, so that is how they are read.
        for key in sorted(value):
            name = key if key in everywhere else name_of(key, library)
            filled[name] = fields[name](value[key], filled[name], library)
        return filled

    return decode


def _list(item: Decode) -> Decode:
    """Return the decoder of a slice; null makes it nil, and what was there is filled once more."""

    def decode(value: object, old: object, library: CdiLibrary) -> object:
        if value is None:
            return None
        if not isinstance(value, list):
            raise RefusedError(f"{type_name(value)} where a list is wanted")
        if not isinstance(old, list):
            return [item(entry, None, library) for entry in value]
        missing = len(value) - len(old)
        return [
            item(entry, before, library) for entry, before in zip(value, old + [None] * missing, strict=False)
        ]

    return decode


def _integer(minimum: int, maximum: int, *, zero: int | None) -> Decode:
    """Return the decoder of an integer within MINIMUM and MAXIMUM; ZERO is None for a pointer to one."""

    def decode(value: object, old: object, _library: CdiLibrary) -> object:
        if value is None:
            return zero if zero is None or old is None else old
        if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_PLAIN_FLOAT:
            value = _as_written(value, minimum)
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise RefusedError(f"{_shown(value)} where an integer from {minimum} to {maximum} is wanted")
        return value

    return decode


def _as_written(value: float, minimum: int) -> int | None:
    """Return the integer that Go writes for the whole VALUE: the shortest digits that tell it, then zeros."""
    if minimum == 0 and repr(value).startswith("-"):
        return None  # "-0" is no unsigned number
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return int(value)
    whole, _, decimals = mantissa.partition(".")
    digits = whole + ("" if decimals == "0" else decimals)
    return int(digits + "0" * (int(exponent) - (len(digits) - len(whole))))


def _shown(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value!r:.30}" if is_number else type_name(value)


def _text(value: object, old: object, _library: CdiLibrary) -> object:
    if isinstance(value, str):
        return value
    if value is None:
        return old or ""
    text = as_text(value)
    if text is None:
        raise RefusedError(f"{type_name(value)} where a text is wanted")
    return text


def _bool(value: object, old: object, _library: CdiLibrary) -> object:
    if value is None:
        return bool(old)
    if not isinstance(value, bool):
        raise RefusedError(f"{type_name(value)} where a boolean is wanted")
    return value


def _texts_by_key(value: object, old: object, library: CdiLibrary) -> object:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RefusedError(f"{type_name(value)} where an object is wanted")
    before = old if isinstance(old, dict) else {}
    return {**before, **{key: _text(text, None, library) for key, text in value.items()}}


_TEXTS = _list(_text)
_INT64 = _integer(_MIN_INT64, _MAX_INT64, zero=0)
_INT64_POINTER = _integer(_MIN_INT64, _MAX_INT64, zero=None)
_UINT32 = _integer(0, _MAX_UINT32, zero=0)
_UINT32_POINTER = _integer(0, _MAX_UINT32, zero=None)

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
_MOUNT: dict[str, Decode] = {"hostPath": _text, "containerPath": _text, "options": _TEXTS, "type": _text}
_HOOK: dict[str, Decode] = {
    "hookName": _text,
    "path": _text,
    "args": _TEXTS,
    "env": _TEXTS,
    "timeout": _INT64_POINTER,
}
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
