"""Pods of this node that ask for memory of GPUs: ``Bound``, with what each container wants."""

from __future__ import annotations

from cdigen.gpushare import names
from cdigen.gpushare.claims import READ, Claim, Placement, claim_of, read_placement
from cdigen.gpushare.pods import Pod, read_pod
from cdigen.gpushare.quantity import whole
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cdigen.gpushare.ledger import Entry, Ledger
    from cdigen.gpushare.names import Resources
    from cdigen.gpushare.pods import Ask

# The ``by`` of entries that the node has written: it does so for pods that are bound to it alone.
NODE = "node"


@frozen
class Want:
    """What a container wants; ``index`` is that of the app containers, -1 for an init container."""

    container: str
    units: int
    index: int = -1


@frozen
class Bound:
    """A pod of this node, with its ``wants`` in the order in which the kubelet asks.

    That is init containers first, each for all of its units, also where it gives it units that one before had
    (kubernetes, pkg/kubelet/cm/devicemanager/manager.go, devicesToAllocate).

    One that ``is_leaving`` is asked for no more: the kubelet does not admit it, and may give its units away
    while its containers are still being started (kubernetes, pkg/kubelet/kubelet_pods.go, podIsTerminated).
    """

    pod: Pod
    wants: tuple[Want, ...]
    assumed_ns: int = 0
    is_pending: bool = True
    # The namespace of the ledger in which it was promised something, "": nobody says it.
    ledger_in: str = ""
    is_leaving: bool = False

    @property
    def may_be_asked_for(self) -> bool:
        """Whether the kubelet may still ask for its containers, for the first time."""
        return self.is_pending and not self.is_leaving

    def shown(self) -> Placement | None:
        """Return where its annotations say that it is."""
        return read_placement(self.pod)

    def claim(self, placement: Placement | None) -> Claim:
        """Return what it holds at PLACEMENT."""
        return claim_of(self.pod.ask, placement)


def read_bound(found: Any, resources: Resources) -> Bound | None:
    """Return the pod that the API's object FOUND is; None: it asks for nothing, or nothing we can serve.

    ValueError: it is no pod.
    """
    pod = read_pod(found, resources, (*READ, names.LEDGER_IN))
    if pod is None or pod.ask.problem:
        return None
    spec = found["spec"]
    given = dict(pod.annotations).get(names.ASSUME_TIME, "")
    return Bound(
        pod=pod,
        wants=(
            *_wants(spec.get("initContainers"), resources.memory, is_early=True),
            *_wants(spec.get("containers"), resources.memory, is_early=False),
        ),
        assumed_ns=int(given) if given.isascii() and given.isdecimal() and len(given) < 20 else 0,
        is_pending=(found.get("status") or {}).get("phase") in {None, "", "Pending"},
        ledger_in=dict(pod.annotations).get(names.LEDGER_IN, ""),
        is_leaving="deletionTimestamp" in found["metadata"],
    )


def _wants(containers: Any, resource: str, *, is_early: bool) -> Iterator[Want]:
    # ``read_pod`` has seen to it that these are lists of objects with whole numbers.
    for index, each in enumerate(containers or ()):
        limits = (each.get("resources") or {}).get("limits") or {}
        if units := whole(limits.get(resource, 0)):
            yield Want(container=str(each.get("name")), units=units, index=-1 if is_early else index)


def place_of(bound: Bound, ledger: Ledger) -> Placement | None:
    """Return where BOUND was promised to be; None: nobody knows.

    Annotations count as far as the LEDGER covers them: whoever may create a pod may write any. What the node
    itself has written into the ledger comes before them: they are to follow.
    """
    shown, entry = bound.shown(), ledger.entry(bound.pod.uid)
    if entry is None:
        return shown
    if shown is not None and entry.token != NODE and _covers(entry, bound.claim(shown)):
        return shown
    return entry.placement if is_whole(entry.placement, bound.pod.ask) else None


def is_whole(placement: Placement, ask: Ask) -> bool:
    """Return whether PLACEMENT says for all of ASK where it is."""
    placed = {container for container, _ in placement.containers}
    return placed == {index for index, _ in ask.shares} and (placement.gpu >= 0 or bool(placed))


def gpu_at(placement: Placement | None, want: Want) -> int | None:
    """Return the GPU at which WANT is in PLACEMENT, None: it is not known."""
    if placement is None:
        return None
    found = dict(placement.containers).get(want.index, placement.gpu if want.index < 0 else -1)
    return found if found >= 0 else None


def moved(bound: Bound, placement: Placement | None, want: Want, gpu: int) -> Placement:
    """Return PLACEMENT with WANT of BOUND on GPU.

    A pod with init containers goes as one: the kubelet gives their units to the others.
    """
    ask = bound.pod.ask
    if ask.together:
        return Placement(containers=tuple((index, gpu) for index, _ in ask.shares), gpu=gpu)
    places = dict(placement.containers) if placement else {}
    places[want.index] = gpu
    if len(places) < len(ask.shares):
        # Of a pod that floats, the rest goes along, to be moved when its turn comes.
        places = {index: places.get(index, gpu) for index, _ in ask.shares}
    gpus = set(places.values())
    return Placement(containers=tuple(sorted(places.items())), gpu=gpu if len(gpus) == 1 else -1)


def _covers(entry: Entry, claim: Claim) -> bool:
    on = dict(entry.on)
    return all(units <= on.get(gpu, 0) for gpu, units in claim.on) and not claim.floating
