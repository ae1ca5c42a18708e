"""Hosts of public reports about engines and NVIDIA's services: `ReportHost`, `gpu`."""

from __future__ import annotations

import json
import os
import shutil
import socket
from typing import TYPE_CHECKING, Any

from support.hosts import driver_files
from support.hosts.nvidia_kernel import Gpu, write_kernel_side

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command.fixtures import Done, Run
    from support.hosts.driver_files import Laid

BUS = "sys/bus/pci/devices"
DOCKER_SCRIPT = """#!/usr/bin/sh
[ -e /etc/containers/nodocker ] || \\
echo "Emulate Docker CLI using podman. Create /etc/containers/nodocker to quiet msg." >&2
exec /usr/bin/podman "$@"
"""


def gpu(minor: int, bus: str, model: str, device_id: int) -> Gpu:
    """Return the GPU with the number MINOR at the PCI bus BUS, without DRM nodes."""
    uuid = f"GPU-{minor:08x}-aaaa-bbbb-cccc-{int(bus, 16):012x}"
    return Gpu(minor=minor, bdf=f"0000:{bus}:00.0", uuid=uuid, model=model, device_id=device_id)


class ReportHost:
    """The tree of a host below ROOT, and the results of the command RUN for this host."""

    def __init__(self, root: Path, run: Run) -> None:
        self.root = root
        self._run = run

    def lay(
        self, version: str, *gpus: Gpu, layout: Callable[..., Laid] = driver_files.ubuntu, loaded: bool = True
    ) -> ReportHost:
        """Write the driver VERSION and GPUS; without LOADED, only the GPUs, without any driver."""
        if loaded:
            layout(self.root, version)
        write_kernel_side(self.root, gpus, driver_version=version, nodes=loaded)
        if not loaded:
            shutil.rmtree(self.root / "proc/driver")
            shutil.rmtree(self.root / "sys/module/nvidia")
            self.put("proc/devices", "Character devices:\n  1 mem\n")
            for one in gpus:
                (self.root / BUS / one.bdf / "driver").unlink()
        for folder in ("run", "var", "etc", "usr/bin"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self.link("var/run", "/run")
        return self

    def put(self, name: str, content: str | dict[str, Any] = "", mode: int = 0o644) -> Path:
        """Write the file NAME with CONTENT, a text or a document of JSON."""
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        file.chmod(mode)
        return file

    def link(self, name: str, target: str) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    def program(self, *names: str) -> ReportHost:
        """Install the programs NAMES in /usr/bin; no test runs them."""
        for name in names:
            self.put(f"usr/bin/{name}", mode=0o755)
        return self

    def listen(self, name: str) -> None:
        """Create the socket NAME without a listener."""
        folder = (self.root / name).parent
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as made:
            # The whole path is too long for a socket address.
            opened = os.open(folder, os.O_PATH)
            try:
                made.bind(f"/proc/self/fd/{opened}/{name.rpartition('/')[2]}")
            finally:
                os.close(opened)

    def bind(self, address: str, driver: str) -> None:
        """Bind the GPU at ADDRESS to DRIVER."""
        link = self.root / BUS / address / "driver"
        link.unlink(missing_ok=True)
        (self.root / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../../bus/pci/drivers/{driver}")

    def command(self, *words: str) -> Done:
        """Run a command of cdigen for the host."""
        return self._run(words[0], "--root", self.root, *words[1:])

    def write_specs(self) -> ReportHost:
        done = self.command("generate", "--write")
        assert done.code == 0, done.err
        return self

    @property
    def spec(self) -> dict[str, Any]:
        """The document of the GPUs' spec."""
        found: dict[str, Any] = json.loads((self.root / "run/cdi/nvidia.com-gpu.json").read_bytes())
        return found

    def rows(self, *options: str) -> list[dict[str, Any]]:
        """Return all results of the doctor."""
        found: list[dict[str, Any]] = self.command("doctor", "--json", *options).json
        return found

    def failures(self, *options: str) -> dict[str, dict[str, Any]]:
        """Return the first failure of each check, in the order of the output."""
        found: dict[str, dict[str, Any]] = {}
        for row in self.rows(*options):
            if not row["ok"]:
                found.setdefault(row["check"], row)
        return found

    def requests(self, text: str) -> dict[str, str]:
        """Return the replacements of `cdigen doctor --migrate` for a script with TEXT, by request."""
        script = self.put("srv/run.sh", text)
        document = self.command("doctor", "--json", "--migrate", str(script)).json
        return {row["request"]: row["replacement"] for row in document["legacy_requests"]}
