"""The memory size of GPUs that use the memory of the host: ``unified_memory_mib``.

NVML reports no memory size for these GPUs: nvmlDeviceGetMemoryInfo returns NVML_ERROR_NOT_SUPPORTED
(NVIDIA/k8s-device-plugin, issue 1482; NVIDIA/gpu-operator, issue 1794). A GPU can use all memory that the
kernel manages, which is MemTotal in proc_meminfo(5). Only the models in the table get this size, because the
error alone does not show which memory a GPU uses.
"""

from __future__ import annotations

import re

from cdigen.host.procfs import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

# The models without their own memory: GB10 (DGX Spark).
_MODELS = re.compile(r"(?:NVIDIA )?GB10\b")
_TOTAL = re.compile(r"^MemTotal:\s+([0-9]{1,15}) kB$", re.MULTILINE)
_KIB = 1024


def unified_memory_mib(host: Root, model: str) -> int | None:
    """Return the memory of HOST in MiB for a MODEL that uses this memory.

    If MODEL has its own memory, or if the size is unknown, return None.
    """
    if not _MODELS.match(model):
        return None
    try:
        found = _TOTAL.search(read_text(host, "/proc/meminfo"))
    except OSError:
        return None
    return int(found[1]) // _KIB or None if found else None
