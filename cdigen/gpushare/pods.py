"""What a pod asks of GPUs' memory: ``read_pod`` makes a ``Pod`` of the API's object.

How much a pod counts is in its spec, which the scheduler and quotas check; whoever may create it could write
anything into its annotations, so those say only where it is (``claims``).
"""

from __future__ import annotations

from cdigen.gpushare.quantity import whole
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.gpushare.names import Resources

# Phases in which no container runs, or ever will again.
ENDED = frozenset({"Succeeded", "Failed"})
# More than etcd's limit for an object lets anybody write down.
_MOST_CONTAINERS = 4096


@frozen
class Ask:
    """What a pod asks: ``shares`` are units by the index of its container, of containers that ask alone.

    ``together`` is 0, or what all of the pod needs on one GPU: the kubelet gives units of init containers to
    the containers after them, so they have to be of one GPU. ``problem`` says why nothing can serve it.
    """

    shares: tuple[tuple[int, int], ...] = ()
    together: int = 0
    problem: str = ""

    @property
    def total(self) -> int:
        """Units that the pod counts."""
        return self.together or sum([units for _, units in self.shares])


@frozen
class Pod:
    """A pod that asks: ``node`` is "" before it is bound, ``version`` the API's resourceVersion.

    ``annotations`` has those of gpushare alone.
    """

    uid: str
    namespace: str
    name: str
    version: str
    ask: Ask
    node: str = ""
    is_ended: bool = False
    annotations: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


def read_pod(
    found: object, resources: Resources, wanted: Iterable[str] = (), *, is_any: bool = False
) -> Pod | None:
    """Return the pod that the API's object FOUND describes; None where it asks for nothing, unless IS_ANY.

    WANTED are the keys of annotations that are kept. ValueError: it is no pod.
    """
    pod = _members(found, "the pod")
    metadata, spec = _members(pod.get("metadata"), "metadata"), _members(pod.get("spec"), "spec")
    ask = read_ask(spec, resources)
    if not (ask.total or ask.problem or is_any):
        return None
    status = _members(pod.get("status") or {}, "status")
    annotations = metadata.get("annotations")
    given = annotations if isinstance(annotations, dict) else {}
    return Pod(
        uid=_text(metadata, "uid"),
        namespace=_text(metadata, "namespace") or "default",
        name=_text(metadata, "name"),
        version=_text(metadata, "resourceVersion"),
        ask=ask,
        node=_text(spec, "nodeName"),
        is_ended=_text(status, "phase") in ENDED,
        annotations=tuple((key, given[key]) for key in wanted if isinstance(given.get(key), str)),
    )


def read_ask(spec: Mapping[str, object], resources: Resources) -> Ask:
    """Return what the pod's SPEC asks; an amount that nothing can serve is the ask's ``problem``."""
    try:
        shares = _limits(spec.get("containers"), resources.memory)
        early = _limits(spec.get("initContainers"), resources.memory)
    except ValueError as error:
        return Ask(problem=str(error))
    asking = tuple((position, units) for position, (units, _) in enumerate(shares) if units)
    if not any(units for units, _ in early):
        return Ask(shares=asking)
    # As the scheduler counts: what starts before a sidecar ends before it needs to share with it.
    beside = most = 0
    for units, is_sidecar in early:
        beside += units if is_sidecar else 0
        most = max(most, beside if is_sidecar else beside + units)
    return Ask(shares=asking, together=max(most, beside + sum([units for _, units in asking])))


def _limits(containers: object, resource: str) -> list[tuple[int, bool]]:
    """Return, for each of CONTAINERS, its units and whether it restarts for ever (a sidecar)."""
    if containers is None:
        return []
    if not isinstance(containers, list) or len(containers) > _MOST_CONTAINERS:
        raise ValueError("the pod's containers are no list")
    found = []
    for each in containers:
        container = _members(each, "a container")
        demands = container.get("resources")
        given = demands.get("limits") if isinstance(demands, dict) else None
        units = whole(given[resource]) if isinstance(given, dict) and resource in given else 0
        if units < 0:
            raise ValueError(f"a container asks for {units} of {resource}")
        found.append((units, container.get("restartPolicy") == "Always"))
    return found


def _members(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")  # noqa: TRY004 - of a document, not of code
    return value


def _text(values: Mapping[str, object], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""
