"""Read whether a GPU is suspended (``is_suspended``). A query of NVML resumes suspended GPUs."""

from __future__ import annotations

from cdigen.host.procfs import read_text
from cdigen.vendors.kernel.pci import health as pci_health
from cdigen.vendors.nvidia.devices.gpus import GPUS
from cdigen.vendors.nvidia.kernel_module import parse_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root


def is_suspended(host: Root, address: str) -> bool:
    """Return whether the GPU at ADDRESS is suspended, or has switched its memory off.

    The function reads the driver's file ``power`` (Video Memory: Off) only if the kernel's runtime_status
    shows that the GPU is active.
    """
    return (
        pci_health.is_suspended(host, address) or kernel_word(host, address, "power", "Video Memory") == "Off"
    )


def kernel_word(host: Root, address: str, file: str, name: str) -> str:
    """Return the value of NAME in the driver's file FILE for the GPU at ADDRESS, or an empty string."""
    try:
        return parse_lines(read_text(host, f"{GPUS}/{address}/{file}")).get(name, "")
    except OSError:
        return ""
