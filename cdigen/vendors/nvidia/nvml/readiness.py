"""Check before a query of NVML: the library (``library_of``), and whether a GPU is suspended."""

from __future__ import annotations

from cdigen.host.procfs import read_text
from cdigen.vendors.kernel.pci import health as pci_health
from cdigen.vendors.nvidia.devices.gpus import GPUS
from cdigen.vendors.nvidia.kernel_module import parse_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext

LIBRARY = "libnvidia-ml.so.1"


def library_of(context: DiscoveryContext, inventory: Inventory) -> tuple[str, str]:
    """Return (path of NVML's library, ""), or ("", reason) if there is no path."""
    if context.nvml == "off":
        return "", "NVML is not queried (nvml: off, or the driver is not this machine's own)"
    if context.nvml != "auto":
        return context.nvml, ""
    found = (file.host_path for file in inventory.files if file.kind == "library" and LIBRARY in file.names)
    path = next(found, "")
    return path, "" if path else f"{LIBRARY} was not found"


def is_suspended(host: Root, address: str) -> bool:
    """Return whether the GPU at ADDRESS is suspended, or has switched its memory off.

    A query of NVML resumes suspended GPUs. The function reads the driver's file ``power`` (Video Memory: Off)
    only if the kernel's runtime_status shows that the GPU is active.
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
