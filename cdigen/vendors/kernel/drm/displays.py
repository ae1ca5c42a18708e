"""Detect GPUs with a connected display: ``has_display``.

The kernel has a folder for each connector below the folder of the card (``card0/card0-HDMI-A-1``). Its file
``status`` is ``connected``, ``disconnected`` or ``unknown`` (Linux, drivers/gpu/drm/drm_sysfs.c). NVIDIA's
driver has connectors only with ``nvidia-drm modeset=1``. Without connectors, the file ``boot_vga`` shows
whether the firmware uses the GPU for its display (Linux, drivers/pci/pci-sysfs.c).
"""

from __future__ import annotations

from cdigen.host.procfs import read_line
from cdigen.host.sysfs import PCI_DEVICES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

_CONNECTED = "connected"
# A connector without a monitor, through which the kernel writes a picture into memory.
_WRITEBACK = "Writeback"


def has_display(host: Root, address: str) -> bool:
    """Return whether a display is connected to the PCI device ADDRESS, or the firmware's display uses it."""
    if not address:
        return False
    folder = f"{PCI_DEVICES}/{address}"
    states = [
        read_line(host, f"{folder}/drm/{card}/{connector}/status")
        for card in host.names(f"{folder}/drm")
        for connector in host.names(f"{folder}/drm/{card}")
        if connector.startswith(f"{card}-") and _WRITEBACK not in connector
    ]
    return _CONNECTED in states if states else read_line(host, f"{folder}/boot_vga") == "1"
