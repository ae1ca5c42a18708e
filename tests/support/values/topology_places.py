"""Accelerators at places of a machine, from a few words: ``gpu``."""

from typing import Any

from cdigen.model.inventory import Accelerator, Driver, Inventory, Link


def gpu(index: int, path: str = "", **more: Any) -> Accelerator:
    """Return the GPU INDEX whose folder in /sys is PATH: ``pci0000:40/0000:40:01.1/0000:41:00.0``."""
    *above, address = path.split("/")
    values: dict[str, Any] = {
        "index": index,
        "address": address,
        "pci_path": tuple(above),
        "model": "Example",
        "uuid": f"GPU-{index}",
        "minor": index,
        "nodes": (),
        "usable": True,
        **more,
    }
    return Accelerator(**values)


def links(technology: Any, **peers: int) -> tuple[Link, ...]:
    """Return links, so many to each of PEERS: ``b5`` stands for 0000:b5:00.0, ``switch`` for a switch."""
    return tuple(
        Link(
            peer="" if peer == "switch" else f"0000:{peer.removeprefix('at_')}:00.0",
            technology=technology,
            count=count,
        )
        for peer, count in peers.items()
    )


def inventory(vendor: str, *gpus: Accelerator) -> Inventory:
    """Return an inventory of VENDOR that has GPUS and nothing else."""
    driver = Driver(version="550.163.01", flavour="open", architecture="x86_64")
    return Inventory(
        vendor=vendor, driver=driver, accelerators=gpus, nodes=(), files=(), sought=(), findings=()
    )
