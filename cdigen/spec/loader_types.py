"""The CDI libraries' data types, and how their JSON decoder fills them from what YAML gave.

The decoder is Go's: a field's name matches in any case, a null leaves the zero value, numbers and
booleans become text where text is wanted (sigs.k8s.io/yaml does that), an unknown field refuses the
whole file, and two fields that differ only in case fill the same place one after the other.
Source: specs-go/config.go of the tags v0.5.2 to v1.1.0; encoding/json, decode.go; all verdicts were
compared with the real libraries 0.5.2, 0.8.0 and 1.0.1 on Linux.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdigen.spec.yaml_scalars import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Release = tuple[int, int, int]
    Decode = Callable[[object, object, Release], object]

_MAX_UINT32 = 2**32 - 1
_INT64 = (-(2**63), 2**63 - 1)
# Beyond this Go's encoder writes a float with an exponent, which its decoder takes for no integer.
_MAX_PLAIN_FLOAT = 1e21


class RefusedError(Exception):
    """Says that a library refuses the document; the text is for debugging only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a Go struct: how it is decoded, its zero value, and which releases have it."""

    decode: Decode
    zero: object = None
    since: Release = (0, 0, 0)
    until: Release = (999, 0, 0)


def decode_document(value: object, release: Release) -> dict[str, object]:
    """Return VALUE as the ``Spec`` of library RELEASE; RefusedError where its decoder refuses it.

    Every field that the release has is there, named as in JSON; absent ones have Go's zero value.
    """
    if value is None:
        raise RefusedError("no Spec data")
    return _struct(_SPEC, value, None, release)


def _struct(fields: dict[str, Field], value: object, old: object, release: Release) -> dict[str, object]:
    known = {name: field for name, field in fields.items() if field.since <= release < field.until}
    filled = dict(old) if isinstance(old, dict) else _zero(known, release)
    if value is None:
        return filled
    if not isinstance(value, dict):
        raise RefusedError(f"{type(value).__name__} where an object is wanted")
    # encoding/json writes a map's keys in the order of their bytes, so that is how they are read.
    for key in sorted(value, key=str.encode):
        name = _field_name(key, known)
        filled[name] = known[name].decode(value[key], filled[name], release)
    return filled


def _zero(known: dict[str, Field], release: Release) -> dict[str, object]:
    return {name: field.decode(None, field.zero, release) for name, field in known.items()}


def _field_name(key: str, known: dict[str, Field]) -> str:
    if key in known:
        return key
    folded = key.casefold()
    for name in known:
        if name.casefold() == folded and len(name) == len(key):
            return name
    raise RefusedError(f"unknown field {key!r}")


def _object(fields: dict[str, Field], *, pointer: bool) -> Decode:
    """Return the decoder of a struct, or of a pointer to one, which null makes nil."""

    def decode(value: object, old: object, release: Release) -> object:
        if value is None and pointer:
            return None
        return _struct(fields, value, old, release)

    return decode


def _list(item: Decode) -> Decode:
    """Return the decoder of a slice; null makes it nil, and old items are filled again."""

    def decode(value: object, old: object, release: Release) -> object:
        if value is None:
            return None
        if not isinstance(value, list):
            raise RefusedError(f"{type(value).__name__} where a list is wanted")
        previous = old if isinstance(old, list) else []
        return [
            item(entry, previous[index] if index < len(previous) else None, release)
            for index, entry in enumerate(value)
        ]

    return decode


def _text(value: object, old: object, _release: Release) -> object:
    if value is None:
        return old if isinstance(old, str) else ""
    text = as_text(value)
    if text is None:
        raise RefusedError(f"{type(value).__name__} where a text is wanted")
    return text


def _texts_by_key(value: object, old: object, release: Release) -> object:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RefusedError(f"{type(value).__name__} where an object is wanted")
    previous = old if isinstance(old, dict) else {}
    return {**previous, **{key: _text(text, None, release) for key, text in value.items()}}


def _bool(value: object, old: object, _release: Release) -> object:
    if value is None:
        return old
    if not isinstance(value, bool):
        raise RefusedError(f"{type(value).__name__} where a boolean is wanted")
    return value


def _integer(minimum: int, maximum: int, *, pointer: bool = False) -> Decode:
    """Return the decoder of an integer, or of a pointer to one, within MINIMUM and MAXIMUM."""

    def decode(value: object, old: object, _release: Release) -> object:
        if value is None:
            return None if pointer else old
        if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_PLAIN_FLOAT:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise RefusedError(f"{value!r:.40} where an integer is wanted")
        return value

    return decode


_TEXT = Field(decode=_text, zero="")
_TEXTS = Field(decode=_list(_text))
_NUMBER = Field(decode=_integer(*_INT64), zero=0)
_UINT32_POINTER = Field(decode=_integer(0, _MAX_UINT32, pointer=True))

_NODE = {
    "path": _TEXT,
    "hostPath": _TEXT,
    "type": _TEXT,
    "major": _NUMBER,
    "minor": _NUMBER,
    "fileMode": _UINT32_POINTER,
    "permissions": _TEXT,
    "uid": _UINT32_POINTER,
    "gid": _UINT32_POINTER,
}
_MOUNT = {"hostPath": _TEXT, "containerPath": _TEXT, "options": _TEXTS, "type": _TEXT}
_HOOK = {
    "hookName": _TEXT,
    "path": _TEXT,
    "args": _TEXTS,
    "env": _TEXTS,
    "timeout": Field(decode=_integer(*_INT64, pointer=True)),
}
_NET_DEVICE = {"hostInterfaceName": _TEXT, "name": _TEXT}
_RDT = {
    "closID": _TEXT,
    "l3CacheSchema": _TEXT,
    "memBwSchema": _TEXT,
    "enableCMT": Field(decode=_bool, zero=False, until=(1, 1, 0)),
    "enableMBM": Field(decode=_bool, zero=False, until=(1, 1, 0)),
    "schemata": Field(decode=_list(_text), since=(1, 1, 0)),
    "enableMonitoring": Field(decode=_bool, zero=False, since=(1, 1, 0)),
}
_EDITS = {
    "env": _TEXTS,
    "deviceNodes": Field(decode=_list(_object(_NODE, pointer=True))),
    "netDevices": Field(decode=_list(_object(_NET_DEVICE, pointer=True)), since=(1, 1, 0)),
    "hooks": Field(decode=_list(_object(_HOOK, pointer=True))),
    "mounts": Field(decode=_list(_object(_MOUNT, pointer=True))),
    "intelRdt": Field(decode=_object(_RDT, pointer=True), since=(0, 7, 0)),
    "additionalGids": Field(decode=_list(_integer(0, _MAX_UINT32)), since=(0, 7, 0)),
}
_EDITS_FIELD = Field(decode=_object(_EDITS, pointer=False))
_ANNOTATIONS = Field(decode=_texts_by_key, since=(0, 6, 0))
_DEVICE = {"name": _TEXT, "annotations": _ANNOTATIONS, "containerEdits": _EDITS_FIELD}
_SPEC = {
    "cdiVersion": _TEXT,
    "kind": _TEXT,
    "annotations": _ANNOTATIONS,
    "devices": Field(decode=_list(_object(_DEVICE, pointer=False))),
    "containerEdits": _EDITS_FIELD,
}
