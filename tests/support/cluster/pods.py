"""Pods of a node of Kubernetes as the tests make them and look at them: `Pod`, `pod_manifest`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support.containers.busybox_image import IMAGE
from support.containers.containerd_host import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.cluster.node import Node

NAMESPACE = "ml"
# Ends as soon as it is told to: a first process without a handler is not ended by SIGTERM.
WAIT = "trap exit TERM; sleep 1000000 & wait"
# A pod ends a second after it was told to at the latest, and its container is never started again. It has no
# volume with a token: a kubelet that is restarted may remove that before the container starts.
POD = {
    "automountServiceAccountToken": False,
    "dnsPolicy": "Default",
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that was created; its container is `main`."""

    node: Node
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Where the API has it."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def status(self) -> dict[str, Any]:
        """Return its status."""
        status: dict[str, Any] = self.node.api.get(self.path)["status"]
        return status

    def waiting(self) -> str:
        """Return why its container waits, empty where it does not."""
        for container in self.status().get("containerStatuses", ()):
            reason: str = container["state"].get("waiting", {}).get("reason", "")
            return reason
        return ""

    def events(self) -> list[str]:
        """Return what happened to it: each event's reason and message."""
        chosen = f"fieldSelector=involvedObject.name={self.name}"
        rows = self.node.api.get(f"/api/v1/namespaces/{self.namespace}/events?{chosen}")["items"]
        return [f"{row['reason']}: {row['message']}" for row in rows]

    def become(self, phase: str = "Running") -> Pod:
        """Wait until it is in that phase, and return it."""
        eventually(
            lambda: self.status()["phase"] == phase or None,
            f"{self.name} is {phase}",
            told=lambda: (self.status(), self.events(), self.node.kubelet.log),
        )
        return self

    def refused(self) -> str:
        """Wait until its container cannot be created, and return the event that says why."""

        def failed() -> str | None:
            return next((event for event in self.events() if event.startswith("Failed: ")), None)

        return eventually(failed, f"{self.name} is refused", told=self.status)

    def sh(self, script: str, container: str = "main") -> str:
        """Run a shell script in a container of it by kubectl exec, and return its output."""
        chosen = (f"--namespace={self.namespace}", f"--container={container}")
        return self.node.kubectl("exec", *chosen, self.name, "--", "sh", "-c", script)

    def gpus(self) -> dict[str, str]:
        """Return the GPU nodes in it, each with its numbers in hexadecimal."""
        rows = self.sh("stat -c '%n %t:%T' /dev/nvidia* 2>/dev/null || true").split()
        return dict(zip(rows[::2], rows[1::2], strict=True))

    def log(self, container: str = "main") -> str:
        """Return what a container of it has said."""
        said: str = self.node.api.get(f"{self.path}/log?container={container}")
        return said

    def containers(self) -> list[tuple[str, int]]:
        """Return what is another where a container of it was started again."""
        return [(row["containerID"], row["restartCount"]) for row in self.status()["containerStatuses"]]

    def delete(self) -> None:
        """Delete it; it ends soon after.

        At once: kubelet looks only every 10 s for pods whose end it has not told yet (manager.go: syncBatch).
        """
        self.node.api.delete(f"{self.path}?gracePeriodSeconds=0")

    def end(self) -> None:
        """Delete it as users do: what it has is its own until its containers have ended."""
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
    """Describe a pod whose container `main` has ENV (KEY=value) and runs SCRIPT; further fields are added."""
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
