"""Vendors that other packages add: the one in examples/, really installed, and broken ones of a test's own.

`install` puts the example into a folder, `vendor` and `like_acme` put packages beside it of which a test says
the code. `lay_npus` makes a host of Acme's.
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
# A vendor that is Acme's but for what comes below.
LIKE_ACME = """\
from cdigen_acme import Acme

class Vendor(Acme):
    NAME = {name!r}
    CDI_VENDOR = "{name}.example"
    VISIBLE_DEVICES = ()
{body}
VENDOR = Vendor()
"""


def lay_npus(root: Path, count: int = 2, *, nodes: bool = True) -> None:
    """Lay Acme's NPUs below ROOT, with real nodes."""
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
    """Install the package in SOURCE into the folder TARGET, as pip does, and without the network."""
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


def vendor(guests: Path, name: str, code: str) -> None:
    """Put a package with the vendor NAME and its CODE beside the others, as an installer lays it."""
    (guests / f"cdigen_{name}.py").write_text(code)
    folder = guests / f"cdigen_{name}-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: cdigen-{name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[cdigen.vendors]\n{name} = cdigen_{name}:VENDOR\n")


def like_acme(guests: Path, name: str, body: str = "") -> None:
    """Put a vendor NAME that is Acme's but for BODY beside the others."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    vendor(guests, name, LIKE_ACME.format(name=name, body=lines))
