"""The CDI library's data types, and how its JSON decoder fills them from what YAML gave.

The decoder is Go's: a field's name matches in any case, a null leaves the zero value, numbers and
booleans become text where text is wanted (sigs.k8s.io/yaml does that), an unknown field refuses the
whole file, and two fields that differ only in case fill the same place one after the other.
Source: specs-go/config.go of the tags v0.5.2 to v1.1.0; Go, encoding/json, decode.go.
"""

from __future__ import annotations

from cdigen.spec.loader_changes import has_field
from cdigen.spec.yaml_scalars import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.spec.loader_changes import Release

    # Takes a value and what its place holds already; None stands for nil and for a zero value.
    Decode = Callable[[object, object], object]

_MAX_UINT32 = 2**32 - 1
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
# From here on Go's encoder writes a float with an exponent, which its decoder takes for no integer.
_MAX_PLAIN_FLOAT = 1e21


class RefusedError(Exception):
    """Says that a library refuses the document; the text is for debugging only."""


def decode_document(value: object, release: Release) -> dict[str, object]:
    """Return VALUE as the ``Spec`` of library RELEASE; RefusedError where its decoder refuses it.

    Every field that the release has is there, named as in JSON; absent ones have Go's zero value,
    which is None for lists, maps and pointers.
    """
    document = _spec(release)(value, None)
    if value is None or not isinstance(document, dict):
        raise RefusedError("no Spec data")
    return document


def _struct(release: Release, fields: dict[str, Decode], *, is_pointer: bool = False) -> Decode:
    """Return the decoder of a struct with those FIELDS that RELEASE has, or of a pointer to it."""
    known = {name: decode for name, decode in fields.items() if has_field(name, release)}
    zero = {name: decode(None, None) for name, decode in known.items()}
    folded = {name.casefold(): name for name in known}

    def name_of(key: str) -> str:
        name = key if key in known else folded.get(key.casefold())
        if name is None or len(name) != len(key):
            raise RefusedError(f"unknown field {key!r}")
        return name

    def decode(value: object, old: object) -> object:
        if value is None:
            return None if is_pointer else old or zero
        if not isinstance(value, dict):
            raise RefusedError(f"{type(value).__name__} where an object is wanted")
        filled = dict(old if isinstance(old, dict) else zero)
        # encoding/json writes a map's keys in the order of their bytes, so that is how they are read.
        for key in sorted(value):
            name = name_of(key)
            filled[name] = known[name](value[key], filled[name])
        return filled

    return decode


def _list(item: Decode) -> Decode:
    """Return the decoder of a slice; null makes it nil, and what was there is filled once more."""

    def decode(value: object, old: object) -> object:
        if value is None:
            return None
        if not isinstance(value, list):
            raise RefusedError(f"{type(value).__name__} where a list is wanted")
        if not isinstance(old, list):
            return [item(entry, None) for entry in value]
        missing = len(value) - len(old)
        return [item(entry, before) for entry, before in zip(value, old + [None] * missing, strict=False)]

    return decode


def _integer(minimum: int, maximum: int, *, zero: int | None) -> Decode:
    """Return the decoder of an integer within MINIMUM and MAXIMUM; ZERO is None for a pointer to one."""

    def decode(value: object, old: object) -> object:
        if value is None:
            return zero if zero is None or old is None else old
        if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_PLAIN_FLOAT:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise RefusedError("something else where an integer is wanted")
        return value

    return decode


def _text(value: object, old: object) -> object:
    if isinstance(value, str):
        return value
    if value is None:
        return old or ""
    text = as_text(value)
    if text is None:
        raise RefusedError(f"{type(value).__name__} where a text is wanted")
    return text


def _bool(value: object, old: object) -> object:
    if value is None:
        return bool(old)
    if not isinstance(value, bool):
        raise RefusedError(f"{type(value).__name__} where a boolean is wanted")
    return value


def _texts_by_key(value: object, old: object) -> object:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RefusedError(f"{type(value).__name__} where an object is wanted")
    before = old if isinstance(old, dict) else {}
    return {**before, **{key: _text(text, None) for key, text in value.items()}}


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


def _edits(release: Release) -> Decode:
    fields: dict[str, Decode] = {
        "env": _TEXTS,
        "deviceNodes": _list(_struct(release, _NODE, is_pointer=True)),
        "netDevices": _list(_struct(release, _NET_DEVICE, is_pointer=True)),
        "hooks": _list(_struct(release, _HOOK, is_pointer=True)),
        "mounts": _list(_struct(release, _MOUNT, is_pointer=True)),
        "intelRdt": _struct(release, _RDT, is_pointer=True),
        "additionalGids": _list(_UINT32),
    }
    return _struct(release, fields)


def _spec(release: Release) -> Decode:
    edits = _edits(release)
    device = _struct(release, {"name": _text, "annotations": _texts_by_key, "containerEdits": edits})
    fields: dict[str, Decode] = {
        "cdiVersion": _text,
        "kind": _text,
        "annotations": _texts_by_key,
        "devices": _list(device),
        "containerEdits": edits,
    }
    return _struct(release, fields)
