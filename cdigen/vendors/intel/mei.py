"""Read the nodes by which a discrete GPU's firmware is reached (graphics system controller, GSC).

i915 and xe make auxiliary devices of a GPU, ``i915.mei-gsc.<n>``, ``i915.mei-gscfi.<n>`` and
``xe.mei-gscfi.<n>`` in its folder of /sys; the module mei_gsc makes a node of each, ``mei/mei1``
(drivers/misc/mei/gsc-me.c). By gscfi the firmware of a GPU is read, and written: xpu-smi, igsc and fwupd do.
So these nodes are a kind of their own, ``intel.com/gpu-mei``, and no part of a GPU's device. A GPU that is in
survivability mode, for want of whole firmware, is offered here alone.

The processor's own engine (/dev/mei0, mostly) is never offered.
"""

from __future__ import annotations

import re

from cdigen.host.procfs import number_behind
from cdigen.model.inventory import Accelerator
from cdigen.vendors.intel.presence import MEI, MEI_ROLE
from cdigen.vendors.kernel import drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.model.inventory import HostNode
    from cdigen.vendors.intel.pci import PciFunction
    from cdigen.vendors.kernel.scan import NodeScan

_AUXILIARY = re.compile(r"(?:i915|xe)\.mei-gsc(?:fi)?\.[0-9]+")


def read_meis(scan: NodeScan, served: Iterable[tuple[PciFunction, Accelerator]]) -> tuple[Accelerator, ...]:
    """Read the nodes of each GPU of SERVED that has such; one that cannot be used is a warning."""
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
                text = f"{function.word}: {problem}; its firmware cannot be reached by it"
                scan.collector.add("warning", "mei-node-unusable", where, text, drm.UDEV_HINT)
