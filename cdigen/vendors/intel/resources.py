"""The extended resources of Intel's GPUs, NPUs and Gaudis.

Intel's device plugins (intel-device-plugins-for-kubernetes 0.36, cmd/gpu_plugin and cmd/npu_plugin) and
Habana's device plugin use the same names. The resource name of a GPU contains the name of its kernel driver.
"""

from __future__ import annotations

import re

from cdigen.vendors.base import ResourceNames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator, Partition

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


def claim_names(device: Accelerator, partition: Partition | None) -> tuple[str, ...]:
    """Return the name of DEVICE in Intel's DRA drivers (``0000-03-00-0-0x56c0``); Intel has no PARTITION.

    Source: intel/intel-resource-drivers-for-kubernetes gpu-v0.11, pkg/helpers, DeviceUIDFromPCIinfo.
    """
    if partition is not None or not device.device_id:
        return ()
    return (f"{device.address.replace(':', '-').replace('.', '-')}-{device.device_id}",)


RESOURCES = (
    ResourceNames(
        device_class="gpu",
        kernel_driver="i915",
        name="gpu.intel.com/i915",
        left_out=with_virtual_functions,
        claim_driver="gpu.intel.com",
        claim_names=claim_names,
    ),
    ResourceNames(
        device_class="gpu",
        kernel_driver="xe",
        name="gpu.intel.com/xe",
        left_out=with_virtual_functions,
        claim_driver="gpu.intel.com",
        claim_names=claim_names,
    ),
    ResourceNames(device_class="npu", name="npu.intel.com/accel"),
    ResourceNames(
        device_class="gaudi",
        name="habana.ai/gaudi",
        claim_driver="gaudi.intel.com",
        claim_names=claim_names,
    ),
)
