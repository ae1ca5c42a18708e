"""Inventories as JSON documents: ``cdigen inspect --json`` writes the documents, ``--inventory`` reads them.

The document is ``{"schema": 1, "vendors": {NAME: inventory}}``; an inventory has the fields of
``cdigen.model.inventory`` (``schemas/inventory.schema.json``). A document may be untrusted. Therefore
the reader is strict, and its error names the first invalid JSON path.
"""

from __future__ import annotations

import re

from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding
from cdigen.model.health import Cause
from cdigen.model.inventory import (
    SCHEMA_VERSION,
    Accelerator,
    Driver,
    DriverFile,
    Group,
    GroupDevice,
    HostNode,
    Inventory,
    Link,
    Partition,
    ProbeResult,
)
from cdigen.model.strict import (
    InvalidValue,
    as_json,
    flag,
    many,
    members,
    number,
    one_of,
    optional,
    record,
    text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def to_document(inventories: Mapping[str, Inventory]) -> dict[str, Any]:
    """Return the JSON document of one host's INVENTORIES, which maps vendor names to inventories."""
    return {
        "schema": SCHEMA_VERSION,
        "vendors": {name: as_json(inventory) for name, inventory in inventories.items()},
    }


def from_document(document: object) -> dict[str, Inventory]:
    """Return the inventories in DOCUMENT; raises ConfigError with the first invalid JSON path."""
    try:
        return _inventories(document)
    except InvalidValue as wrong:
        raise ConfigError(
            f"{wrong.path} in the inventory is not {wrong.expected}",
            hint="create the inventory with 'cdigen inspect --json'",
            kind="inventory",
        ) from None


def _inventories(document: object) -> dict[str, Inventory]:
    top = members(document, "$", {"schema", "vendors"})
    if top["schema"] != SCHEMA_VERSION or isinstance(top["schema"], bool):
        schema = repr(top["schema"])[:40]
        raise ConfigError(
            f"$.schema is {schema}; this cdigen reads inventories of schema {SCHEMA_VERSION}",
            hint="create the inventory with 'cdigen inspect --json' of the same version",
            kind="inventory",
        )
    vendors = top["vendors"]
    if not isinstance(vendors, dict):
        raise InvalidValue("$.vendors", "an object")
    inventories = {}
    for name, value in vendors.items():
        path = f"$.vendors.{name}"
        inventories[name] = inventory = _INVENTORY(value, path)
        if inventory.vendor != name:
            raise InvalidValue(f"{path}.vendor", "equal to its key in $.vendors")
    return inventories


def _machine(value: object, path: str) -> str:
    plain = text(value, path)
    # The machine name becomes a part of the paths of library folders.
    if not plain or not all(
        character.isascii() and (character.isalnum() or character == "_") for character in plain
    ):
        raise InvalidValue(path, "the kernel's name for a machine, such as x86_64")
    return plain


def _cuda(value: object, path: str) -> str:
    plain = text(value, path)
    if not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,2}", plain, re.ASCII):
        raise InvalidValue(path, "a version of CUDA, such as 12.4")
    return plain


def _path(value: object, path: str) -> str:
    plain = text(value, path)
    if not plain.startswith("/") or any(part in {".", ".."} for part in plain.split("/")):
        raise InvalidValue(path, "an absolute path without '.' and '..'")
    return plain


def _relative_path(value: object, path: str) -> str:
    plain = text(value, path)
    if any(part in {"", ".", ".."} for part in plain.split("/")):
        raise InvalidValue(path, "a relative path without '.' and '..'")
    return plain


_TEXTS = many(text)
_NODE = record(
    HostNode,
    path=_path,
    host_path=_path,
    role=text,
    major=number,
    minor=number,
    mode=number,
    uid=number,
    gid=number,
    capabilities=_TEXTS,
)
_FILE = record(
    DriverFile,
    kind=one_of("library", "library32", "binary", "firmware", "config", "module", "socket", "pipe"),
    host_path=_path,
    capabilities=_TEXTS,
    names=many(_relative_path),
    targets=many(_path),
)
_HEALTH = one_of("healthy", "unhealthy", "unknown")
_CAUSES = many(
    record(Cause, "next_step", cause=text, since=text, detail=text, clears_when=text, next_step=text)
)
_PARTITION = record(
    Partition,
    "address",
    "ordinal",
    "health",
    "causes",
    "memory_mib",
    index=optional(number),
    uuid=optional(text),
    profile=text,
    instance=text,
    graphics=flag,
    nodes=many(_NODE),
    usable=flag,
    problem=text,
    address=text,
    ordinal=optional(number),
    health=_HEALTH,
    causes=_CAUSES,
    memory_mib=optional(number),
)
_GROUP = record(
    Group,
    device_class=text,
    devices=many(record(GroupDevice, name=text, nodes=many(_NODE))),
    files=many(_FILE),
)
LINKS = many(record(Link, peer=text, technology=one_of("nvlink", "xgmi", "xelink"), count=number))
_INVENTORY = record(
    Inventory,
    vendor=text,
    driver=record(
        Driver,
        "cuda",
        version=text,
        flavour=text,
        architecture=_machine,
        cuda=optional(_cuda),
    ),
    accelerators=many(
        record(
            Accelerator,
            "device_class",
            "device_id",
            "pci_path",
            "numa_node",
            "cpus",
            "links",
            "island",
            "health",
            "causes",
            "kernel_driver",
            "memory_mib",
            index=number,
            address=text,
            model=text,
            uuid=optional(text),
            minor=optional(number),
            nodes=many(_NODE),
            usable=flag,
            problem=text,
            partitioned=flag,
            partitions=many(_PARTITION),
            device_class=text,
            device_id=text,
            pci_path=_TEXTS,
            numa_node=optional(number),
            cpus=text,
            links=LINKS,
            island=text,
            health=_HEALTH,
            causes=_CAUSES,
            kernel_driver=text,
            memory_mib=optional(number),
        )
    ),
    nodes=many(_NODE),
    files=many(_FILE),
    searched=many(
        record(
            ProbeResult,
            name=text,
            kind=text,
            capabilities=_TEXTS,
            weight=one_of("required", "core", "optional"),
            found=_TEXTS,
            reason=text,
        )
    ),
    findings=many(
        record(
            Finding,
            severity=one_of("error", "warning", "info"),
            rule=text,
            path=text,
            message=text,
            hint=text,
        )
    ),
    mode=one_of("gpu", "wsl", "csv", "management"),
    groups=many(_GROUP),
)
