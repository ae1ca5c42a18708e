"""Creates and reads pods of a Kubernetes node: `Pod`, `pod_manifest`, `ended_before_start`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support.containers.busybox_image import IMAGE
from support.containers.containerd_host import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.cluster.node import Node

NAMESPACE = "ml"
# The script ends at once on SIGTERM. Without a handler, process 1 of a container ignores SIGTERM.
WAIT = "trap exit TERM; sleep 1000000 & wait"
# A pod ends within a second after its deletion, and its container is never started again. A pod has no volume
# with a token, because a restarted kubelet may remove such a volume before the container starts.
POD = {
    "automountServiceAccountToken": False,
    "dnsPolicy": "Default",
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A created pod; its container is `main`."""

    node: Node
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Its path in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def status(self) -> dict[str, Any]:
        """Return the status of the pod."""
        status: dict[str, Any] = self.node.api.get(self.path)["status"]
        return status

    def waiting(self) -> str:
        """Return the reason why the pod's container waits, "" if it does not wait."""
        for container in self.status().get("containerStatuses", ()):
            reason: str = container["state"].get("waiting", {}).get("reason", "")
            return reason
        return ""

    def events(self) -> list[str]:
        """Return the events of the pod: reason and message."""
        selector = f"fieldSelector=involvedObject.name={self.name}"
        rows = self.node.api.get(f"/api/v1/namespaces/{self.namespace}/events?{selector}")["items"]
        return [f"{row['reason']}: {row['message']}" for row in rows]

    def become(self, phase: str = "Running") -> Pod:
        """Wait until the pod is in PHASE; return the pod."""
        eventually(
            lambda: self.status()["phase"] == phase or None,
            f"{self.name} is {phase}",
            details=lambda: (self.status(), self.events(), self.node.kubelet.log),
        )
        return self

    def refused(self) -> str:
        """Wait until the creation of the pod's container fails; return the event with the reason."""

        def failed() -> str | None:
            return next((event for event in self.events() if event.startswith("Failed: ")), None)

        return eventually(failed, f"{self.name} is refused", details=self.status)

    def sh(self, script: str, container: str = "main") -> str:
        """Run a shell script in a container of the pod by kubectl exec; return its output."""
        options = (f"--namespace={self.namespace}", f"--container={container}")
        return self.node.kubectl("exec", *options, self.name, "--", "sh", "-c", script)

    def gpus(self) -> dict[str, str]:
        """Return the paths /dev/nvidia* in the pod, each with its major and minor number in hexadecimal."""
        rows = self.sh("stat -c '%n %t:%T' /dev/nvidia* 2>/dev/null || true").split()
        return dict(zip(rows[::2], rows[1::2], strict=True))

    def log(self, container: str = "main") -> str:
        """Return the log of a container of the pod."""
        text: str = self.node.api.get(f"{self.path}/log?container={container}")
        return text

    def containers(self) -> list[tuple[str, int]]:
        """Return the ID and the restart count of each container; both change if a container is restarted."""
        return [(row["containerID"], row["restartCount"]) for row in self.status()["containerStatuses"]]

    def delete(self) -> None:
        """Delete the pod without a grace period; its containers end soon afterwards.

        If the pod is deleted with `end`, the kubelet may report its end 10 s late (manager.go: syncBatch).
        """
        self.node.api.delete(f"{self.path}?gracePeriodSeconds=0")

    def end(self) -> None:
        """Delete the pod as users do: the pod keeps its devices until its containers have ended."""
        self.node.api.delete(self.path)


def pod_manifest(
    name: str,
    *env: str,
    namespace: str = NAMESPACE,
    annotations: Mapping[str, str] | None = None,
    script: str = WAIT,
    container: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return the manifest of a pod; its container `main` has ENV (KEY=value) and runs SCRIPT."""
    pairs = (variable.partition("=") for variable in env)
    main = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "env": [{"name": key, "value": value} for key, _, value in pairs],
        **(container or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
        "spec": {**POD, **spec, "containers": [main]},
    }


def ended_before_start(status: Mapping[str, Any]) -> bool:
    """Return whether STATUS of a pod has a container that ended and never started.

    If the kubelet restarts between the creation and the start of a container, it takes the container for an
    ended one. It reports the pod as succeeded and frees its devices, although it starts another container of
    the pod and stops this container later (kubernetes 1.20, kubelet_pods.go, convertToAPIContainerStatuses).
    """
    states = (row["state"].get("terminated") for row in status.get("containerStatuses", ()))
    return any(state is not None and not state.get("startedAt") for state in states)
