"""The vendors that cdigen knows, by the name that ``--vendor`` takes."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.base import Vendor

# name -> (the vendor part of its kinds, the module whose VENDOR serves it)
VENDORS = {
    "nvidia": ("nvidia.com", "cdigen.vendors.nvidia.vendor"),
}


def load(name: str) -> Vendor:
    """Import and return the vendor NAME, a key of VENDORS."""
    vendor: Vendor = import_module(VENDORS[name][1]).VENDOR
    return vendor
