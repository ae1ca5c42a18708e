"""What pods ask for to get Intel's GPUs, NPUs and Gaudis.

The names are those of Intel's device plugins (intel-device-plugins-for-kubernetes 0.36, cmd/gpu_plugin and
cmd/npu_plugin) and of Habana's. A GPU's is that of its driver in the kernel.
"""

from __future__ import annotations

import re

from cdigen.vendors.base import ResourceNames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator

# As ``gpu.model_of`` has it.
_PARENT = re.compile(r", virtual function(?: [0-9]+)? of (.+)")


def with_virtual_functions(accelerators: tuple[Accelerator, ...]) -> dict[str, str]:
    """Return the GPUs that have virtual functions: their memory and time is these'.

    Intel's plugin leaves them out, too (cmd/gpu_plugin/gpu_plugin.go).
    """
    found = (_PARENT.search(each.model) for each in accelerators)
    parents = {match[1] for match in found if match}
    return {
        each.address: "its virtual functions are offered instead of it"
        for each in accelerators
        if each.address in parents
    }


RESOURCES = (
    ResourceNames(
        device_class="gpu",
        kernel_driver="i915",
        name="gpu.intel.com/i915",
        left_out=with_virtual_functions,
    ),
    ResourceNames(
        device_class="gpu", kernel_driver="xe", name="gpu.intel.com/xe", left_out=with_virtual_functions
    ),
    ResourceNames(device_class="npu", name="npu.intel.com/accel"),
    ResourceNames(device_class="gaudi", name="habana.ai/gaudi"),
)
