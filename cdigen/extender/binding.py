"""``bind`` reserves GPUs for a pod and binds the pod. Several extenders may bind at the same time.

``bind`` is a generator of requests to the API server. Its caller sends each ``Call`` and passes the ``Reply``
back. An *attempt* is one run of this generator. The process may be delayed, killed or paused between any two
requests. docs/decisions/0017-a-ledger-for-each-node.md explains each step. The rules are:

- Before the pod is bound, a compare-and-swap writes an entry for the pod into the ledger of the node.
- An attempt never reduces the units of an entry. If an attempt finds an entry of its pod, the attempt adopts
  the entry. To adopt an entry, the attempt writes its own token into the entry.
- An entry is removed if the pod has ended, does not exist any more, or is bound to another node.
- The attempt that created an entry may also remove the entry. Two conditions apply: no other attempt has
  adopted the entry, and no Binding of the creating attempt can still succeed.
"""

from __future__ import annotations

from contextlib import suppress

from cdigen.extender.placement import place
from cdigen.gpushare.free_capacity import combine_reservations
from cdigen.gpushare.ledger import Ledger, LedgerEntry, read_ledger, write_ledger
from cdigen.gpushare.names import LEDGER_NAMESPACE, ledger_name
from cdigen.gpushare.pods import read_pod
from cdigen.gpushare.reservations import ANNOTATION_KEYS, pod_annotations, read_placement, reservation_of
from cdigen.kubeapi.calls import Call, Reply, configmap_path, pod_path
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from cdigen.extender.index import Index
    from cdigen.extender.placement import Strategy
    from cdigen.gpushare.free_capacity import FreeCapacity
    from cdigen.gpushare.pods import GpuPod
    from cdigen.gpushare.reservations import ContainerPlacement

    Steps = Generator[Call, Reply, "BindResult"]

# The results of a bind. BOUND: the pod is bound. NO_CAPACITY: no GPU has enough free units. POD_GONE: the pod
# does not exist, has ended or is bound to another node. API_ERROR: the API server refused a request or did
# not respond. CONFLICT: other writers changed the ledger or the pod in all MAX_ATTEMPTS runs.
BOUND, NO_CAPACITY, POD_GONE, API_ERROR, CONFLICT = (
    "bound",
    "no_capacity",
    "pod_gone",
    "api_error",
    "conflict",
)
# An attempt runs its steps again after a conflict, and at most this number of times in total. A conflict
# means that another writer succeeded.
MAX_ATTEMPTS = 8
# The limit for pods that one bind reads to check whether the pods' reservations are still in use.
MAX_POD_READS = 16


@frozen
class BindRequest:
    """A request of the scheduler to bind the pod ``namespace``/``name`` with ``uid`` to ``node``."""

    namespace: str
    name: str
    uid: str
    node: str


@frozen
class BindConfig:
    """The namespace of the ledgers, the strategy for GPUs, and the time; ``token`` identifies the attempt."""

    namespace: str
    token: str
    now_ns: int
    strategy: Strategy = "binpack"


@frozen
class BindResult:
    """The result of a bind.

    ``problem`` is the reason why the pod was not bound, or "". ``on`` has the pod's units by GPU.
    """

    kind: str = BOUND
    problem: str = ""
    on: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        return self.problem


class _Refused(Exception):
    """Ends the attempt with the result KIND; TEXT is for the pod's event."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Conflict(Exception):
    """Another writer was first, so the attempt must repeat all steps."""


def bind(request: BindRequest, index: Index, config: BindConfig) -> Steps:
    """Yield the calls that bind the pod of REQUEST, with the data in INDEX and CONFIG; return the result."""
    attempt = _Attempt(request, index, config)
    for _ in range(MAX_ATTEMPTS):
        try:
            yield from attempt.steps()
        except _Conflict as last:
            reason = str(last)
        except _Refused as refusal:
            yield from attempt.unreserve()
            return BindResult(kind=refusal.kind, problem=str(refusal))
        else:
            return BindResult(on=attempt.on)
    yield from attempt.unreserve()
    problem = f"conflict with other writers in {MAX_ATTEMPTS} attempts; last conflict: {reason}"
    return BindResult(kind=CONFLICT, problem=problem)


class _Attempt:
    """The state of one attempt."""

    def __init__(self, request: BindRequest, index: Index, config: BindConfig) -> None:
        self._request = request
        self._index = index
        self._config = config
        self._path = pod_path(request.namespace, request.name)
        # Whether this attempt created the entry of the pod.
        self._is_first = False
        # Whether a Binding of this attempt may still succeed.
        self._may_bind = False
        self._reads_left = MAX_POD_READS
        self.on: tuple[tuple[int, int], ...] = ()

    def steps(self) -> Generator[Call, Reply, None]:
        """Do all steps once, or raise ``_Conflict`` or ``_Refused``."""
        pod = yield from self._read_pod()
        if pod is None:
            return
        if not pod.request.total and not pod.request.problem:
            yield from self._send_binding(pod, None)
            return
        placement = yield from self._reserve(pod)
        self.on = reservation_of(pod.request, placement).on
        yield from self._send_binding(pod, placement)

    def unreserve(self) -> Generator[Call, Reply, None]:
        """Remove the entry if no other attempt uses the entry and no Binding of this attempt can succeed."""
        if not self._is_first or self._may_bind:
            return
        for _ in range(MAX_ATTEMPTS):
            reply = yield Call(method="GET", path=self._ledger_path())
            ledger = read_ledger(reply.body)
            entry = ledger.entry(self._request.uid)
            if not reply.is_done or entry is None or entry.token != self._config.token:
                return
            reply = yield self._write_call(ledger.without([entry.uid]))
            if reply.status != 409:
                if reply.is_done:
                    self._index.put_ledger(self._request.node, read_ledger(reply.body))
                return

    # 1. The pod.

    def _read_pod(self) -> Generator[Call, Reply, GpuPod | None]:
        """Return the present pod, or None if the pod is already bound to the node."""
        reply = yield Call(method="GET", path=self._path)
        if reply.status == 404:  # the index keeps the UID, because a pod with another name may have it
            raise _Refused(POD_GONE, "the pod is gone")
        if not reply.is_done:
            raise _Refused(API_ERROR, f"the API server does not return the pod: {reply.text}")
        pod = self._pod_of(reply)
        if pod.uid != self._request.uid:
            raise _Refused(POD_GONE, f"another pod has this name now (UID {pod.uid})")
        if pod.is_ended:
            raise _Refused(POD_GONE, "the pod has ended")
        if pod.node and pod.node != self._request.node:
            self._may_bind = False
            raise _Refused(POD_GONE, f"the pod is bound to {pod.node}")
        if pod.node:
            self.on = reservation_of(pod.request, read_placement(pod)).on
            return None
        return pod

    def _pod_of(self, reply: Reply) -> GpuPod:
        try:
            self._index.put_pod(reply.body)
            pod = read_pod(reply.body, self._index.resources, ANNOTATION_KEYS, any_request=True)
        except ValueError as error:
            raise _Refused(API_ERROR, f"the pod from the API server cannot be read: {error}") from None
        if pod is None:
            raise _Refused(API_ERROR, "the pod from the API server cannot be read")
        return pod

    # 2. The ledger.

    def _reserve(self, pod: GpuPod) -> Generator[Call, Reply, ContainerPlacement]:
        """Write or adopt the entry of POD in the ledger; return the placement."""
        node = self._request.node
        if node not in self._index.capacities:
            raise _Refused(NO_CAPACITY, f"{node}: not in the node list of the extender yet")
        reply = yield Call(method="GET", path=self._ledger_path())
        if not reply.is_done and reply.status != 404:
            raise _Refused(
                API_ERROR, f"the API server does not return the reservations on {node}: {reply.text}"
            )
        ledger = read_ledger(reply.body) if reply.is_done else Ledger()
        before = ledger.entry(pod.uid)
        if before is not None and before.token == self._config.token:
            return before.placement  # this attempt has written the entry before a conflict
        yield from self._refresh_pods([entry for entry in ledger.entries if not self._index.pod(entry.uid)])
        placement = yield from self._choose(pod, ledger, before)
        entry = LedgerEntry(
            uid=pod.uid,
            key=pod.key,
            on=combine_reservations(
                before.reservation if before else None, reservation_of(pod.request, placement)
            ).on,
            containers=placement.containers,
            gpu=placement.gpu,
            token=self._config.token,
        )
        obsolete = [each.uid for each in ledger.entries if self._index.is_obsolete(node, each.uid)]
        self._is_first = before is None
        reply = yield self._write_call(ledger.without(obsolete).with_entries(entry))
        if reply.status == 409 or reply.is_unknown:
            raise _Conflict(reply.text)
        if not reply.is_done:
            raise _Refused(API_ERROR, f"the API server does not write the ledger of {node}: {reply.text}")
        self._index.put_ledger(node, read_ledger(reply.body))
        return placement

    def _choose(
        self, pod: GpuPod, ledger: Ledger, before: LedgerEntry | None
    ) -> Generator[Call, Reply, ContainerPlacement]:
        """Return the placement of POD.

        BEFORE is the entry of an earlier attempt, or None. If the GPUs of this entry are still usable, the
        result is the placement of this entry.
        """
        node = self._request.node
        free = self._index.free_capacity_by(node, ledger, pod.uid)
        if before is not None and _is_usable(before, pod, free):
            return before.placement
        placement = place(pod.request, free, self._config.strategy)
        if placement is None:
            # The index may be out of date. Some pods may have ended, or may be bound to other nodes.
            unsure = [each for each in ledger.entries if not self._index.is_bound(node, each.uid)]
            yield from self._refresh_pods(unsure)
            free = self._index.free_capacity_by(node, ledger, pod.uid)
            placement = place(pod.request, free, self._config.strategy)
        if placement is None:
            raise _Refused(NO_CAPACITY, no_capacity_reason(pod, node, free))
        return placement

    def _refresh_pods(self, entries: list[LedgerEntry]) -> Generator[Call, Reply, None]:
        """Read the pods of ENTRIES from the API server into the index; skip pods with an obsolete entry."""
        for entry in entries:
            namespace, _, name = entry.key.partition("/")
            is_obsolete = self._index.is_obsolete(self._request.node, entry.uid)
            if is_obsolete or entry.uid == self._request.uid or self._reads_left == 0:
                continue
            self._reads_left -= 1
            reply = yield Call(method="GET", path=pod_path(namespace, name))
            self._update_index(entry.uid, reply)

    def _update_index(self, uid: str, reply: Reply) -> None:
        if reply.status == 404:
            self._index.drop_pod(uid)
        elif reply.is_done:
            metadata = reply.body.get("metadata")
            if isinstance(metadata, dict) and isinstance(metadata.get("uid"), str) and metadata["uid"] != uid:
                self._index.drop_pod(uid)
            else:
                with suppress(ValueError):  # the index keeps its earlier state of an unreadable pod
                    self._index.put_pod(reply.body)

    # 3. The Binding. It includes the annotations, because the API server stores the node and the annotations
    # in one step.

    def _send_binding(
        self, pod: GpuPod, placement: ContainerPlacement | None
    ) -> Generator[Call, Reply, None]:
        node = self._index.capacities.get(self._request.node)
        sizes = {gpu.index: gpu.units for gpu in node.gpus} if node else {}
        annotations: dict[str, str] = {}
        if placement is not None:
            annotations = pod_annotations(pod.request, placement, sizes, self._config.now_ns)
        annotations[LEDGER_NAMESPACE] = self._config.namespace
        precondition = {"uid": pod.uid, "resourceVersion": pod.version}
        metadata = {"name": pod.name, "namespace": pod.namespace, **precondition, "annotations": annotations}
        target = {"apiVersion": "v1", "kind": "Node", "name": self._request.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        could_before, self._may_bind = self._may_bind, True
        reply = yield Call(method="POST", path=f"{self._path}/binding", body=body)
        if reply.is_done:
            kept = tuple((key, annotations[key]) for key in ANNOTATION_KEYS if key in annotations)
            self._index.note_bound(replace(pod, annotations=kept), self._request.node)
            return
        if not reply.is_unknown:
            self._may_bind = could_before
            if reply.status not in {404, 409}:
                raise _Refused(API_ERROR, f"the API server refuses the binding: {reply.text}")
        raise _Conflict(reply.text)

    # The ConfigMap of the ledger.

    def _ledger_path(self) -> str:
        return configmap_path(self._config.namespace, ledger_name(self._request.node))

    def _write_call(self, ledger: Ledger) -> Call:
        """Return the request that writes LEDGER if the ConfigMap still has the version of LEDGER."""
        node = self._request.node
        name, namespace = ledger_name(node), self._config.namespace
        uid = self._index.capacities[node].uid if node in self._index.capacities else ""
        body = write_ledger(ledger, name=name, namespace=namespace, node=node, node_uid=uid)
        if ledger.version:
            return Call(method="PUT", path=self._ledger_path(), body=body)
        return Call(method="POST", path=configmap_path(namespace), body=body)


def _is_usable(before: LedgerEntry, pod: GpuPod, free: FreeCapacity) -> bool:
    """Return whether the earlier entry BEFORE places each container of POD on a GPU that is usable now."""
    gpus = {gpu for gpu, _ in before.on}
    containers = {container for container, _ in before.containers}
    is_complete = containers == {index for index, _ in pod.request.by_container}
    return (
        is_complete
        and gpus <= {gpu for gpu, _ in free.free}
        and (before.gpu >= 0 or not pod.request.on_one_gpu)
        and before.on == reservation_of(pod.request, before.placement).on
    )


# The least request with a suffix for megabytes or more (1M), and the hint for such a request. No GPU has as
# many units, because the kubelet cannot read such a list (kubelet.resources.memory).
_SUFFIXED = 1_000_000
_SUFFIX_HINT = "; write the request as a number of memory units, without a suffix (unit GiB: 10 for 10 GiB)"


def no_capacity_reason(pod: GpuPod, node: str, free: FreeCapacity) -> str:
    """Return the reason why POD does not fit into the FREE capacity of NODE."""
    if pod.request.problem:
        return pod.request.problem
    largest = pod.request.on_one_gpu or max([units for _, units in pod.request.by_container], default=0)
    if largest > free.largest:
        suffix = _SUFFIX_HINT if largest >= _SUFFIXED else ""
        return f"{node}: {largest} units requested of one GPU, the largest GPU has {free.largest}{suffix}"
    if largest > free.most:
        return f"{node}: {largest} units requested of one GPU, no GPU has more than {free.most} free"
    requested = f"{pod.request.total} units requested, {free.left} free"
    return f"{node}: {requested}, but the containers do not fit into the GPUs"
