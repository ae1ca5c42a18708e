"""Hosts with AMD's GPUs for the tests: discovery, and the devices of the specs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.hosts import amd_tree
from support.hosts.discovery import documents, node_paths, refused

from cdigen.host.root import Root
from cdigen.model.profile import DEFAULT
from cdigen.value import replace
from cdigen.vendors.amd.vendor import VENDOR
from cdigen.vendors.context import DiscoveryContext

if TYPE_CHECKING:
    from pathlib import Path

    from support.hosts.amd_tree import AmdGpu

    from cdigen.model.errors import HostError
    from cdigen.model.inventory import Inventory


def places(root: Path, *, rocm: bool = False) -> DiscoveryContext:
    host = Root(str(root))
    options = {"amd": {"rocm_libraries": True}} if rocm else {}
    return DiscoveryContext(host=host, driver=host, dev=host, options=options)


def discover(root: Path, *gpus: AmdGpu, spelling: str = amd_tree.UNDERSCORE) -> Inventory:
    """Write the files of GPUS, if any, and return the inventory of the host."""
    if gpus:
        amd_tree.write(root, gpus, spelling=spelling)
    return VENDOR.discover(places(root))


def refusal(root: Path) -> HostError:
    """Return the error that ends discovery, with its hint."""
    return refused(discover, root)


def document(root: Path, inventory: Inventory, **profile: object) -> dict[str, Any]:
    """Return the checked spec of INVENTORY for the default profile with the fields PROFILE."""
    made = documents(places(root).host, inventory, replace(DEFAULT, **profile))
    return next(iter(made.values()), {"devices": []})


def offered(root: Path, inventory: Inventory | None = None, **profile: object) -> dict[str, list[str]]:
    """Return the devices of the spec: device -> paths of its nodes in a container."""
    return node_paths(document(root, discover(root) if inventory is None else inventory, **profile))


def numbered(offers: dict[str, list[str]]) -> list[str]:
    """Return the render nodes of the devices whose names are numbers, in the order of these numbers."""
    numbers = sorted(int(name) for name in offers if name.isdigit())
    assert numbers == list(range(len(numbers)))
    return [next(path for path in offers[str(number)] if "renderD" in path) for number in numbers]


def rules(inventory: Inventory) -> list[tuple[str, str]]:
    """Return the findings, each as its severity and its rule."""
    for finding in inventory.findings:
        assert finding.message.isprintable(), finding
        assert finding.hint.isprintable(), finding
    return [(finding.severity, finding.rule) for finding in inventory.findings]
