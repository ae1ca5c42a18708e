"""Hosts with Intel's accelerators for the tests: discovery, and the devices of the specs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.hosts.discovery import documents, node_paths, refused
from support.hosts.intel_tree import Device, lay

from cdigen.host.root import Root
from cdigen.vendors.context import DiscoveryContext
from cdigen.vendors.intel.vendor import VENDOR

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.errors import HostError
    from cdigen.model.inventory import Inventory


def places(root: Path, *, vfio: bool = False) -> DiscoveryContext:
    host = Root(str(root))
    return DiscoveryContext(host=host, driver=host, dev=host, options={"intel": {"vfio": vfio}})


def discover(root: Path, *devices: Device, vfio: bool = False) -> Inventory:
    """Write the files of DEVICES, if any, and return the inventory of the host."""
    if devices:
        lay(root, *devices)
    return VENDOR.discover(places(root, vfio=vfio))


def refusal(root: Path) -> HostError:
    """Return the error that ends discovery, with its hint."""
    return refused(lambda place: VENDOR.discover(places(place)), root)


def kinds(root: Path, inventory: Inventory) -> dict[str, dict[str, list[str]]]:
    """Return the devices of the checked specs: kind -> device -> paths of its nodes in a container."""
    return {kind: node_paths(made) for kind, made in documents(places(root).host, inventory).items()}


def offered(root: Path, *devices: Device, kind: str = "intel.com/gpu") -> dict[str, list[str]]:
    """Write DEVICES, if any, and return the devices of KIND with the paths of their nodes."""
    return kinds(root, discover(root, *devices))[kind]


def plain(paths: list[str]) -> list[str]:
    """Return PATHS without udev's names."""
    return [path for path in paths if "/by-path/" not in path]


def rules(inventory: Inventory) -> dict[str, str]:
    """Return the severity of the findings by rule; for several findings of a rule, of the last finding."""
    for finding in inventory.findings:
        assert finding.message.isprintable(), finding
    return {finding.rule: finding.severity for finding in inventory.findings}
