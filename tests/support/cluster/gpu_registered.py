"""Wait until the resources of a node are registered with its present kubelet: `registered_s`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from support.containers.containerd_host import eventually

if TYPE_CHECKING:
    from support.cluster.gpu_node import GpuNode


def registered_s(gpu_node: GpuNode, since_s: float) -> float:
    """Wait until all resources are registered with a kubelet whose socket is newer than SINCE_S (Unix time).

    Returns the time from the creation of the socket to the last registration.
    """
    socket = gpu_node.node.folder / "kubelet/device-plugins/kubelet.sock"

    def registered() -> float | None:
        try:
            born_s, status = socket.stat().st_ctime, gpu_node.status()
        except OSError:
            return None
        states = {row["state"] for row in status["resources"]}
        # A killed plugin leaves its status file.
        is_now = gpu_node.plugin.process and status["pid"] == gpu_node.plugin.process.pid
        if not is_now or states != {"registered"} or born_s < since_s:
            return None
        # The time of the last change of each resource's state.
        times = (datetime.fromisoformat(row["since"]).timestamp() for row in status["resources"])
        after_s = max(times) - born_s
        return after_s if after_s >= 0 else None

    return eventually(registered, "all are registered", details=gpu_node.logs)
