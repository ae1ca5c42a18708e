"""Identify virtual GPUs (vGPU) by their models: ``is_virtual``, ``findings``.

The name of a vGPU ends in its profile, such as P40-24Q, A100-1-5C or T4-2B4 (NVIDIA's vGPU User Guide 18,
"Virtual GPU Types for Supported GPUs"). CUDA reports error 801 (cudaErrorNotSupported) in a vGPU without
unified memory (the same guide, "Enabling Unified Memory for a vGPU"; ollama/ollama, issue 8980).
"""

from __future__ import annotations

import re

from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Inventory

RULE = "virtual-gpu"
_PROFILE = re.compile(r"-[0-9]+[ABCQ](?:[0-9]|ME)?$")


def is_virtual(model: str) -> bool:
    """Return whether MODEL is the name of a vGPU."""
    return _PROFILE.search(model) is not None


def findings(inventory: Inventory) -> tuple[Finding, ...]:
    """Return a finding for each vGPU in INVENTORY, with the settings that only its hypervisor has."""
    return tuple(
        Finding(
            severity="info",
            rule=RULE,
            path=gpu.address,
            message=f"GPU {gpu.index} ({gpu.address}) is a virtual GPU ({gpu.model}): it needs a licence, "
            "and its unified memory is a setting of the hypervisor",
            hint="for the licence, see 'nvidia-smi -q'; if CUDA reports error 801 (not supported), set "
            "enable_uvm=1 for this vGPU on the hypervisor",
        )
        for gpu in inventory.accelerators
        if is_virtual(gpu.model or "")
    )
