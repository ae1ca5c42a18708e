"""The extended resources of AMD's GPUs, GPU partitions and NPUs.

AMD's device plugin uses the same names (ROCm/k8s-device-plugin 1.31, cmd/k8s-device-plugin). For partitions,
cdigen uses the names of the plugin's naming strategy ``mixed`` and the plugin's profiles (``cpx_nps1``). The
plugin has no name for NPUs. The resource of NPUs has the name of the CDI kind.
"""

from __future__ import annotations

import re

from cdigen.vendors.base import ResourceNames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator, Partition

# If a GPU can be partitioned but is not, ``gpus`` appends the modes to its model name, such as "AMD Instinct
# MI300X (SPX, NPS1)".
MODES = re.compile(r" \(([A-Z]+), (NPS[0-9]+)\)$")


def profile_of(gpu: Accelerator) -> str:
    """Return the modes of a GPU without partitions, as in AMD's plugin (``spx_nps1``), or "".

    The result is empty if the model name contains no modes.
    """
    found = MODES.search(gpu.model)
    return "_".join(found.groups()).lower() if found else ""


def claim_names(gpu: Accelerator, partition: Partition | None) -> tuple[str, ...]:
    """Return the name of GPU, or of its PARTITION, in AMD's DRA driver (``gpu-1-128``).

    The numbers are those of the card and of the render node (ROCm/k8s-gpu-dra-driver,
    cmd/gpu-kubeletplugin/deviceinfo.go).
    """
    nodes = {node.role: node for node in (partition or gpu).nodes}
    if "card" not in nodes or "render" not in nodes:
        return ()
    return (f"gpu-{nodes['card'].minor}-{nodes['render'].minor}",)


RESOURCES = (
    ResourceNames(
        device_class="gpu",
        name="amd.com/gpu",
        partition="amd.com/{profile}",
        profile_of=profile_of,
        strategy_key="amd_strategy",
        claim_driver="gpu.amd.com",
        claim_names=claim_names,
    ),
    ResourceNames(device_class="npu", name="amd.com/npu"),
)
