"""The names in the commands of ``cdigen doctor`` that repair NVIDIA's driver (``REMEDIES``)."""

from __future__ import annotations

from cdigen.vendors.base import DriverRemedies, RuleCommand
from cdigen.vendors.nvidia.devices import fabric_manager
from cdigen.vendors.nvidia.devices.flavour import mismatch
from cdigen.vendors.nvidia.settings import RESUME, SUSPEND, UNITS

# The open and the proprietary module print the same messages (open-gpu-kernel-modules,
# src/nvidia/arch/nvalloc/unix/src/osapi.c).
_REFUSALS = (
    (
        "is not supported by open nvidia.ko",
        "the GPU is not supported by open nvidia.ko: install the proprietary kernel module (branch <= 580)",
    ),
    (
        "requires use of the NVIDIA open kernel modules",
        "the GPU is not supported by the proprietary kernel module: install the driver's open kernel module",
    ),
    (
        "has fallen off the bus and is not responding",
        "the GPU has fallen off the bus: reboot the host; unload the driver before you unplug a GPU",
    ),
    (
        "Legacy drivers",
        "the GPU is not supported by this driver: install the legacy driver that 'dmesg | grep NVRM' shows",
    ),
)
REMEDIES = DriverRemedies(
    modules=("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"),
    libraries=("libcuda.so.1", "libnvidia-ml.so.1"),
    package_words=("nvidia", "cuda"),
    python_module="pynvml",
    node_mode="set NVreg_DeviceFileMode=0666 for the module nvidia",
    node_prefix="/dev/nvidia",
    # The kernel's drivers/gpu/nova-core/nova_core.rs names its PCI driver NovaCore.
    rivals=("nouveau", "NovaCore"),
    log_beginnings=("NVRM: ",),
    refusals=_REFUSALS,
    mismatch=mismatch,
    commands=(
        RuleCommand(
            rule=UNITS,
            argv=("systemctl", "enable", SUSPEND, RESUME),
            why="make systemd save and restore the GPUs' memory",
        ),
        RuleCommand(
            rule=fabric_manager.RULE,
            argv=("systemctl", "enable", "--now", fabric_manager.UNIT),
            why="make the fabric manager connect the GPUs, now and at each boot",
        ),
    ),
)
