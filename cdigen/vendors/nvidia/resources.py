"""What pods ask for to get NVIDIA's GPUs and MIG instances.

The names are those of NVIDIA's device plugin (k8s-device-plugin 0.20, internal/rm/device_map.go and
api/config/v1/resources.go). It has a resource for such profiles alone of which one instance has all compute
of its GPU instance; others are named here alike (``mig-1c.2g.20gb``).
"""

from __future__ import annotations

import re

from cdigen.vendors.base import ResourceNames

# As most models' names have it (H100 80GB HBM3).
_SIZE = re.compile(r"\b([0-9]+) ?GB\b")
# The others by their data sheets; in the names of GH200 is the size of its processor's memory.
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
    """Return the memory of MODEL in the GB that it is sold by; None where its name does not tell it.

    NVML alone has it exactly, and to ask NVML can wake GPUs.
    """
    name = model.removeprefix("NVIDIA ")
    found = _SIZE.search(name)
    return _SIZES.get(name) or (int(found[1]) if found else None)


RESOURCES = (
    ResourceNames(
        device_class="gpu", name="nvidia.com/gpu", partition="nvidia.com/mig-{profile}", memory_gb=memory_gb
    ),
)
