"""A fake Kubernetes node without failures, as a folder: `KubeNode`."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any

from support.doctor.broken_host import BrokenHost
from support.kubelet.resources import GPU, units
from support.paths import REPOSITORY

from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.status import KubeletPluginStatus, RegisteredResource, document
from cdigen.service.rundir import prepare, save_status
from cdigen.service.status import this_process

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "var/lib/kubelet"
PLUGINS = f"{FOLDER}/device-plugins"
CHECKPOINT = f"{PLUGINS}/kubelet_internal_checkpoint"
POD = "0b1c2d3e-0000-4000-8000-00000000000a"
CONTAINERD = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n'


def registered(*ids: str, of: str = GPU, **more: Any) -> RegisteredResource:
    fields = {"state": "registered", "since_s": time.time() - 3600, "is_confirmed": True, **more}
    return RegisteredResource(resource=Resource(name=of, units=units(*ids)), **fields)


def checkpoint(
    *allocated: tuple[str, str, list[str]], registered: dict[str, list[str] | None] | None = None
) -> dict[str, Any]:
    """Return the kubelet's checkpoint. Each row of ALLOCATED has a pod's UID, a resource and device IDs."""
    rows = [
        {
            "PodUID": pod,
            "ContainerName": "main",
            "ResourceName": resource,
            "DeviceIDs": {"0": ids},
            "AllocResp": "GhAK",
        }
        for pod, resource, ids in allocated
    ]
    return {"Data": {"PodDeviceEntries": rows, "RegisteredDevices": registered or {}}, "Checksum": 4}


class KubeNode(BrokenHost):
    """A host with two GPUs and containerd; cdigen has registered both GPUs with the host's kubelet."""

    def make_node(self) -> KubeNode:
        self.make("containerd")
        self.put("etc/containerd/config.toml", CONTAINERD)
        self.put("usr/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n")
        self.enable("cdigen-kubelet.service", (REPOSITORY / "etc/cdigen-kubelet.service").read_text())
        (self.root / PLUGINS).mkdir(parents=True)
        self.listen("kubelet.sock")
        self.listen("cdigen-nvidia.com_gpu-01234567.sock")
        self.put(CHECKPOINT, checkpoint(registered={GPU: ["GPU-a", "GPU-b"]}))
        self.write_status(registered("GPU-a", "GPU-b"))
        return self

    def listen(self, name: str, folder: str = PLUGINS) -> Path:
        """Create a socket without a listener: the doctor cannot check for a listener on a fake host."""
        path = self.root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as made:
            # The whole path is too long for a socket address.
            fd = os.open(path.parent, os.O_PATH)
            try:
                made.bind(f"/proc/self/fd/{fd}/{name}")
            finally:
                os.close(fd)
        return path

    def write_status(self, *served: RegisteredResource, **more: Any) -> None:
        """Write the status of a `cdigen kubelet` with the resources SERVED."""
        run_dir = str(self.root / "run/cdigen-kubelet")
        prepare(run_dir)
        fields = {"started_s": time.time() - 3600, "kubelet_dir": f"/{FOLDER}", **more}
        save_status(run_dir, document(KubeletPluginStatus(served=served, **fields), this_process()))

    def wrong(self, *options: str) -> dict[str, dict[str, Any]]:
        """Return the first failure of each check, by check."""
        rows = self.results("--for kubelet", *options)
        return {row["check"]: row for row in reversed(rows) if not row["ok"]}
