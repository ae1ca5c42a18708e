"""The extended resources of Intel's GPUs, NPUs and Gaudis.

Intel's device plugins (intel-device-plugins-for-kubernetes 0.36, cmd/gpu_plugin and cmd/npu_plugin) and
Habana's device plugin use the same names. The resource name of a GPU contains the name of its kernel driver.
"""

from __future__ import annotations

import re

from cdigen.vendors.base import ResourceNames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator

# The end of the model name of a virtual function (``gpu.model_of``).
_PARENT = re.compile(r", virtual function(?: [0-9]+)? of (.+)")


def with_virtual_functions(accelerators: tuple[Accelerator, ...]) -> dict[str, str]:
    """Return the addresses of GPUs with virtual functions, and the reason not to advertise these GPUs.

    The virtual functions use the memory and the compute time of these GPUs. Intel's plugin also leaves these
    GPUs out (cmd/gpu_plugin/gpu_plugin.go).
    """
    found = (_PARENT.search(each.model) for each in accelerators)
    parents = {match[1] for match in found if match}
    return {
        each.address: "its virtual functions are advertised instead"
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
