"""The GPU memory that a pod requests: ``read_pod`` reads a ``GpuPod`` from the Pod object.

The amount is in the pod's spec, which the scheduler and quotas check. The author of a pod can write anything
into its annotations. So annotations only name the GPUs (``reservations``).
"""

from __future__ import annotations

from cdigen.gpushare.quantity import parse_quantity
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.gpushare.names import Resources

# The phases of pods that have ended, and the field selector of all other pods.
ENDED = frozenset({"Succeeded", "Failed"})
NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
# The limit for containers. A pod cannot have more containers, because etcd limits the size of an object.
_MOST_CONTAINERS = 4096


@frozen
class MemoryRequest:
    """The units that a pod requests.

    ``by_container`` has the index and the units of each app container that requests units. ``on_one_gpu`` is
    the number of units that the whole pod needs on one GPU, or 0. The kubelet reuses the units of init
    containers for later containers. So all containers of a pod with units for init containers must be on one
    GPU. ``problem`` is the reason why no node can satisfy the request, or "".
    """

    by_container: tuple[tuple[int, int], ...] = ()
    on_one_gpu: int = 0
    problem: str = ""

    @property
    def total(self) -> int:
        """The units of the whole pod."""
        return self.on_one_gpu or sum([units for _, units in self.by_container])


@frozen
class GpuPod:
    """A pod that requests GPU memory.

    ``node`` is "" before the pod is bound. ``version`` is the resourceVersion. ``annotations`` has only the
    annotations that the caller of ``read_pod`` chose.
    """

    uid: str
    namespace: str
    name: str
    version: str
    request: MemoryRequest
    node: str = ""
    is_ended: bool = False
    annotations: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """The namespace/name of the pod."""
        return f"{self.namespace}/{self.name}"


def read_pod(
    document: object, resources: Resources, annotation_keys: Iterable[str] = (), *, any_request: bool = False
) -> GpuPod | None:
    """Return the pod in the Pod object DOCUMENT, or None if the pod requests no GPU memory.

    If ANY_REQUEST is set, a pod without a request is also returned. ANNOTATION_KEYS are the annotations to
    keep. Raise ValueError if DOCUMENT is not a Pod.
    """
    pod = _members(document, "the pod")
    metadata, spec = _members(pod.get("metadata"), "metadata"), _members(pod.get("spec"), "spec")
    request = read_request(spec, resources)
    if not (request.total or request.problem or any_request):
        return None
    status = _members(pod.get("status") or {}, "status")
    annotations = metadata.get("annotations")
    values = annotations if isinstance(annotations, dict) else {}
    return GpuPod(
        uid=_text(metadata, "uid"),
        namespace=_text(metadata, "namespace") or "default",
        name=_text(metadata, "name"),
        version=_text(metadata, "resourceVersion"),
        request=request,
        node=_text(spec, "nodeName"),
        is_ended=_text(status, "phase") in ENDED,
        annotations=tuple((key, values[key]) for key in annotation_keys if isinstance(values.get(key), str)),
    )


def read_request(spec: Mapping[str, object], resources: Resources) -> MemoryRequest:
    """Return the request in the pod's SPEC; ``problem`` of the result reports an invalid amount."""
    try:
        containers = _limits(spec.get("containers"), resources.memory)
        init_containers = _limits(spec.get("initContainers"), resources.memory)
    except ValueError as error:
        return MemoryRequest(problem=str(error))
    requests = tuple((position, units) for position, (units, _) in enumerate(containers) if units)
    if not any(units for units, _ in init_containers):
        return MemoryRequest(by_container=requests)
    # As in the scheduler, an init container before a sidecar ends before the sidecar starts.
    sidecars = most = 0
    for units, is_sidecar in init_containers:
        sidecars += units if is_sidecar else 0
        most = max(most, sidecars if is_sidecar else sidecars + units)
    together = max(most, sidecars + sum([units for _, units in requests]))
    return MemoryRequest(by_container=requests, on_one_gpu=together)


def _limits(containers: object, resource: str) -> list[tuple[int, bool]]:
    """Return for each of CONTAINERS the units, and whether the container is a sidecar."""
    if containers is None:
        return []
    if not isinstance(containers, list) or len(containers) > _MOST_CONTAINERS:
        raise ValueError(f"the pod's containers are not a list of at most {_MOST_CONTAINERS}")
    found = []
    for each in containers:
        container = _members(each, "a container")
        fields = container.get("resources")
        limits = fields.get("limits") if isinstance(fields, dict) else None
        units = parse_quantity(limits[resource]) if isinstance(limits, dict) and resource in limits else 0
        if units < 0:
            raise ValueError(f"a container requests {units} of {resource}")
        found.append((units, container.get("restartPolicy") == "Always"))
    return found


def _members(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")  # noqa: TRY004 - an invalid document is a ValueError
    return value


def _text(values: Mapping[str, object], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""
