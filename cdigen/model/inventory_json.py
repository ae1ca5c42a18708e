"""Inventories as JSON documents: ``cdigen inspect --json`` writes them, ``--inventory`` reads them.

The document is ``{"schema": 1, "vendors": {NAME: inventory}}``; an inventory has the fields of
``cdigen.model.inventory`` by their names (``schemas/inventory.schema.json``). A document may come
from a stranger: reading is strict, and names the first place that is wrong.
"""

from __future__ import annotations

from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding
from cdigen.model.inventory import (
    SCHEMA_VERSION,
    Accelerator,
    Driver,
    DriverFile,
    Group,
    GroupDevice,
    HostNode,
    Inventory,
    Partition,
    Sought,
)
from cdigen.value import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Reader = Callable[[object, str], Any]

MAX_NUMBER = (1 << 32) - 1


def to_document(inventories: Mapping[str, Inventory]) -> dict[str, Any]:
    """Return the JSON document of the inventories of one host, by the names of their vendors."""
    return {
        "schema": SCHEMA_VERSION,
        "vendors": {name: _plain(inventory) for name, inventory in inventories.items()},
    }


def from_document(document: object) -> dict[str, Inventory]:
    """Return the inventories in DOCUMENT; raises ConfigError naming the JSON path that is wrong."""
    top = _object(document, "$", {"schema", "vendors"})
    if top["schema"] != SCHEMA_VERSION or isinstance(top["schema"], bool):
        given = repr(top["schema"])[:40]
        raise ConfigError(
            f"$.schema is {given}; this cdigen reads inventories of schema {SCHEMA_VERSION}",
            hint="make it with 'cdigen inspect --json' of the same version",
            kind="inventory",
        )
    vendors = top["vendors"]
    if not isinstance(vendors, dict):
        raise _wrong("$.vendors", "an object")
    inventories = {}
    for name, value in vendors.items():
        path = f"$.vendors.{name}"
        inventories[name] = inventory = _INVENTORY(value, path)
        if inventory.vendor != name:
            raise _wrong(f"{path}.vendor", "the name under which it stands")
    return inventories


def _plain(value: object) -> Any:
    if names := fields(value):
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _wrong(path: str, wanted: str) -> ConfigError:
    # Names of fields are the document's, too: they may be long and hold anything.
    where = path if path.isprintable() else ascii(path)[1:-1]
    return ConfigError(
        f"{where[:200]} in the inventory is not {wanted}",
        hint="make it with 'cdigen inspect --json'",
        kind="inventory",
    )


def _object(value: object, path: str, names: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(path, "an object")
    if missing := sorted(names - value.keys()):
        raise _wrong(f"{path}.{missing[0]}", "there, but it has to be")
    if unknown := sorted(value.keys() - names):
        raise _wrong(f"{path}.{unknown[0]}", "a field of this schema")
    return value


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, "text")
    if not value.isprintable():
        raise _wrong(path, "free of control characters")
    return value


def _path(value: object, path: str) -> str:
    text = _text(value, path)
    if not text.startswith("/") or any(part in {".", ".."} for part in text.split("/")):
        raise _wrong(path, "an absolute path without '.' and '..'")
    return text


def _relative_path(value: object, path: str) -> str:
    text = _text(value, path)
    if any(part in {"", ".", ".."} for part in text.split("/")):
        raise _wrong(path, "a relative path without '.' and '..'")
    return text


def _number(value: object, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_NUMBER:
        raise _wrong(path, f"a whole number from 0 to {MAX_NUMBER}")
    return value


def _flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(path, "true or false")
    return value


def _optional(reader: Reader) -> Reader:
    return lambda value, path: None if value is None else reader(value, path)


def _one_of(*words: str) -> Reader:
    def read(value: object, path: str) -> str:
        if value not in words:
            raise _wrong(path, f"one of {', '.join(words)}")
        return str(value)

    return read


def _many(reader: Reader) -> Reader:
    def read(value: object, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _wrong(path, "a list")
        return tuple(reader(item, f"{path}[{position}]") for position, item in enumerate(value))

    return read


def _record(cls: type, **readers: Reader) -> Reader:
    def read(value: object, path: str) -> Any:
        values = _object(value, path, set(readers))
        return cls(**{name: reader(values[name], f"{path}.{name}") for name, reader in readers.items()})

    return read


_TEXTS = _many(_text)
_NODE = _record(
    HostNode,
    path=_path,
    host_path=_path,
    role=_text,
    major=_number,
    minor=_number,
    mode=_number,
    uid=_number,
    gid=_number,
    capabilities=_TEXTS,
)
_FILE = _record(
    DriverFile,
    kind=_one_of("library", "library32", "binary", "firmware", "config", "module", "socket", "pipe"),
    host_path=_path,
    capabilities=_TEXTS,
    names=_many(_relative_path),
    targets=_many(_path),
)
_PARTITION = _record(
    Partition,
    index=_number,
    uuid=_optional(_text),
    profile=_text,
    instance=_text,
    graphics=_flag,
    nodes=_many(_NODE),
    usable=_flag,
    problem=_text,
)
_GROUP = _record(
    Group,
    device_class=_text,
    devices=_many(_record(GroupDevice, name=_text, nodes=_many(_NODE))),
    files=_many(_FILE),
)
_INVENTORY = _record(
    Inventory,
    vendor=_text,
    driver=_record(Driver, version=_text, flavour=_text, architecture=_text),
    accelerators=_many(
        _record(
            Accelerator,
            index=_number,
            address=_text,
            model=_text,
            uuid=_optional(_text),
            minor=_optional(_number),
            nodes=_many(_NODE),
            usable=_flag,
            problem=_text,
            partitioned=_flag,
            partitions=_many(_PARTITION),
        )
    ),
    nodes=_many(_NODE),
    files=_many(_FILE),
    sought=_many(
        _record(
            Sought,
            name=_text,
            kind=_text,
            capabilities=_TEXTS,
            weight=_one_of("required", "core", "optional"),
            found=_TEXTS,
            reason=_text,
        )
    ),
    findings=_many(
        _record(
            Finding,
            severity=_one_of("error", "warning", "info"),
            rule=_text,
            path=_text,
            message=_text,
            hint=_text,
        )
    ),
    mode=_one_of("gpu", "wsl", "csv"),
    groups=_many(_GROUP),
)
