"""The NVIDIA device nodes that cdigen creates at boot (``BOOT_NODES``). The kernel does not create them."""

from __future__ import annotations

from cdigen.host.procfs import DEVICES
from cdigen.vendors.base import BootModule, BootNodes, NodesAtBoot
from cdigen.vendors.nvidia import platforms
from cdigen.vendors.nvidia.devices import caps
from cdigen.vendors.nvidia.devices.gpus import GPUS
from cdigen.vendors.nvidia.devices.nodes import PARAMETERS, REFUSAL, UVM, UVM_KERNEL_NAMES
from cdigen.vendors.nvidia.discovery import read_nodes
from cdigen.vendors.nvidia.kernel_module import VERSION_FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.context import DiscoveryContext

# 'nvidia-ctk system create-device-nodes --load-kernel-modules' loads the same modules. nvidia-modeset is for
# graphics. Some drivers for servers do not contain nvidia-modeset.
_MODULES = (
    BootModule(name=UVM, kernel_names=UVM_KERNEL_NAMES, is_required=True),
    BootModule(
        name="nvidia-modeset",
        kernel_names=("nvidia_modeset", "nvidia_current_modeset"),
        is_required=False,
        without="Vulkan and programs that use displays fail in containers",
    ),
)
# The roles of the nodes that compute containers need.
_REQUIRED = frozenset({"control", "uvm", "gpu", "capability"})


def applies(context: DiscoveryContext) -> bool:
    """Return whether the driver is loaded on a host other than WSL2 and Tegra boards.

    WSL2 and Tegra boards have other device nodes.
    """
    if not context.host.exists(VERSION_FILE):
        return False
    return not (platforms.is_wsl(context) or platforms.is_tegra(context))


def read(context: DiscoveryContext) -> NodesAtBoot:
    """Return the nodes of GPUs, of MIG capabilities, of the devices in ``families``, and of the driver.

    The function does not query NVML. It raises HostError if the driver's list of GPUs cannot be read.
    """
    nodes = read_nodes(context)
    return NodesAtBoot(
        present=tuple(nodes.present),
        missing=tuple(nodes.missing),
        wrong=tuple(nodes.wrong),
        lacking=tuple(path for role, path in nodes.absent if role in _REQUIRED),
        refusal="" if nodes.may_create else REFUSAL,
    )


BOOT_NODES = BootNodes(
    # Both names are also in NVIDIA's udev rule (nvidia-container-toolkit, 99-nvidia-cdi-refresh.rules).
    drivers=("nvidia", "nvidia_current"),
    modules=_MODULES,
    sources=(VERSION_FILE, DEVICES, PARAMETERS, GPUS, caps.CAPABILITIES, caps.MIG_MINORS),
    folders=("/dev", caps.NODES),
    device_nodes="/dev/nvidia[0-9]*",
    applies=applies,
    read=read,
)
