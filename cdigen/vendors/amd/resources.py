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
    from cdigen.model.inventory import Accelerator

# If a GPU can be partitioned but is not, ``gpus`` appends the modes to its model name, such as "AMD Instinct
# MI300X (SPX, NPS1)".
MODES = re.compile(r" \(([A-Z]+), (NPS[0-9]+)\)$")


def profile_of(gpu: Accelerator) -> str:
    """Return the modes of a GPU without partitions, as in AMD's plugin (``spx_nps1``), or "".

    The result is empty if the model name contains no modes.
    """
    found = MODES.search(gpu.model)
    return "_".join(found.groups()).lower() if found else ""


RESOURCES = (
    ResourceNames(
        device_class="gpu",
        name="amd.com/gpu",
        partition="amd.com/{profile}",
        profile_of=profile_of,
        strategy_key="amd_strategy",
    ),
    ResourceNames(device_class="npu", name="amd.com/npu"),
)
