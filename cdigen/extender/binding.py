"""Promise GPUs to a pod and bind it: ``bind``, with any number of other extenders at work.

A generator of requests to the API server: whoever runs it sends each ``Call`` and gives back its ``Reply``.
It may be late, be killed or paused between any two of them. What makes it safe, and why each step is as it
is, stands in docs/decisions/0017-a-ledger-for-each-node.md; in short:

- the claim is in the node's ledger before the pod is bound, by compare-and-swap;
- an entry of a pod is never made smaller: who finds one adopts it, and marks it as adopted;
- it is dropped only if the pod is over or bound elsewhere, or by who made it, while nobody has adopted it and
  none of its own Bindings can still succeed.
"""

from __future__ import annotations

from contextlib import suppress

from cdigen.extender.placement import place
from cdigen.gpushare.claims import READ, claim_of, read_placement, written
from cdigen.gpushare.ledger import Entry, Ledger, read_ledger, write_ledger
from cdigen.gpushare.names import LEDGER_IN, ledger_name
from cdigen.gpushare.pods import read_pod
from cdigen.gpushare.room import counted
from cdigen.kubeapi.calls import Call, Reply, configmap_path, pod_path
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from cdigen.extender.index import Index
    from cdigen.extender.placement import Strategy
    from cdigen.gpushare.claims import Placement
    from cdigen.gpushare.pods import Pod
    from cdigen.gpushare.room import Room

    Steps = Generator[Call, Reply, "Outcome"]

# How a bind ends: done; no GPU has room; the pod is gone, ended or bound elsewhere; the API server refuses or
# does not answer; others were always first.
BOUND, NO_ROOM, OVER, API, CONFLICT = "bound", "no-room", "over", "api", "conflict"
# Each conflict is somebody else's success.
MAX_ATTEMPTS = 8
# Pods that one bind asks for, to find out whether what they were promised is still of use.
MAX_LOOKS = 16


@frozen
class Wanted:
    """What the scheduler asks for: to bind the pod NAMESPACE/NAME with UID to NODE."""

    namespace: str
    name: str
    uid: str
    node: str


@frozen
class Terms:
    """How this extender binds: where ledgers are, which GPUs it prefers; ``token`` is this attempt's own."""

    namespace: str
    token: str
    now_ns: int
    strategy: Strategy = "binpack"


@frozen
class Outcome:
    """How a bind ended: ``problem`` says why it was not done, "" if it was, ``on`` has the units by GPU."""

    kind: str = BOUND
    problem: str = ""
    on: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        return self.problem


class _Refused(Exception):
    """Ends the attempt, as one of KIND; the text is for the pod's event."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Again(Exception):
    """Somebody else was first: everything has to be read anew."""


def bind(wanted: Wanted, index: Index, terms: Terms) -> Steps:
    """Bind what is WANTED, with what INDEX knows, by TERMS; return how it ended."""
    attempt = _Attempt(wanted, index, terms)
    for _ in range(MAX_ATTEMPTS):
        try:
            yield from attempt.steps()
        except _Again as last:
            reason = str(last)
        except _Refused as refusal:
            yield from attempt.take_back()
            return Outcome(kind=refusal.kind, problem=str(refusal))
        else:
            return Outcome(on=attempt.on)
    yield from attempt.take_back()
    problem = f"others were always first, {MAX_ATTEMPTS} times; the last time: {reason}"
    return Outcome(kind=CONFLICT, problem=problem)


class _Attempt:
    """One bind: what it has read and done so far."""

    def __init__(self, wanted: Wanted, index: Index, terms: Terms) -> None:
        self._wanted = wanted
        self._index = index
        self._terms = terms
        self._path = pod_path(wanted.namespace, wanted.name)
        # Whether there was no entry of the pod before ours, and whether a Binding of ours may still succeed.
        self._is_first = False
        self._may_bind = False
        self._looks = MAX_LOOKS
        self.on: tuple[tuple[int, int], ...] = ()

    def steps(self) -> Generator[Call, Reply, None]:
        """Do all of it once; raises ``_Again`` or ``_Refused``."""
        pod = yield from self._read_pod()
        if pod is None:
            return
        if not pod.ask.total and not pod.ask.problem:
            yield from self._send_binding(pod, None)
            return
        placement = yield from self._promise(pod)
        self.on = claim_of(pod.ask, placement).on
        yield from self._send_binding(pod, placement)

    def take_back(self) -> Generator[Call, Reply, None]:
        """Remove our entry, if it is ours alone and no Binding of ours can still succeed."""
        if not self._is_first or self._may_bind:
            return
        for _ in range(MAX_ATTEMPTS):
            reply = yield Call(method="GET", path=self._ledger_path())
            ledger = read_ledger(reply.body)
            entry = ledger.entry(self._wanted.uid)
            if not reply.is_done or entry is None or entry.token != self._terms.token:
                return
            reply = yield self._writing(ledger.without([entry.uid]))
            if reply.status != 409:
                if reply.is_done:
                    self._index.put_ledger(self._wanted.node, read_ledger(reply.body))
                return

    # 1. The pod.

    def _read_pod(self) -> Generator[Call, Reply, Pod | None]:
        """Return the pod as it is now; None: it is bound to the node already."""
        reply = yield Call(method="GET", path=self._path)
        if reply.status == 404:  # of the name: the UID is the request's word, and may be a living pod's
            raise _Refused(OVER, "the pod is gone")
        if not reply.is_done:
            raise _Refused(API, f"the API server does not show the pod: {reply.text}")
        pod = self._pod_of(reply)
        if pod.uid != self._wanted.uid:
            raise _Refused(OVER, f"the pod is another one of this name, with the UID {pod.uid}")
        if pod.is_ended:
            raise _Refused(OVER, "the pod has ended")
        if pod.node and pod.node != self._wanted.node:
            self._may_bind = False
            raise _Refused(OVER, f"the pod is bound to {pod.node}")
        if pod.node:
            self.on = claim_of(pod.ask, read_placement(pod)).on
            return None
        return pod

    def _pod_of(self, reply: Reply) -> Pod:
        try:
            self._index.put_pod(reply.body)
            pod = read_pod(reply.body, self._index.resources, READ, is_any=True)
        except ValueError as error:
            raise _Refused(API, f"the API server's pod cannot be read: {error}") from None
        if pod is None:
            raise _Refused(API, "the API server's pod cannot be read")
        return pod

    # 2. The ledger.

    def _promise(self, pod: Pod) -> Generator[Call, Reply, Placement]:
        """Have an entry for POD in the ledger; returns where it is."""
        node = self._wanted.node
        if node not in self._index.offers:
            raise _Refused(NO_ROOM, f"the node {node} is not known (yet)")
        reply = yield Call(method="GET", path=self._ledger_path())
        if not reply.is_done and reply.status != 404:
            raise _Refused(API, f"the API server does not show what was promised on {node}: {reply.text}")
        ledger = read_ledger(reply.body) if reply.is_done else Ledger()
        before = ledger.entry(pod.uid)
        if before is not None and before.token == self._terms.token:
            return before.placement  # an answer of ours was lost, or the pod was changed since
        yield from self._look_at([entry for entry in ledger.entries if not self._index.pod(entry.uid)])
        placement = yield from self._choose(pod, ledger, before)
        entry = Entry(
            uid=pod.uid,
            key=pod.key,
            on=counted(before.claim if before else None, claim_of(pod.ask, placement)).on,
            containers=placement.containers,
            gpu=placement.gpu,
            token=self._terms.token,
        )
        done = [each.uid for each in ledger.entries if self._index.is_fulfilled(node, each.uid)]
        self._is_first = before is None
        reply = yield self._writing(ledger.without(done).having(entry))
        if reply.status == 409 or reply.is_unknown:
            raise _Again(reply.text)
        if not reply.is_done:
            raise _Refused(API, f"the API server keeps no ledger of {node}: {reply.text}")
        self._index.put_ledger(node, read_ledger(reply.body))
        return placement

    def _choose(self, pod: Pod, ledger: Ledger, before: Entry | None) -> Generator[Call, Reply, Placement]:
        """Return where POD goes: where an attempt BEFORE put it, if those GPUs still serve."""
        node = self._wanted.node
        room = self._index.room_with(node, ledger, pod.uid)
        if before is not None and _serves(before, pod, room):
            return before.placement
        placement = place(pod.ask, room, self._terms.strategy)
        if placement is None:
            # Perhaps our knowledge is old: some may be over, or bound elsewhere.
            unsure = [each for each in ledger.entries if not self._index.is_bound(node, each.uid)]
            yield from self._look_at(unsure)
            room = self._index.room_with(node, ledger, pod.uid)
            placement = place(pod.ask, room, self._terms.strategy)
        if placement is None:
            raise _Refused(NO_ROOM, no_room(pod, node, room))
        return placement

    def _look_at(self, entries: list[Entry]) -> Generator[Call, Reply, None]:
        """Ask for the pods of ENTRIES of which it is not known that they are over, or bound elsewhere."""
        for entry in entries:
            namespace, _, name = entry.key.partition("/")
            done = self._index.is_fulfilled(self._wanted.node, entry.uid)
            if done or entry.uid == self._wanted.uid or self._looks == 0:
                continue
            self._looks -= 1
            reply = yield Call(method="GET", path=pod_path(namespace, name))
            self._learn(entry.uid, reply)

    def _learn(self, uid: str, reply: Reply) -> None:
        if reply.status == 404:
            self._index.drop_pod(uid)
        elif reply.is_done:
            metadata = reply.body.get("metadata")
            if isinstance(metadata, dict) and isinstance(metadata.get("uid"), str) and metadata["uid"] != uid:
                self._index.drop_pod(uid)
            else:
                with suppress(ValueError):  # what cannot be read counts as it did
                    self._index.put_pod(reply.body)

    # 3. The Binding, which brings the annotations along: the API server stores both at once.

    def _send_binding(self, pod: Pod, placement: Placement | None) -> Generator[Call, Reply, None]:
        offer = self._index.offers.get(self._wanted.node)
        sizes = {gpu.index: gpu.units for gpu in offer.gpus} if offer else {}
        given = {} if placement is None else written(pod.ask, placement, sizes, self._terms.now_ns)
        given[LEDGER_IN] = self._terms.namespace
        precondition = {"uid": pod.uid, "resourceVersion": pod.version}
        metadata = {"name": pod.name, "namespace": pod.namespace, **precondition, "annotations": given}
        target = {"apiVersion": "v1", "kind": "Node", "name": self._wanted.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        could_before, self._may_bind = self._may_bind, True
        reply = yield Call(method="POST", path=f"{self._path}/binding", body=body)
        if reply.is_done:
            kept = tuple((key, given[key]) for key in READ if key in given)
            self._index.note_bound(replace(pod, annotations=kept), self._wanted.node)
            return
        if not reply.is_unknown:
            self._may_bind = could_before
            if reply.status not in {404, 409}:
                raise _Refused(API, f"the API server refuses the binding: {reply.text}")
        raise _Again(reply.text)

    # The ledger's object.

    def _ledger_path(self) -> str:
        return configmap_path(self._terms.namespace, ledger_name(self._wanted.node))

    def _writing(self, ledger: Ledger) -> Call:
        """Return the request that writes LEDGER, if it still has the version that was read."""
        node = self._wanted.node
        name, namespace = ledger_name(node), self._terms.namespace
        uid = self._index.offers[node].uid if node in self._index.offers else ""
        body = write_ledger(ledger, name=name, namespace=namespace, node=node, node_uid=uid)
        if ledger.version:
            return Call(method="PUT", path=self._ledger_path(), body=body)
        return Call(method="POST", path=configmap_path(namespace), body=body)


def _serves(before: Entry, pod: Pod, room: Room) -> bool:
    """Return whether BEFORE, what an earlier attempt chose for POD, is whole, and on GPUs that serve now."""
    gpus = {gpu for gpu, _ in before.on}
    is_whole = {container for container, _ in before.containers} == {index for index, _ in pod.ask.shares}
    return (
        is_whole
        and gpus <= {gpu for gpu, _ in room.free}
        and (before.gpu >= 0 or not pod.ask.together)
        and before.on == claim_of(pod.ask, before.placement).on
    )


def no_room(pod: Pod, node: str, room: Room) -> str:
    """Return why POD does not fit into ROOM of NODE."""
    if pod.ask.problem:
        return pod.ask.problem
    largest = pod.ask.together or max([units for _, units in pod.ask.shares], default=0)
    if largest > room.largest:
        return f"{node}: {largest} units asked of one GPU, the largest has {room.largest}"
    if largest > room.most:
        return f"{node}: {largest} units asked of one GPU, none has more than {room.most} free"
    return f"{node}: {pod.ask.total} units asked, {room.left} free, and not in pieces that fit"
