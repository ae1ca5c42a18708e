"""Vendors in packages outside cdigen: Acme of examples/vendor-accel, a minimal vendor, and broken vendors.

`install` installs the example into a folder. `vendor` and `like_acme` write packages with the code of a test
into such a folder. `minimal` returns the code of a vendor without devices. `lay_npus` writes a host with
Acme's NPUs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from support.abilities import cannot_run
from support.hosts import intel_tree
from support.paths import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = REPOSITORY / "examples/vendor-accel"
MINIMAL = """
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
    "                         files=(), searched=(), findings=())"
)
DEFECTLESS = {
    "name": "added",
    "cdi_vendor": "example.com",
    "discover": INVENTORY,
    "edits": "return ()",
    "watches": "return Watches(files=('/dev/added*',), polled=(), subsystems=())",
    "missing_nodes": "return ()",
    "diagnostics": "return ()",
}
# A subclass of Acme's vendor with a changed name and the code of a test.
LIKE_ACME = """\
from cdigen_acme import Acme

class Vendor(Acme):
    NAME = {name!r}
    CDI_VENDOR = "{name}.example"
    VISIBLE_DEVICES = ()
{body}
VENDOR = Vendor()
"""
# Code that raises an exception.
RAISE = "raise RuntimeError('broken\\n  in two lines')"


def lay_npus(root: Path, count: int = 2, *, nodes: bool = True) -> None:
    """Write Acme's NPUs below ROOT, with real nodes."""
    devices = (
        intel_tree.Device(
            address=f"0000:{0x41 + number:02x}:00.0",
            device_id="0x0001",
            vendor="0xace0",
            driver="acme_npu",
            pci_class=intel_tree.ACCELERATOR,
            accel=number,
        )
        for number in range(count)
    )
    intel_tree.lay(root, *devices, nodes=nodes)


def install(source: Path, target: Path) -> None:
    """Install the package in SOURCE into the folder TARGET, like pip, and without the network."""
    copy = target.with_name(f"{target.name}.source")
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    options = ("--no-index", "--no-build-isolation", "--no-deps", "--root-user-action", "ignore")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *options]
    done = subprocess.run(
        [*pip, "--target", str(target), str(copy)],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(target.parent)},
    )
    if "No module named" in done.stderr:
        cannot_run(f"pip or setuptools is missing: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def vendor(guests: Path, name: str, code: str, *, entry: str = "") -> None:
    """Write a package with the vendor NAME and its CODE into the folder GUESTS, like an installer.

    ENTRY is the name of the entry point, by default NAME.
    """
    (guests / f"cdigen_{name}.py").write_text(code)
    folder = guests / f"cdigen_{name}-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: cdigen-{name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[cdigen.vendors]\n{entry or name} = cdigen_{name}:VENDOR\n")


def minimal(**parts: str) -> str:
    """Return the code of a vendor without devices, in which PARTS replace the correct parts."""
    return MINIMAL.format(**{**DEFECTLESS, **parts})


def like_acme(guests: Path, name: str, body: str = "") -> None:
    """Write a package with the vendor NAME into GUESTS: Acme's vendor with the changes of BODY."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    vendor(guests, name, LIKE_ACME.format(name=name, body=lines))


def method(signature: str, body: str) -> str:
    """Return the code of a method of `like_acme`."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"def {signature}:\n{lines}"
