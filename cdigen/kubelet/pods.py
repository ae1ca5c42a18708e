"""The kubelet's list of pods (``PodList``), with the devices of each container (``PodDevices``)."""

from __future__ import annotations

from cdigen.value import frozen


@frozen
class PodDevices:
    """The devices of ``resource`` that ``container`` has, according to the kubelet's pod resources API."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]

    @property
    def description(self) -> str:
        """The name of the container for messages."""
        if not self.pod:
            return "a container"
        return f"pod {self.namespace}/{self.pod}, container {self.container}"


@frozen
class ClaimedDevice:
    """The device ``device`` in ``pool`` of a DRA ``driver``, which ``container`` has by a ResourceClaim."""

    namespace: str
    pod: str
    container: str
    driver: str
    pool: str
    device: str

    @property
    def description(self) -> str:
        """The container and its device for messages."""
        device = f"the device {self.driver}/{self.pool}/{self.device}"
        return f"pod {self.namespace}/{self.pod}, container {self.container}, by a claim of {device}"


@frozen
class PodList:
    """The list of the kubelet's pod resources API.

    ``devices`` are the devices of containers that device plugins serve. ``claims`` are the devices of
    ResourceClaims; kubelet 1.36 lists all claimed devices of a pod in each of its containers. ``names`` has
    the namespace/name of each pod. A kubelet that has just started lists no pods until it has reached its
    sources of pods (kubernetes, pkg/kubelet/apis/podresources/server_v1.go, List: GetPods). So a pod that is
    not in ``names`` may still have devices.
    """

    devices: tuple[PodDevices, ...]
    names: frozenset[str]
    claims: tuple[ClaimedDevice, ...] = ()
