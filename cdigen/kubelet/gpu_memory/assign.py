"""``assign`` finds the container of a request, and ``repair`` corrects reservations on wrong GPUs.

Both functions are generators of requests to the API server, like the extender's binding. The caller sends
each ``Call`` and passes the ``Reply`` back. A generator may end between any two requests. Each function first
changes the ledger by compare-and-swap, and then the annotations. If the ledger entry and the annotation of a
pod differ, the pod reserves units on both GPUs until ``repair``.
"""

from __future__ import annotations

import time

from cdigen.gpushare.ledger import Ledger, read_ledger, write_ledger
from cdigen.gpushare.names import ASSIGNED, ledger_name
from cdigen.gpushare.pods import ENDED, NOT_ENDED
from cdigen.gpushare.reservations import pod_annotations
from cdigen.kubeapi.calls import MERGE, METADATA, Call, Reply, configmap_path, pod_path, query_path
from cdigen.kubeapi.lists import ListPage, PageSize
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeVar

    from cdigen.gpushare.reservations import ContainerPlacement
    from cdigen.kubelet.gpu_memory.bound_pods import BoundPod, ContainerRequest
    from cdigen.kubelet.gpu_memory.reservations import CandidateContainer, NodeReservations

    T = TypeVar("T")
    Steps = Generator[Call, Reply, T]

# The limit for attempts after conflicts. In each conflict, another writer succeeds.
MAX_ATTEMPTS = 8
# The largest number of pods in a page of metadata. The annotations of a pod have at most 256 KiB.
METADATA_PAGE = 50
# The limit for reads of single pods. Each read shows whether the pod's reservation is still in use.
MAX_POD_READS = 16


@frozen
class AssignContext:
    """The node, and the namespace of the node's ledger."""

    node: str
    namespace: str
    node_uid: str = ""


@frozen
class Assignment:
    """The result of a request of the kubelet: the container ``request`` of the pod ``bound``.

    ``moves`` is the number of changed reservations.
    """

    bound: BoundPod
    request: ContainerRequest
    moves: int = 0


class AllocationRefusedError(Exception):
    """No container can get the units of the request; the text is for the pod's event."""


class StaleAgentError(AllocationRefusedError):
    """The agent was stopped, so only the present agent can answer the request."""


class _Conflict(Exception):
    """Another writer was first, or the result is unknown, so all objects must be read again."""


def active_pods(node: str) -> str:
    """Return the field selector of the pods that are bound to NODE and have not ended."""
    return f"spec.nodeName={node},{NOT_ENDED}"


def assign(
    reservations: NodeReservations,
    gpu: int,
    units: int,
    context: AssignContext,
    ids: frozenset[str] = frozenset(),
) -> Steps[Assignment]:
    """Return the container for IDS (UNITS units of GPU); move its reservation to GPU if necessary.

    If the likeliest container already has its reservation on GPU, and the known state is certain enough, no
    request is sent to the API server. Raise ``AllocationRefusedError`` if there is no container for IDS.
    """
    candidates = reservations.candidates(gpu, units, ids)
    # The known pods may be slightly out of date, which is not permitted for pods that must be on one GPU.
    is_plain = not any(
        candidate.is_doubtful or candidate.bound.pod.request.on_one_gpu for candidate in candidates
    )
    if candidates and candidates[0].gpu == gpu and is_plain:
        return _served(reservations, candidates[0], gpu, ids)
    reason = ""
    for _ in range(MAX_ATTEMPTS):
        try:
            return (yield from _assign_once(reservations, gpu, units, context, ids))
        except _Conflict as last:
            reason = str(last)
    raise AllocationRefusedError(f"{MAX_ATTEMPTS} conflicts with other writers; last conflict: {reason}")


def repair(reservations: NodeReservations, context: AssignContext) -> Steps[int]:
    """Make ledger and annotations match the devices of containers; return the number of changed pods.

    Raise ``AllocationRefusedError`` if a request failed or another writer was first. The next repair tries
    again.
    """
    try:
        yield from read_reservations(reservations, context)
        if wrong := reservations.corrections():
            yield from _update_ledger(reservations, wrong, context)
        return (yield from _correct_annotations(reservations))
    except _Conflict as reason:
        raise AllocationRefusedError(f"reservations are not corrected yet: {reason}") from None


def _correct_annotations(reservations: NodeReservations) -> Steps[int]:
    """Write all annotations that differ from the devices of containers; return the number of changed pods."""
    needing = [bound for bound in reservations.bound_pods.values() if reservations.needs_patch(bound)]
    for bound in needing:
        place = reservations.actual_placement(bound)
        if place is not None:
            yield from _annotate(reservations, bound, place)
    return len(needing)


def _assign_once(
    reservations: NodeReservations, gpu: int, units: int, context: AssignContext, ids: frozenset[str]
) -> Steps[Assignment]:
    yield from read_reservations(reservations, context)
    candidates = reservations.candidates(gpu, units, ids)
    if not candidates:
        raise AllocationRefusedError(
            f"no container of a pending pod on {context.node} requests {units} units"
        )
    for candidate in candidates:
        moves = reservations.plan(candidate, gpu)
        if moves is None:
            if candidate.is_next and candidate.bound.pod.request.on_one_gpu:
                break  # the request is for this pod, which must stay on one GPU
            continue
        if moves:
            yield from _update_ledger(reservations, moves, context)
            for bound, placement in moves:
                yield from _annotate(reservations, bound, placement)
        return _served(reservations, candidate, gpu, ids, moves=len(moves))
    first = candidates[0]
    if reservations.has_foreign_ledger(first.bound):
        raise AllocationRefusedError(mismatch(first.bound, context))
    # If an earlier annotation failed, the pod still reserves units of its former GPU.
    if (yield from _correct_annotations(reservations)):
        raise _Conflict("annotations of other pods had to be corrected")
    reserved = "an unknown GPU" if first.gpu is None else f"GPU {first.gpu}"
    raise AllocationRefusedError(
        f"the kubelet chose {units} units of GPU {gpu} for pod {first.bound.pod.key}, whose reservation is "
        f"on {reserved}, and the units of GPU {gpu} are reserved for other pods"
    )


def mismatch(bound: BoundPod, context: AssignContext) -> str:
    """Return the message that the reservation of BOUND is in a ledger of another namespace."""
    return (
        f"pod {bound.pod.key}: the extender has its ledgers in namespace {bound.ledger_namespace!r}, but "
        f"'kubelet: {{shared_memory: {{namespace}}}}' is {context.namespace!r}, so reservations are not "
        "changed; configure the same namespace for both"
    )


def _served(
    reservations: NodeReservations,
    candidate: CandidateContainer,
    gpu: int,
    ids: frozenset[str],
    *,
    moves: int = 0,
) -> Assignment:
    bound = reservations.bound_pods.get(candidate.bound.pod.uid, candidate.bound)
    reservations.serve(bound, candidate.request, gpu, time.monotonic(), ids)
    return Assignment(bound=bound, request=candidate.request, moves=moves)


def read_reservations(reservations: NodeReservations, context: AssignContext) -> Steps[None]:
    """Read the present pods and the present ledger of the node, or raise ``AllocationRefusedError``."""
    yield from _read_pods(reservations, context.node)
    reply = yield Call(method="GET", path=_ledger_path(context))
    if not reply.is_done and reply.status != 404:
        raise AllocationRefusedError(
            f"the API server does not return the ledger of {context.node}: {reply.text}"
        )
    ledger = read_ledger(reply.body) if reply.is_done else Ledger()
    reads, over = MAX_POD_READS, []
    for entry in ledger.entries:
        namespace, _, name = entry.key.partition("/")
        if entry.uid in reservations.bound_pods or not reads:
            continue
        reads -= 1
        if _is_over((yield Call(method="GET", path=pod_path(namespace, name))), entry.uid, context.node):
            over.append(entry.uid)
    reservations.ledger = ledger.without(over)


def _read_pods(reservations: NodeReservations, node: str) -> Steps[None]:
    """Read the pods of NODE that have changed.

    A pod may have 1.8 MB. So the list has only metadata, and unchanged pods are not read again.
    """
    known = frozenset(reservations.bound_pods)  # the watch may add pods during the list
    uids: set[str] = set()
    changed: list[tuple[str, str, str]] = []
    size, more = PageSize(METADATA_PAGE), ""
    while True:
        query = {"fieldSelector": active_pods(node), "limit": str(size.limit), "continue": more}
        path = query_path("/api/v1/pods", query)
        reply = yield Call(method="GET", path=path, is_raw=True, accept=METADATA)
        if not reply.is_done:
            raise AllocationRefusedError(f"the API server does not list the pods of {node}: {reply.text}")
        page = ListPage(reply.content)
        for found in page.items():
            metadata = found["metadata"]
            uid = str(metadata["uid"])
            uids.add(uid)
            if not reservations.is_current(uid, str(metadata["resourceVersion"])):
                changed.append((uid, str(metadata["namespace"]), str(metadata["name"])))
            del found, metadata  # frees the memory for the next object
        size.received(page)
        more = page.next_page
        if not more:
            break
    for uid, namespace, name in changed:
        reply = yield Call(method="GET", path=pod_path(namespace, name))
        if _is_over(reply, uid, node):
            uids.discard(uid)
        elif reply.is_done:
            reservations.put(reply.body)
        else:
            raise AllocationRefusedError(
                f"the API server does not return pod {namespace}/{name}: {reply.text}"
            )
    reservations.keep(uids, known)


def _is_over(reply: Reply, uid: str, node: str) -> bool:
    """Return whether REPLY shows that the pod UID does not need its reservation on NODE any more."""
    if reply.status == 404:
        return True
    if not reply.is_done:
        return False
    metadata, spec, status = (reply.body.get(key) for key in ("metadata", "spec", "status"))
    if not isinstance(metadata, dict) or not metadata.get("uid"):
        return False
    elsewhere = spec.get("nodeName") if isinstance(spec, dict) else None
    phase = status.get("phase") if isinstance(status, dict) else None
    return metadata["uid"] != uid or phase in ENDED or elsewhere not in {None, "", node}


def _update_ledger(
    reservations: NodeReservations,
    moves: tuple[tuple[BoundPod, ContainerPlacement], ...],
    context: AssignContext,
) -> Steps[None]:
    """Write all MOVES into the ledger in one request."""
    ledger = reservations.ledger.with_entries(
        *(reservations.entry(bound, placement) for bound, placement in moves)
    )
    name = ledger_name(context.node)
    body = write_ledger(
        ledger, name=name, namespace=context.namespace, node=context.node, node_uid=context.node_uid
    )
    if ledger.version:
        reply = yield Call(method="PUT", path=_ledger_path(context), body=body)
    else:
        reply = yield Call(method="POST", path=configmap_path(context.namespace), body=body)
    if reply.status == 409 or reply.is_unknown:
        raise _Conflict(reply.text)
    if not reply.is_done:
        raise AllocationRefusedError(
            f"the API server did not store the ledger of {context.node}: {reply.text}"
        )
    reservations.ledger = read_ledger(reply.body)


def _annotate(reservations: NodeReservations, bound: BoundPod, placement: ContainerPlacement) -> Steps[None]:
    """Write PLACEMENT to the annotations of BOUND, if the pod has not changed since it was read."""
    pod = bound.pod
    annotations = pod_annotations(
        pod.request, placement, reservations.sizes, bound.assumed_ns or time.time_ns()
    )
    if reservations.is_served(bound):
        annotations[ASSIGNED] = "true"
    metadata = {"uid": pod.uid, "resourceVersion": pod.version, "annotations": annotations}
    # A write to the subresource needs no permission to change the specification of pods.
    path = f"{pod_path(pod.namespace, pod.name)}/status"
    reply = yield Call(method="PATCH", path=path, body={"metadata": metadata}, content_type=MERGE)
    if reply.status in {404, 409, 422} or reply.is_unknown:
        raise _Conflict(reply.text)
    if not reply.is_done:
        raise AllocationRefusedError(f"the API server did not annotate pod {pod.key}: {reply.text}")
    reservations.put(reply.body)


def _ledger_path(context: AssignContext) -> str:
    return configmap_path(context.namespace, ledger_name(context.node))
