"""Find the PCIe link between a card and its slot (``link_folder``).

Some cards of AMD and Intel contain a PCIe switch. The link between this switch and the GPU does not show the
state of the link between the card and the slot (drm/amd issue 1967). With Intel's Arc, the GPU's link shows
wrong values: 2.5 GT/s and one lane (nvtop, pull request 344).

``changes_lanes`` returns whether the width of the link changes while the device is idle.
"""

from __future__ import annotations

from cdigen.host.procfs import read_line
from cdigen.host.sysfs import pci_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

# A device that does not answer, or a function without a link, reports 63 or 255 lanes.
MOST_LANES = 32
# The PCI vendor numbers of AMD. amdgpu disables lanes of an idle GPU's link (A. Deucher, linux-pci,
# 3 February 2020).
_CHANGE_LANES = frozenset({"0x1002", "0x1022"})


def changes_lanes(host: Root, folder: str) -> bool:
    """Return whether the driver disables lanes of the link while the device at FOLDER is idle."""
    return read_line(host, f"{folder}/vendor") in _CHANGE_LANES


def lanes(host: Root, folder: str, file: str = "current_link_width") -> int:
    """Return the number of lanes in FILE of the PCI function at FOLDER, or 0 if the number is invalid."""
    text = read_line(host, f"{folder}/{file}")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    return number if number <= MOST_LANES else 0


def link_folder(host: Root, folder: str) -> str:
    """Return the folder of the PCI function at the card's end of the link between card and slot.

    FOLDER is the folder of the device. Usually, the function is the device itself. If functions of the same
    vendor are above the device and below the root port, the function is the topmost of them.
    """
    try:
        own = host.resolve(folder)
    except OSError:
        return folder
    above = own.rpartition("/")[0]
    vendor = read_line(host, f"{own}/vendor")
    # The folder above the root port is a root complex. A root complex has no PCI address.
    while vendor and _is_below_root_port(above) and read_line(host, f"{above}/vendor") == vendor:
        own, above = above, above.rpartition("/")[0]
    return own


def _is_below_root_port(folder: str) -> bool:
    parent, _, name = folder.rpartition("/")
    return pci_key(name) is not None and pci_key(parent.rpartition("/")[2]) is not None
