"""What pods ask for to get AMD's GPUs, partitions of them and NPUs.

The names are those of AMD's device plugin (ROCm/k8s-device-plugin 1.31, cmd/k8s-device-plugin), with
partitions those of its naming strategy ``mixed``; profiles have them in its spelling (``cpx_nps1``). For NPUs
it has no name: theirs is their kind.
"""

from __future__ import annotations

import re

from cdigen.vendors.base import ResourceNames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator

# As ``gpus`` ends the model of a whole GPU that could be split: AMD Instinct MI300X (SPX, NPS1).
_MODES = re.compile(r" \(([A-Z]+), (NPS[0-9]+)\)$")


def profile_of(gpu: Accelerator) -> str:
    """Return the modes of GPU, which is whole and could be split, as AMD's plugin names it: ``spx_nps1``."""
    found = _MODES.search(gpu.model)
    return "_".join(found.groups()).lower() if found else ""


RESOURCES = (
    ResourceNames(
        device_class="gpu", name="amd.com/gpu", partition="amd.com/{profile}", profile_of=profile_of
    ),
    ResourceNames(device_class="npu", name="amd.com/npu"),
)
