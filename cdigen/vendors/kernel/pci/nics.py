"""List the RDMA network cards and their places in the PCI topology (``read_nics``).

The names and formats of the files are from the kernel's Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import re

from cdigen.host.root import shown
from cdigen.host.sysfs import pci_address
from cdigen.value import frozen
from cdigen.vendors.kernel.pci.place import PlaceReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

CLASS = "/sys/class/infiniband"


@frozen
class Nic:
    """A network card.

    ``name`` is the kernel's name (``mlx5_0``). The other fields are the same as in ``Accelerator``.
    """

    name: str
    address: str
    pci_path: tuple[str, ...]
    numa_node: int | None


def read_nics(host: Root) -> tuple[Nic, ...]:
    """Return the RDMA network cards on the PCI bus of HOST, mlx5_2 before mlx5_10.

    Cards without a readable PCI address are left out.
    """
    reader = PlaceReader(host)
    return tuple(
        Nic(
            name=shown(name),
            address=address,
            pci_path=reader.path(address),
            numa_node=reader.numa_node(address),
        )
        for name in sorted(host.names(CLASS), key=_order)
        if (address := _address(host, name))
    )


def _address(host: Root, name: str) -> str:
    try:
        folder = host.directory(f"{CLASS}/{name}/device")
    except OSError:
        return ""
    return pci_address(folder.rpartition("/")[2]) or ""


def _order(name: str) -> list[tuple[str, int]]:
    return [(text, int(digits or "0")) for text, digits in re.findall(r"(\D*)(\d{0,9})", name)]
