"""Parts of the hosts of public reports with devices of AMD and Intel, and the doctor's results for them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from support.hosts import amd_tree, intel_tree
from support.hosts.amd_tree import AmdGpu
from support.hosts.driver_files import put

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

HASWELL = intel_tree.gpu(0, intel_tree.IGPU, "0x041a", "i915", pci_class=intel_tree.VGA)
RADEON_780M = AmdGpu(bdf="0000:65:00.0", render=128, card=0, device_id=0x1900, pci_class=0x030000)
RX_6700_XT = AmdGpu(bdf="0000:03:00.0", render=128, card=0, device_id=0x73DF, pci_class=0x030000)
MI100S = tuple(
    AmdGpu(bdf=address, render=128 + number, card=number, product="AMD Instinct MI100", device_id=0x738C)
    for number, address in enumerate(amd_tree.ADDRESSES[:4])
)
USERS = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\napps:x:568:568::/:/bin/sh\n"


def finish(root: Path, *binaries: str, group: tuple[int, ...] = (), members: str = "") -> Path:
    """Write the folders and users of a host, and runtimes; give the nodes of render the number GROUP."""
    for folder in ("run", "var", "etc", "usr/bin"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "var/run").symlink_to("/run")
    put(root / "etc/passwd", USERS.encode())
    for name in binaries:
        put(root / "usr/bin" / name, b"", 0o755)
    for gid in group:
        put(root / "etc/group", f"root:x:0:\nvideo:x:44:\nrender:x:{gid}:{members}\n".encode())
        for node in (root / "dev/kfd", *root.glob("dev/dri/render*"), *root.glob("dev/accel/*")):
            if node.exists():
                os.chown(node, 0, gid)
    return root


def failures(cdigen: Run, root: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Return the doctor's first failure of each check, by check."""
    rows = cdigen("doctor", "--json", "--root", root, *options).json
    return {row["check"]: row for row in reversed(rows) if not row["ok"]}


def detail(cdigen: Run, root: Path, check: str, *options: str) -> str:
    """Return the detail of the doctor's first result of CHECK."""
    rows = cdigen("doctor", "--json", "--root", root, *options).json
    return next(str(row["detail"]) for row in rows if row["check"] == check)


def unbind(root: Path, address: str, module: str, release: str, ids: str) -> None:
    """Remove MODULE with its devices; the kernel RELEASE has the alias of the function ADDRESS with IDS."""
    folder = next((root / "sys/devices").glob(f"*/{address}"))
    (folder / "driver").unlink()
    shutil.rmtree(folder / "drm")
    gone = ("sys/class/kfd", "sys/class/drm", "dev/dri", f"sys/bus/pci/drivers/{module}")
    for path in (*gone, f"sys/module/{module}"):
        shutil.rmtree(root / path, ignore_errors=True)
    put(folder / "modalias", f"pci:{ids}sv00001849sd00000412bc03sc00i00\n".encode())
    alias = f"alias pci:{ids}sv*sd*bc03sc*i* {module}\n"
    put(root / f"lib/modules/{release}/modules.alias", alias.encode())


def install_desktop(root: Path, context: str = "desktop-linux") -> None:
    """Install Docker Desktop; the current context of the user alice is CONTEXT."""
    (root / "opt/docker-desktop/bin").mkdir(parents=True)
    put(root / "home/alice/.docker/config.json", f'{{"currentContext": "{context}"}}'.encode())
