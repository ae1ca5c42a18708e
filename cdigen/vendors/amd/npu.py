"""Read the NPUs of amdxdna; each is one accelerator node (drivers/accel/amdxdna makes no other).

The index counts them by their PCI addresses; there has been one in a processor so far.
"""

from __future__ import annotations

from cdigen.host import sysfs
from cdigen.host.procfs import read_text
from cdigen.model.inventory import Accelerator
from cdigen.vendors.kernel import drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.findings import FindingCollector
    from cdigen.vendors.kernel.nodes import NodeReader

MODULE = "/sys/module/amdxdna"
DRIVER = "/sys/bus/pci/drivers/amdxdna"
NPU = "npu"
# PCI's numbers (drivers/accel/amdxdna/amdxdna_pci_drv.c, pci_ids).
_MODELS = {"0x1502": "Ryzen AI NPU (Phoenix, Hawk Point)", "0x17f0": "Ryzen AI NPU (Strix, Krackan)"}


def addresses(host: Root) -> tuple[str, ...]:
    """Return the addresses of the NPUs that amdxdna has, in their order."""
    found = [name for name in host.names(DRIVER) if sysfs.pci_key(name) is not None]
    return tuple(sorted(found, key=lambda name: sysfs.pci_key(name) or ()))


def read_npus(host: Root, reader: NodeReader, collector: FindingCollector) -> tuple[Accelerator, ...]:
    """Read the NPUs that their driver has; each problem is a finding of COLLECTOR."""
    return tuple(
        _read(host, reader, collector, index, address) for index, address in enumerate(addresses(host))
    )


def _read(
    host: Root, reader: NodeReader, collector: FindingCollector, index: int, address: str
) -> Accelerator:
    folder = f"{DRIVER}/{address}"
    minor = next(iter(drm.minors(host, folder, "accel")), None)
    node, problem = None, "its driver shows no node of it"
    if minor is not None:
        node, problem = drm.read_node(reader, minor, folder)
    if node is None:
        collector.add(
            "error",
            "accel-node-missing" if minor else "accel-without-node",
            minor.path if minor else folder,
            f"NPU {index} ({address}) gets no device: {problem}",
            drm.UDEV_HINT if minor else "see 'dmesg | grep amdxdna'",
        )
    device_id = _line(host, f"{folder}/device")
    return Accelerator(
        index=index,
        address=address,
        model=_MODELS.get(device_id, f"AMD NPU {device_id}".rstrip()),
        uuid=None,
        minor=minor.number if minor else None,
        nodes=(node,) if node else (),
        usable=node is not None,
        problem=problem,
        device_class=NPU,
        device_id=device_id,
    )


def _line(host: Root, path: str) -> str:
    try:
        text = read_text(host, path).strip()
    except OSError:
        return ""
    return text if text.isprintable() else ""
