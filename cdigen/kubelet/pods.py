"""What containers have, in the kubelet's own words: ``PodDevices``, and all of them, ``PodList``."""

from __future__ import annotations

from cdigen.value import frozen


@frozen
class PodDevices:
    """What a container has of a resource, as the kubelet's pod resources API says."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]

    @property
    def holder(self) -> str:
        """The container, for people."""
        if not self.pod:
            return "a container"
        return f"pod {self.namespace}/{self.pod}, container {self.container}"


@frozen
class PodList:
    """What the kubelet's pod resources API lists: ``devices``, and ``names`` (namespace/name) of all pods.

    A kubelet that has just started knows no pods until it has reached its sources (kubernetes,
    pkg/kubelet/apis/podresources/server_v1.go, List: GetPods): of a pod that is not named it says nothing.
    """

    devices: tuple[PodDevices, ...]
    names: frozenset[str]
