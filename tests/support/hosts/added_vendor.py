"""A vendor that another package adds, written as that package would be installed: code and an entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
from cdigen.vendors.base import Watches


class Vendor:
    NAME = "{name}"
    CDI_VENDOR = "{cdi_vendor}"
    NAMINGS = ("index",)
    OPTIONS = ()
    MODULES = ("added",)
    PCI_VENDORS = (0x1DED,)

    def discover(self, context):
        {discover}

    def edits(self, inventory, profiles):
        {edits}

    def watches(self, context):
        {watches}

    def missing_nodes(self, context):
        {missing_nodes}

    def wrong_nodes(self, context):
        return ()

    def diagnostics(self, context, inventory):
        {diagnostics}


VENDOR = Vendor()
"""
INVENTORY = (
    "from cdigen.model.inventory import Driver, Inventory\n"
    "        driver = Driver(version='1', flavour='dkms', architecture='x86_64')\n"
    "        return Inventory(vendor='added', driver=driver, accelerators=(), nodes=(),\n"
    "                         files=(), sought=(), findings=())"
)
WELL = {
    "name": "added",
    "cdi_vendor": "example.com",
    "discover": INVENTORY,
    "edits": "return ()",
    "watches": "return Watches(files=('/dev/added*',), polled=(), subsystems=())",
    "missing_nodes": "return ()",
    "diagnostics": "return ()",
}


def install(folder: Path, *, code: str | None = None, name: str = "added", **parts: str) -> Path:
    """Install the vendor NAME below FOLDER, with PARTS of its code instead of those that are well."""
    (folder / "cdigen_added.py").write_text(CODE.format(**{**WELL, **parts}) if code is None else code)
    info = folder / "cdigen_added-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cdigen-added\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[cdigen.vendors]\n{name} = cdigen_added:VENDOR\n")
    return folder
