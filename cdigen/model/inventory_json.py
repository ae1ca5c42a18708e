"""Inventories as JSON documents: ``cdigen inspect --json`` writes the documents, ``--inventory`` reads them.

The document is ``{"schema": 1, "vendors": {NAME: inventory}}``; an inventory has the fields of
``cdigen.model.inventory`` (``schemas/inventory.schema.json``). A document may be untrusted. Therefore
the reader is strict, and its error names the first invalid JSON path.
"""

from __future__ import annotations

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
    many,
    matching,
    members,
    one_of,
    optional,
    record,
    text,
    typed_record,
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
        inventories[name] = inventory = INVENTORY(value, path)
        if inventory.vendor != name:
            raise InvalidValue(f"{path}.vendor", "equal to its key in $.vendors")
    return inventories


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


# The machine name becomes a part of the paths of library folders.
_machine = matching(r"[A-Za-z0-9_]+", "the kernel's name for a machine, such as x86_64")
cuda_version = matching(r"[0-9]{1,3}\.[0-9]{1,2}", "a version of CUDA, such as 12.4")
_technology = matching(r"[a-z][a-z0-9]{1,15}", "a technology of links, such as nvlink")
NODE = typed_record(HostNode, path=_path, host_path=_path)
FILE = typed_record(
    DriverFile,
    kind=one_of(
        "library", "library32", "binary", "firmware", "config", "config32", "module", "socket", "pipe"
    ),
    host_path=_path,
    names=many(_relative_path),
    targets=many(_path),
)
_HEALTH = one_of("healthy", "unhealthy", "unknown")
_CAUSES = many(typed_record(Cause, "next_step"))
# The fields that inventories of earlier versions lack.
_LATER_OF_PARTITION = ("address", "ordinal", "health", "causes", "memory_mib", "excluded")
_LATER = ("device_class", "device_id", "pci_path", "numa_node", "cpus", "links", "island", "kernel_driver")
_PARTITION = typed_record(Partition, *_LATER_OF_PARTITION, nodes=many(NODE), health=_HEALTH, causes=_CAUSES)
_GROUP = typed_record(Group, devices=many(typed_record(GroupDevice, nodes=many(NODE))), files=many(FILE))
LINK = typed_record(Link, technology=_technology)
LINKS = many(LINK)
_ACCELERATOR = typed_record(
    Accelerator,
    *(*_LATER, "health", "causes", "memory_mib", "excluded"),
    nodes=many(NODE),
    partitions=many(_PARTITION),
    links=LINKS,
    health=_HEALTH,
    causes=_CAUSES,
)
FINDING = record(
    Finding, severity=one_of("error", "warning", "info"), rule=text, path=text, message=text, hint=text
)
INVENTORY = typed_record(
    Inventory,
    driver=typed_record(Driver, "cuda", architecture=_machine, cuda=optional(cuda_version)),
    accelerators=many(_ACCELERATOR),
    nodes=many(NODE),
    files=many(FILE),
    searched=many(typed_record(ProbeResult, weight=one_of("required", "core", "optional"))),
    findings=many(FINDING),
    mode=one_of("gpu", "wsl", "csv", "management"),
    groups=many(_GROUP),
)
