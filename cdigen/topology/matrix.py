"""The links of devices in the form of 'nvidia-smi topo -m': ``Matrix`` and its ``text``.

The form is identical to the form of NVIDIA's drivers from 535 on, in every character:

- Tabs separate columns.
- The cell of a device with itself is `` X ``.
- Two tabs follow the NUMA node.
- Rows of network cards end with the tabs only.

cdigen adds only the cells of other vendors' links, and their lines in the legend.
"""

from __future__ import annotations

from cdigen.topology.levels import LINKS, Relation, path, relation
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.topology.levels import PciDevice
    from cdigen.vendors.kernel.pci.place import Nic

_HEADER = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
# The NUMA node of a GPU's own memory (Grace). No inventory has this value.
_NO_NODE = "N/A"
_LEGEND = (
    ("X", "Self"),
    ("SYS", "Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)"),
    (
        "NODE",
        "Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
    ),
    ("PHB", "Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)"),
    ("PXB", "Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)"),
    ("PIX", "Connection traversing at most a single PCIe bridge"),
    ("NV#", "Connection traversing a bonded set of # NVLinks"),
)
# The names of technologies whose legend has another name than the matrix's cells.
_LINK_NAMES = {"xgmi": "XGMI links", "xelink": "Xe Links"}


@frozen
class MatrixDevice:
    """A device of the matrix: its ``label`` (``GPU0``), its vendor, and its entry in the inventory."""

    label: str
    vendor: str
    accelerator: Accelerator


@frozen
class Matrix:
    """The devices, the network cards with their labels, and the relations of all pairs (devices first)."""

    devices: tuple[MatrixDevice, ...]
    nics: tuple[tuple[str, Nic], ...]
    relations: tuple[tuple[Relation, ...], ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of rows and columns."""
        return (*(device.label for device in self.devices), *(label for label, _ in self.nics))


def matrix(devices: tuple[MatrixDevice, ...], nics: tuple[Nic, ...]) -> Matrix:
    """Return the matrix of DEVICES and NICS."""
    accelerators = tuple(device.accelerator for device in devices)
    every: tuple[PciDevice, ...] = (*accelerators, *nics)
    return Matrix(
        devices=devices,
        nics=tuple((f"NIC{number}", nic) for number, nic in enumerate(nics)),
        relations=(
            *(
                (
                    *(relation(one, other) for other in accelerators),
                    *(Relation(path=path(one, nic)) for nic in nics),
                )
                for one in accelerators
            ),
            *(tuple(Relation(path=path(nic, other)) for other in every) for nic in nics),
        ),
    )


def devices_of(inventories: Mapping[str, Inventory]) -> tuple[MatrixDevice, ...]:
    """Return the devices of INVENTORIES with their labels. A device with two entries is returned once.

    A label is the class and the number of the device. If several vendors have devices of a class, their
    numbers overlap. The label then has the vendor instead of the class (``amd0``).
    """
    every = [
        (vendor, gpu) for vendor, inventory in inventories.items() for gpu in _once(inventory.accelerators)
    ]
    vendors: dict[str, set[str]] = {}
    for vendor, gpu in every:
        vendors.setdefault(gpu.device_class, set()).add(vendor)
    return tuple(
        MatrixDevice(
            label=f"{vendor if len(vendors[gpu.device_class]) > 1 else gpu.device_class.upper()}{gpu.index}",
            vendor=vendor,
            accelerator=gpu,
        )
        for vendor, gpu in every
    )


def _once(accelerators: Iterable[Accelerator]) -> list[Accelerator]:
    """Return the first entry of each address in ACCELERATORS.

    A further entry of an address has the firmware nodes of the same GPU (class ``gpu-mei``).
    """
    found: dict[str, Accelerator] = {}
    for place, each in enumerate(accelerators):
        found.setdefault(each.address or f"-{place}", each)
    return list(found.values())


def text(shown: Matrix, *, header_as: Callable[[str], str] = str) -> str:
    """Return the text of the matrix SHOWN with its legends; HEADER_AS formats the header line."""
    header = "\t".join((*shown.labels, *_HEADER))
    lines = [f"\t{header_as(header)}"]
    for place, device in enumerate(shown.devices):
        gpu = device.accelerator
        node = "N/A" if gpu.numa_node is None else str(gpu.numa_node)
        lines.append(_row(shown, place, (gpu.cpus, node, "", _NO_NODE)))
    lines += [_row(shown, len(shown.devices) + place, ("",) * 4) for place in range(len(shown.nics))]
    lines += ["", "Legend:", "", *_legend(shown)]
    if shown.nics:
        lines += ["", "NIC Legend:", "", *(f"  {label}: {nic.name}" for label, nic in shown.nics)]
    return "\n".join((*lines, "", ""))


def _row(shown: Matrix, place: int, ending: tuple[str, ...]) -> str:
    cells = (relation.cell for relation in shown.relations[place])
    return "\t".join((shown.labels[place], *(" X " if cell == "X" else cell for cell in cells), *ending))


def _legend(shown: Matrix) -> list[str]:
    technologies = {relation.technology for row in shown.relations for relation in row} - {""}
    known = [name for name in LINKS if name in technologies]
    others = (_legend_of(name) for name in (*known, *sorted(technologies - LINKS.keys())) if name != "nvlink")
    return [f"  {word:<4} = {meaning}" for word, meaning in (*_LEGEND, *others)]


def _legend_of(technology: str) -> tuple[str, str]:
    name = _LINK_NAMES.get(technology, f"{technology} links")
    text = LINKS.get(technology, technology.upper())
    return f"{text}#", f"Connection traversing a bonded set of # {name}"
