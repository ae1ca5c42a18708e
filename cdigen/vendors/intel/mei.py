"""Read the firmware access nodes of a discrete GPU (graphics system controller, GSC).

i915 and xe create auxiliary devices in the GPU's folder in /sys: ``i915.mei-gsc.<n>``, ``i915.mei-gscfi.<n>``
and ``xe.mei-gscfi.<n>``. The module mei_gsc creates a node for each auxiliary device, such as ``mei/mei1``
(drivers/misc/mei/gsc-me.c). The tools xpu-smi, igsc and fwupd use the node of gscfi to read and write the
firmware of a GPU. Therefore, these nodes have a separate CDI kind, ``intel.com/gpu-mei``. They are not a part
of a GPU's CDI device. A GPU without valid firmware is in survivability mode. cdigen offers such a GPU only
with this kind.

cdigen never offers the management engine of the CPU (usually /dev/mei0).
"""

from __future__ import annotations

import re

from cdigen.host.procfs import number_behind
from cdigen.model.inventory import Accelerator
from cdigen.vendors.intel.presence import MEI, MEI_ROLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.model.inventory import HostNode
    from cdigen.vendors.intel.pci import PciFunction
    from cdigen.vendors.kernel.scan import NodeScan

_AUXILIARY = re.compile(r"(?:i915|xe)\.mei-gsc(?:fi)?\.[0-9]+")


def read_meis(scan: NodeScan, served: Iterable[tuple[PciFunction, Accelerator]]) -> tuple[Accelerator, ...]:
    """Return the firmware nodes of each GPU in SERVED; add a warning for each unusable node.

    GPUs without firmware nodes are left out.
    """
    found = []
    for function, gpu in served:
        nodes = tuple(_nodes(scan, function))
        if nodes:
            found.append(
                Accelerator(
                    index=gpu.index,
                    address=gpu.address,
                    model=f"firmware of {gpu.model}",
                    uuid=None,
                    minor=None,
                    nodes=nodes,
                    usable=True,
                    device_class=MEI,
                    device_id=gpu.device_id,
                )
            )
    return tuple(found)


def _nodes(scan: NodeScan, function: PciFunction) -> Iterator[HostNode]:
    for entry in sorted(filter(_AUXILIARY.fullmatch, function.entries)):
        folder = f"{function.folder}/{entry}/mei"
        for name in scan.host.names(folder):
            if number_behind("mei", name) is None:
                continue
            path = f"/dev/{name}"
            node, problem = scan.node(function.folder, path, MEI_ROLE, f"{folder}/{name}")
            if node is not None:
                yield node
            else:
                where = scan.dev.host_path(path)
                text = f"{function.word}: {problem}; programs cannot access the GPU's firmware with this node"
                scan.collector.add("warning", "mei-node-unusable", where, text, scan.nodes.remedy())
