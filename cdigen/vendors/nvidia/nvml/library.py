"""Find the NVML library for queries about the devices of an inventory (``library_of``)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
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
