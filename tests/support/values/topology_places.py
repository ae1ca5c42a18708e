"""Accelerators with a position on the PCI bus, from a short text: ``gpu``."""

from typing import Any

from support.values.devices import accelerator

from cdigen.model.inventory import Accelerator, Link


def gpu(index: int, path: str = "", **more: Any) -> Accelerator:
    """Return the GPU INDEX whose folder in /sys is PATH: ``pci0000:40/0000:40:01.1/0000:41:00.0``."""
    *above, address = path.split("/")
    own = {"pci_path": tuple(above), "model": "Example", "uuid": f"GPU-{index}", "minor": index}
    return accelerator(index, address, **{**own, **more})


def links(technology: Any, **peers: int) -> tuple[Link, ...]:
    """Return links; PEERS has the number of links by peer: ``b5`` is 0000:b5:00.0, ``switch`` a switch."""
    return tuple(
        Link(
            peer="" if peer == "switch" else f"0000:{peer.removeprefix('at_')}:00.0",
            technology=technology,
            count=count,
        )
        for peer, count in peers.items()
    )
