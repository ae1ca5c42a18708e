"""The GPUs of pods: ``read_placement`` reads a pod's annotations, and ``pod_annotations`` makes them.

``read_placement`` reads two forms: JSON by container, or the older index of gpushare. If a pod has no valid
annotations, the pod's units are *unplaced* (on an unknown GPU of the node).
"""

from __future__ import annotations

import json

from cdigen.gpushare import names
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.gpushare.pods import GpuPod, MemoryRequest

# The annotations that ``read_placement`` and the callers of this module need.
ANNOTATION_KEYS = (names.INDEX, names.ALLOCATION, names.ASSIGNED, names.ASSUME_TIME)
# The limits for a valid annotation in characters, and for a GPU index in digits.
_MAX_TEXT = 1 << 16
_MAX_DIGITS = 4


@frozen
class ContainerPlacement:
    """The GPUs of a pod.

    ``containers`` has a pair for each container that requests units, with the index of the container and the
    index of the GPU. ``gpu`` is the index of the GPU if all containers are on one GPU, also if only an init
    container requests units. If the containers are on several GPUs, ``gpu`` is -1. The kubelet may also place
    the containers of a pod that needs one GPU (``MemoryRequest.on_one_gpu``) on several GPUs.
    """

    containers: tuple[tuple[int, int], ...]
    gpu: int = -1


@frozen
class Reservation:
    """The units that a pod reserves on a node.

    ``on`` has the units by GPU. ``unplaced`` is the number of units on an unknown GPU.
    """

    on: tuple[tuple[int, int], ...] = ()
    unplaced: int = 0


def reservation_of(request: MemoryRequest, placement: ContainerPlacement | None) -> Reservation:
    """Return the reservation of REQUEST at PLACEMENT; without a placement, all units are unplaced."""
    if placement is None:
        return Reservation(unplaced=request.total)
    if request.on_one_gpu and placement.gpu >= 0:
        return Reservation(on=((placement.gpu, request.on_one_gpu),))
    units, on = dict(request.by_container), dict[int, int]()
    for container, gpu in placement.containers:
        on[gpu] = on.get(gpu, 0) + units[container]
    if request.on_one_gpu > (used := sum(on.values())):
        # The pod is on several GPUs. The additional units of its init containers may be on any of them.
        on = {gpu: units + request.on_one_gpu - used for gpu, units in on.items()}
    return Reservation(on=tuple(sorted(on.items())))


def read_placement(pod: GpuPod) -> ContainerPlacement | None:
    """Return the placement in POD's annotations, or None if no annotation places all containers."""
    annotations = dict(pod.annotations)
    found = _by_allocation(pod.request, annotations.get(names.ALLOCATION, ""))
    return found or _by_index(pod.request, annotations.get(names.INDEX, ""))


def is_assigned(pod: GpuPod) -> bool:
    """Return whether the node has allocated GPUs to POD's containers."""
    return dict(pod.annotations).get(names.ASSIGNED) == "true"


def pod_annotations(
    request: MemoryRequest, placement: ContainerPlacement, sizes: Mapping[int, int], now_ns: int
) -> dict[str, str]:
    """Return the annotations of a pod with REQUEST that is placed at PLACEMENT at the time NOW_NS.

    NOW_NS is in nanoseconds since 1970. SIZES are the units of each GPU. The annotation ALLOCATION has only
    app containers, because other programs that read this annotation require this.
    """
    units = dict(request.by_container)
    gpus = sorted({gpu for _, gpu in placement.containers} | ({placement.gpu} - {-1}))
    by_container = {str(container): {str(gpu): units[container]} for container, gpu in placement.containers}
    return {
        names.INDEX: ",".join(map(str, gpus)),
        names.OF_GPU: str(max(sizes.get(gpu, 0) for gpu in gpus)),
        names.OF_POD: str(request.total),
        names.ASSUME_TIME: str(now_ns),
        names.ASSIGNED: "false",
        names.ALLOCATION: json.dumps(by_container, separators=(",", ":")),
    }


def _by_allocation(request: MemoryRequest, text: str) -> ContainerPlacement | None:
    """Return the placement in TEXT ({container: {GPU: units}}), or None if TEXT does not match REQUEST.

    Each container must be on one GPU, with the units that the container requests.
    """
    if not text or len(text) > _MAX_TEXT:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    found: list[tuple[int, int]] = []
    for container, units in request.by_container:
        entry = document.get(str(container))
        if not isinstance(entry, dict) or len(entry) != 1:
            return None
        ((index, amount),) = entry.items()
        gpu = _index(index)
        if gpu is None or amount != units or isinstance(amount, bool):
            return None
        found.append((container, gpu))
    gpus = {gpu for _, gpu in found}
    if not found:
        return None
    return ContainerPlacement(containers=tuple(found), gpu=gpus.pop() if len(gpus) == 1 else -1)


def _by_index(request: MemoryRequest, text: str) -> ContainerPlacement | None:
    gpu = _index(text)
    if gpu is None:
        return None
    return ContainerPlacement(
        containers=tuple((container, gpu) for container, _ in request.by_container), gpu=gpu
    )


def _index(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None
