"""The extended resources of NVIDIA's GPUs and MIG instances.

NVIDIA's device plugin uses the same names (k8s-device-plugin 0.20, internal/rm/device_map.go and
api/config/v1/resources.go). The plugin has no resources for profiles in which a compute instance has only a
part of its GPU instance. cdigen names the resources of these profiles in the same way (``mig-1c.2g.20gb``).
"""

from __future__ import annotations

import re

from cdigen.vendors.base import ResourceNames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator, Partition

# Most model names contain the memory size in this form (H100 80GB HBM3).
_SIZE = re.compile(r"\b([0-9]+) ?GB\b")
# Model -> memory size in GB, from the data sheets. GH200's model names contain the memory size of the CPU.
_SIZES = {
    "A2": 16,
    "A10": 24,
    "A10G": 24,
    "A16": 16,
    "A30": 24,
    "A40": 48,
    "B200": 180,
    "GB200": 186,
    "GH200 120GB": 96,
    "GH200 144G HBM3e": 144,
    "GH200 480GB": 96,
    "GeForce RTX 3090": 24,
    "GeForce RTX 4090": 24,
    "GeForce RTX 5090": 32,
    "H20": 96,
    "H100 NVL": 94,
    "H100 PCIe": 80,
    "H200": 141,
    "H200 NVL": 141,
    "L4": 24,
    "L40": 48,
    "L40S": 48,
    "Quadro RTX 6000": 24,
    "Quadro RTX 8000": 48,
    "RTX 6000 Ada Generation": 48,
    "RTX PRO 6000 Blackwell Server Edition": 96,
    "RTX A4000": 16,
    "RTX A5000": 24,
    "RTX A6000": 48,
    "Tesla P4": 8,
    "Tesla P40": 24,
    "Tesla T4": 16,
    "T4": 16,
}


def memory_gb(model: str) -> int | None:
    """Return the memory size of MODEL in GB, as in the product name, or None if the size is not known.

    Only NVML reports the exact size. The function does not query NVML, because the query can resume GPUs.
    """
    name = model.removeprefix("NVIDIA ")
    found = _SIZE.search(name)
    return _SIZES.get(name) or (int(found[1]) if found else None)


def claim_names(gpu: Accelerator, partition: Partition | None) -> tuple[str, ...]:
    """Return the names of GPU, or of its PARTITION, in NVIDIA's DRA driver.

    The name of a MIG instance ends with its placement, which the inventory lacks. So the result matches all
    instances of the same profile (kubernetes-sigs/dra-driver-nvidia-gpu 0.4, cmd/gpu-kubelet-plugin,
    deviceinfo.go and mig.go).
    """
    if gpu.minor is None:
        return ()
    if partition is None:
        return (f"gpu-{gpu.minor}",)
    return (f"gpu-{gpu.minor}-mig-{partition.profile.replace('.', '').replace('+', '-')}-*",)


RESOURCES = (
    ResourceNames(
        device_class="gpu",
        name="nvidia.com/gpu",
        partition="nvidia.com/mig-{profile}",
        memory_gb=memory_gb,
        memory_hint="install the Python module pynvml for the daemon and set 'nvml: auto'",
        has_uuid_ids=True,
        supports_mps=True,
        strategy_key="mig_strategy",
        variable="NVIDIA_VISIBLE_DEVICES",
        # As in NVIDIA's plugin, the family imex adds only IMEX channel 0.
        families=(
            ("gdrcopy", "nvidia.com/gdrcopy=all"),
            ("gds", "nvidia.com/gds=all"),
            ("imex", "nvidia.com/imex-channel=0"),
            ("mofed", "nvidia.com/mofed=all"),
        ),
        claim_driver="gpu.nvidia.com",
        claim_names=claim_names,
    ),
)
