"""Find the PCIe link by which a card is in its slot, ``link_folder``, and whether it changes by itself.

AMD's and Intel's cards have a switch of their own: the GPU's own link, within the card, tells nothing of the
slot's (drm/amd issue 1967), or what is not so at all: 2.5 GT/s and one lane, of Intel's Arc (nvtop, pull
request 344).
"""

from __future__ import annotations

from cdigen.host.procfs import read_line
from cdigen.host.sysfs import pci_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

# What is off the bus, or no end of a link, tells 63 or 255.
MOST_LANES = 32
# amdgpu turns lanes of an idle GPU's link off (A. Deucher, linux-pci, 3 February 2020).
_CHANGE_LANES = frozenset({"0x1002", "0x1022"})


def changes_lanes(host: Root, folder: str) -> bool:
    """Return whether the device at FOLDER, below a link, turns lanes of it off by itself while it is idle."""
    return read_line(host, f"{folder}/vendor") in _CHANGE_LANES


def lanes(host: Root, folder: str, file: str = "current_link_width") -> int:
    """Return how many lanes FILE of the PCI function at FOLDER tells, 0 where it tells none that can be."""
    text = read_line(host, f"{folder}/{file}")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    return number if number <= MOST_LANES else 0


def link_folder(host: Root, folder: str) -> str:
    """Return the folder of the function that has the link to the slot of the device at FOLDER.

    It is the topmost of those above the device that are of the same maker, below the root port; mostly the
    device's own.
    """
    try:
        own = host.resolve(folder)
    except OSError:
        return folder
    above = own.rpartition("/")[0]
    maker = read_line(host, f"{own}/vendor")
    # The root port's parent is a root complex, which is no PCI address.
    while maker and _is_below_root_port(above) and read_line(host, f"{above}/vendor") == maker:
        own, above = above, above.rpartition("/")[0]
    return own


def _is_below_root_port(folder: str) -> bool:
    parent, _, name = folder.rpartition("/")
    return pci_key(name) is not None and pci_key(parent.rpartition("/")[2]) is not None
