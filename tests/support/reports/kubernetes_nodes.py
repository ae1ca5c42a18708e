"""Hosts of public reports about containerd, CRI-O, Kubernetes nodes and their distributions."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

from support.doctor.broken_host import BrokenHost
from support.hosts import driver_files
from support.hosts.nvidia_kernel import Gpu, write_kernel_side

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command.fixtures import Run
    from support.doctor.live_host import LiveHost

Rows = list[dict[str, Any]]
TOOLKIT_HOOK = {
    "version": "1.0.0",
    "hook": {"path": "/usr/bin/nvidia-container-toolkit", "args": ["nvidia-container-toolkit", "prestart"]},
    "when": {"always": True, "commands": [".*"]},
    "stages": ["prestart"],
}


MICROK8S = {
    "etc/os-release": 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="20.04"\n',
    "proc/sys/kernel/osrelease": "5.4.0-74-generic\n",
    "lib/modules/5.4.0-74-generic/modules.dep": "kernel/drivers/gpu/drm/nouveau/nouveau.ko:\n",
    "snap/microk8s/2262/bin/containerd": "",
    "var/snap/microk8s/current/args/containerd-template.toml": "version = 2\n",
    "var/snap/microk8s/current/args/kubelet": "--root-dir=${SNAP_COMMON}/var/lib/kubelet\n",
    "etc/systemd/system/snap.microk8s.daemon-kubelite.service": "[Service]\nExecStart=/usr/bin/snap\n",
    "etc/systemd/system/snap.microk8s.daemon-containerd.service": "[Service]\nExecStart=/usr/bin/snap\n",
}


def handler(name: str, program: str = "", *, is_default: bool = False) -> str:
    """Return the tables of an OCI runtime in a configuration of containerd."""
    table = 'plugins."io.containerd.grpc.v1.cri".containerd'
    text = f'[{table}]\ndefault_runtime_name = "{name if is_default else "runc"}"\n'
    text += f'[{table}.runtimes.{name}]\nruntime_type = "io.containerd.runc.v2"\n'
    return text + (f'[{table}.runtimes.{name}.options]\nBinaryName = "{program}"\n' if program else "")


def gpus(model: str, device_id: int, *addresses: str) -> tuple[Gpu, ...]:
    """Return GPUs of one MODEL at ADDRESSES, without nodes of the kernel's DRM."""
    return tuple(
        Gpu(
            minor=minor,
            bdf=address,
            uuid=f"GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f{minor:04x}",
            model=model,
            device_id=device_id,
        )
        for minor, address in enumerate(addresses)
    )


P100 = gpus("Tesla P100-PCIE-16GB", 0x15F8, *(f"0000:0{bus}:00.0" for bus in (4, 6, 7, 8)))


def driver(version: str, *present: Gpu) -> Callable[[Path], None]:
    """Return a function that writes the driver VERSION with the GPUs PRESENT below a root."""

    def lay(root: Path) -> None:
        driver_files.ubuntu(root, version)
        write_kernel_side(root, present, driver_version=version)

    return lay


def no_driver(device_id: int, address: str, *, holder: str = "") -> Callable[[Path], None]:
    """Return a function that writes a GPU at ADDRESS without NVIDIA's driver, bound to HOLDER."""

    def lay(root: Path) -> None:
        device = root / "sys/devices/pci0000:00" / address
        files = {
            "vendor": "0x10de\n",
            "device": f"0x{device_id:04x}\n",
            "class": "0x030000\n",
            "uevent": f"PCI_CLASS=30000\nPCI_ID=10DE:{device_id:04X}\nPCI_SLOT_NAME={address}\n",
        }
        for name, text in files.items():
            _write(device / name, text)
        bus = root / "sys/bus/pci"
        (bus / "devices").mkdir(parents=True)
        (bus / "devices" / address).symlink_to(f"../../../devices/pci0000:00/{address}")
        _write(root / "proc/devices", "Character devices:\n  1 mem\n 10 misc\n\nBlock devices:\n")
        _write(root / "proc/modules", f"{holder} 2000000 1 - Live 0x0\n" if holder else "")
        if holder:
            (bus / "drivers" / holder).mkdir(parents=True)
            (device / "driver").symlink_to(f"../../../bus/pci/drivers/{holder}")
            (root / "sys/module" / holder).mkdir(parents=True)

    return lay


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class ReportedHost(BrokenHost):
    """A host of a report: files below a root, and the results of the real command."""

    def __init__(self, root: Path, cdigen: Run) -> None:
        super().__init__(root)
        self._cdigen = cdigen

    def lay(self, lay: Callable[[Path], object], files: dict[str, str]) -> ReportedHost:
        """Write a driver by LAY, and FILES by their paths."""
        lay(self.root)
        for folder in ("run", "var", "etc", "usr/bin"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self.link("var/run", "/run")
        for name, text in files.items():
            self.put(name, text)
        return self

    def write_specs(self) -> None:
        """Write cdigen's specs."""
        assert self._cdigen("generate", "--write", "--root", self.root).code == 0

    def examined(self, *options: str) -> Rows:
        """Return all results of the doctor."""
        rows: Rows = self._cdigen("doctor", "--json", *options, "--root", self.root).json
        return rows

    def failures(self, *options: str) -> Rows:
        """Return the failures that the doctor finds, with the first verdict first."""
        return [row for row in self.examined(*options) if not row["ok"]]

    def migration(self, *options: str) -> dict[str, Any]:
        """Return the plan of the migration."""
        plan: dict[str, Any] = self._cdigen(
            "doctor", "--migrate", "--json", *options, "--root", self.root
        ).json
        return plan

    def listen(self, name: str) -> None:
        """Create the socket NAME below the root, without a listener."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as made:
            # The whole path is too long for a socket address.
            fd = os.open(path.parent, os.O_PATH)
            try:
                made.bind(f"/proc/self/fd/{fd}/{path.name}")
            finally:
                os.close(fd)


def put(host: LiveHost, path: str, text: str) -> None:
    """Write the file PATH with TEXT on the live HOST."""
    host.run(f"mkdir -p $(dirname {path}) && cat >{path} <<'END'\n{text}\nEND")
