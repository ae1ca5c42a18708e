"""Accelerators, device nodes and inventories; a test sets only the fields that it needs."""

from typing import Any

from cdigen.model.inventory import Accelerator, Driver, HostNode, Inventory, Partition

DRIVER = Driver(version="550.163.01", flavour="open", architecture="x86_64")


def accelerator(index: int = 0, address: str = "", **more: Any) -> Accelerator:
    """Return a usable accelerator without a model, a UUID and nodes; MORE replaces and adds fields."""
    plain: dict[str, Any] = {"model": "", "uuid": None, "minor": None, "nodes": (), "usable": True}
    return Accelerator(index=index, address=address, **{**plain, **more})


def partition(instance: str, index: int = 0, **more: Any) -> Partition:
    """Return a usable partition 1g.10gb without a UUID and nodes; MORE replaces and adds fields."""
    plain: dict[str, Any] = {
        "uuid": None,
        "profile": "1g.10gb",
        "graphics": False,
        "nodes": (),
        "usable": True,
    }
    return Partition(index=index, instance=instance, **{**plain, **more})


def host_node(path: str, role: str = "gpu", **more: Any) -> HostNode:
    """Return an NVIDIA GPU's node, at the same path on the host; MORE replaces and adds fields."""
    plain: dict[str, Any] = {"host_path": path, "major": 195, "minor": 0, "mode": 0o666, "uid": 0, "gid": 0}
    return HostNode(path=path, role=role, **{**plain, **more})


def inventory(vendor: str, *accelerators: Accelerator, **more: Any) -> Inventory:
    """Return an inventory of VENDOR with only ACCELERATORS; MORE replaces and adds fields."""
    plain: dict[str, Any] = {"driver": DRIVER, "nodes": (), "files": (), "searched": (), "findings": ()}
    return Inventory(vendor=vendor, accelerators=accelerators, **{**plain, **more})
