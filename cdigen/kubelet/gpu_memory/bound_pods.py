"""``BoundPod``: a pod of this node that requests GPU memory, with the request of each container."""

from __future__ import annotations

from cdigen.gpushare import names
from cdigen.gpushare.pods import GpuPod, read_pod
from cdigen.gpushare.quantity import parse_quantity
from cdigen.gpushare.reservations import (
    ANNOTATION_KEYS,
    ContainerPlacement,
    Reservation,
    read_placement,
    reservation_of,
)
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cdigen.gpushare.ledger import Ledger, LedgerEntry
    from cdigen.gpushare.names import Resources
    from cdigen.gpushare.pods import MemoryRequest

# The value of ``by`` in ledger entries that the node has written. The node writes only entries of its pods.
NODE = "node"


@frozen
class ContainerRequest:
    """The request of a container.

    ``index`` is the container's index among app containers, or -1 for an init container.
    """

    container: str
    units: int
    index: int = -1


@frozen
class BoundPod:
    """A pod of this node, with its ``requests`` in the kubelet's order.

    Init containers are first. The kubelet requests all units of each container, also if the kubelet reuses
    the units of a former init container (kubernetes, pkg/kubelet/cm/devicemanager/manager.go,
    devicesToAllocate).

    If ``is_leaving`` is set, the pod is terminating. The kubelet does not admit such a pod any more. The
    kubelet may allocate the units of the pod to another pod while containers of the terminating pod are still
    being started (kubernetes, pkg/kubelet/kubelet_pods.go, podIsTerminated).
    """

    pod: GpuPod
    requests: tuple[ContainerRequest, ...]
    assumed_ns: int = 0
    is_pending: bool = True
    # The namespace of the ledger with the pod's reservation, or "" if no annotation names the namespace.
    ledger_namespace: str = ""
    is_leaving: bool = False

    @property
    def can_be_requested(self) -> bool:
        """Whether the kubelet may still send the first request for a container of this pod."""
        return self.is_pending and not self.is_leaving

    def annotated_placement(self) -> ContainerPlacement | None:
        """Return the placement in the pod's annotations, or None without such a placement."""
        return read_placement(self.pod)

    def reservation(self, placement: ContainerPlacement | None) -> Reservation:
        """Return the pod's reservation at PLACEMENT."""
        return reservation_of(self.pod.request, placement)


def read_bound(found: Any, resources: Resources) -> BoundPod | None:
    """Return the pod of the API object FOUND, or None if it has no valid request for memory.

    Raise ValueError if FOUND is not a pod.
    """
    pod = read_pod(found, resources, (*ANNOTATION_KEYS, names.LEDGER_NAMESPACE))
    if pod is None or pod.request.problem:
        return None
    spec = found["spec"]
    time_ns = dict(pod.annotations).get(names.ASSUME_TIME, "")
    return BoundPod(
        pod=pod,
        requests=(
            *_requests(spec.get("initContainers"), resources.memory, is_init=True),
            *_requests(spec.get("containers"), resources.memory, is_init=False),
        ),
        assumed_ns=int(time_ns) if time_ns.isascii() and time_ns.isdecimal() and len(time_ns) < 20 else 0,
        is_pending=(found.get("status") or {}).get("phase") in {None, "", "Pending"},
        ledger_namespace=dict(pod.annotations).get(names.LEDGER_NAMESPACE, ""),
        is_leaving="deletionTimestamp" in found["metadata"],
    )


def _requests(containers: Any, resource: str, *, is_init: bool) -> Iterator[ContainerRequest]:
    # ``read_pod`` has checked that CONTAINERS is a list of objects with whole numbers.
    for index, each in enumerate(containers or ()):
        limits = (each.get("resources") or {}).get("limits") or {}
        if units := parse_quantity(limits.get(resource, 0)):
            yield ContainerRequest(
                container=str(each.get("name")), units=units, index=-1 if is_init else index
            )


def reserved_placement(bound: BoundPod, ledger: Ledger) -> ContainerPlacement | None:
    """Return the reserved placement of BOUND, or None if the placement is unknown.

    The author of a pod can write any annotation. So if LEDGER has an entry for the pod, this entry must cover
    the units in the annotations. Otherwise the annotations are ignored. An entry that the node itself has
    written has precedence over annotations.
    """
    annotated, entry = bound.annotated_placement(), ledger.entry(bound.pod.uid)
    if entry is None:
        return annotated
    if annotated is not None and entry.token != NODE and _covers(entry, bound.reservation(annotated)):
        return annotated
    return entry.placement if is_whole(entry.placement, bound.pod.request) else None


def is_whole(placement: ContainerPlacement, requested: MemoryRequest) -> bool:
    """Return whether PLACEMENT covers all of REQUESTED."""
    placed = {container for container, _ in placement.containers}
    return placed == {index for index, _ in requested.by_container} and (placement.gpu >= 0 or bool(placed))


def gpu_at(placement: ContainerPlacement | None, request: ContainerRequest) -> int | None:
    """Return the GPU of REQUEST in PLACEMENT, or None if the GPU is unknown."""
    if placement is None:
        return None
    found = dict(placement.containers).get(request.index, placement.gpu if request.index < 0 else -1)
    return found if found >= 0 else None


def moved_placement(
    bound: BoundPod, placement: ContainerPlacement | None, request: ContainerRequest, gpu: int
) -> ContainerPlacement:
    """Return PLACEMENT with REQUEST of BOUND on GPU.

    All containers of a pod with init containers move together, because the kubelet reuses the units of init
    containers.
    """
    requested = bound.pod.request
    if requested.on_one_gpu:
        return ContainerPlacement(
            containers=tuple((index, gpu) for index, _ in requested.by_container), gpu=gpu
        )
    places = dict(placement.containers) if placement else {}
    places[request.index] = gpu
    if len(places) < len(requested.by_container):
        # If the placement was unknown, the other containers get this GPU until their own requests.
        places = {index: places.get(index, gpu) for index, _ in requested.by_container}
    gpus = set(places.values())
    return ContainerPlacement(containers=tuple(sorted(places.items())), gpu=gpu if len(gpus) == 1 else -1)


def _covers(entry: LedgerEntry, reservation: Reservation) -> bool:
    on = dict(entry.on)
    return all(units <= on.get(gpu, 0) for gpu, units in reservation.on) and not reservation.unplaced
