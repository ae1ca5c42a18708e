"""Whether a GPU sleeps, so that asking NVML about it would wake it: ``is_asleep``."""

from __future__ import annotations

from cdigen.host.procfs import read_text
from cdigen.vendors.kernel.pci_health import sleeps
from cdigen.vendors.nvidia.gpus import GPUS
from cdigen.vendors.nvidia.kernel_module import parse_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root


def is_asleep(host: Root, address: str) -> bool:
    """Return whether the GPU at ADDRESS is suspended, or its memory has no power.

    The driver's file ``power`` (Video Memory: Off) is read only where the kernel's runtime_status shows the
    GPU awake.
    """
    return sleeps(host, address) or kernel_word(host, address, "power", "Video Memory") == "Off"


def kernel_word(host: Root, address: str, file: str, name: str) -> str:
    """Return what the driver's FILE of the GPU at ADDRESS has behind NAME, or an empty string."""
    try:
        return parse_lines(read_text(host, f"{GPUS}/{address}/{file}")).get(name, "")
    except OSError:
        return ""
