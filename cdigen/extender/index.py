"""What is known of nodes and pods: the ``Index``, kept up to date by the API's events.

It may be late; ``binding`` is right all the same. Room is computed once for each change of a node, so that a
look at 1,000 nodes reads values that are ready. Not for several threads: ``service`` holds a lock.
"""

from __future__ import annotations

import time

from cdigen.gpushare.claims import READ, Claim, claim_of, read_placement
from cdigen.gpushare.names import UNHEALTHY, Resources
from cdigen.gpushare.nodes import read_node, unhealthy_gpus
from cdigen.gpushare.pods import read_pod
from cdigen.gpushare.room import Room, counted, room_of
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cdigen.gpushare.ledger import Ledger
    from cdigen.gpushare.nodes import Offer
    from cdigen.gpushare.pods import Pod

# UIDs of pods that are over and may be in a ledger; those forgotten are asked for by name.
MAX_GONE = 50_000
# How long what a ledger said is part of a hint; who binds reads it anew.
LEDGER_S = 60.0


class Index:
    """Nodes with what they offer, and pods that ask, by UID and by node."""

    def __init__(self, resources: Resources, clock: Callable[[], float] = time.monotonic) -> None:
        self.resources = resources
        self._clock = clock
        self.offers: dict[str, Offer] = {}
        self._pods: dict[str, Pod] = {}
        self._by_node: dict[str, dict[str, Claim]] = {}
        self._promised: dict[str, dict[str, Claim]] = {}
        self._promised_on: dict[str, set[str]] = {}
        self._seen_s: dict[str, float] = {}
        self._sick: dict[str, dict[str, frozenset[int]]] = {}
        self._rooms: dict[str, Room] = {}
        self._gone: dict[str, None] = {}

    # What the API's events say. Each takes the object as it is now.

    def put_pod(self, found: object) -> None:
        """Note the pod FOUND as it is now; ValueError: it is none."""
        pod = read_pod(found, self.resources, READ)
        if pod is None or pod.uid in self._gone:
            return
        if pod.is_ended:
            self.drop_pod(pod.uid)
            return
        self._put(pod)

    def _put(self, pod: Pod) -> None:
        self._remove(pod.uid)
        # What annotations say is in the claim; of 10,000 pods they would be most of what we hold.
        self._pods[pod.uid] = replace(pod, annotations=())
        self._look_again(pod.uid)
        if pod.node:
            self._by_node.setdefault(pod.node, {})[pod.uid] = claim_of(pod.ask, read_placement(pod))
            self._rooms.pop(pod.node, None)

    def note_bound(self, pod: Pod, node: str) -> None:
        """Note that POD, as it was before, is bound to NODE now."""
        if pod.ask.total and pod.uid not in self._gone:
            self._put(replace(pod, node=node))

    def drop_pod(self, uid: str) -> None:
        """Note that the pod UID has ended or is gone: it never comes back."""
        self._remove(uid)
        self._over(uid)

    def pods(self) -> frozenset[str]:
        """Return the UIDs of all pods, also of those that only a ledger names."""
        return frozenset(self._pods.keys() | self._promised_on.keys())

    def put_node(self, found: object) -> None:
        """Note the node FOUND as it is now; ValueError: it is none."""
        offer = read_node(found, self.resources)
        if self.offers.get(offer.node) != offer:
            self.offers[offer.node] = offer
            self._rooms.pop(offer.node, None)

    def drop_node(self, name: str) -> None:
        """Note that the node NAME is gone; its pods are dropped by events of their own."""
        self._forget_promises(name)
        for known in (self.offers, self._rooms):
            known.pop(name, None)

    def nodes(self) -> frozenset[str]:
        """Return the names of all nodes."""
        return frozenset(self.offers)

    def put_unhealthy(self, found: object) -> None:
        """Note the ConfigMap FOUND, if it lists unhealthy GPUs."""
        listed = unhealthy_gpus(found)
        if listed is not None:
            node, gpus = listed
            self._sick.setdefault(node, {})[str(_name(found))] = gpus
            self._rooms.pop(node, None)

    def drop_unhealthy(self, name: str) -> None:
        """Note that the ConfigMap NAME is gone."""
        prefix = next((each for each in UNHEALTHY if name.startswith(each)), "")
        node = name.removeprefix(prefix)
        if prefix and self._sick.get(node, {}).pop(name, None) is not None:
            self._rooms.pop(node, None)

    def unhealthy_lists(self) -> frozenset[str]:
        """Return the names of all ConfigMaps that list unhealthy GPUs."""
        return frozenset(name for listed in self._sick.values() for name in listed)

    def put_ledger(self, node: str, ledger: Ledger) -> None:
        """Note what was promised on NODE when its ledger was last seen or written: now."""
        self._forget_promises(node)
        self._seen_s[node] = self._clock()
        self._promised[node] = {entry.uid: entry.claim for entry in ledger.entries}
        for entry in ledger.entries:
            self._promised_on.setdefault(entry.uid, set()).add(node)
        self._rooms.pop(node, None)

    def forget_promises(self) -> None:
        """Forget ledgers that were seen more than LEDGER_S ago: others may have taken back what is in them.

        Else a node would look full that is not, and nobody would bind anything there and so see its ledger.
        """
        for node in [each for each, at_s in self._seen_s.items() if self._clock() - at_s > LEDGER_S]:
            self._forget_promises(node)
            self._rooms.pop(node, None)

    # What is asked of it.

    def count(self) -> int:
        """Return how many pods are known."""
        return len(self._pods)

    def units(self) -> tuple[int, int]:
        """Return how many units all nodes have, and how many are used."""
        rooms = [room for name in self.offers if (room := self.room(name)) is not None]
        used = sum(sum([units for _, units in room.used]) + room.floating for room in rooms)
        return sum(offer.capacity for offer in self.offers.values()), used

    def pod(self, uid: str) -> Pod | None:
        """Return the pod UID, unless it is over."""
        return self._pods.get(uid)

    def pods_on(self, node: str) -> Iterator[tuple[Pod, Claim]]:
        """Yield the pods that are bound to NODE, and what each counts there."""
        promised = self._promised.get(node, {})
        for uid, claim in self._by_node.get(node, {}).items():
            yield self._pods[uid], counted(promised.get(uid), claim)

    def room(self, node: str, uid: str = "") -> Room | None:
        """Return what is left on NODE for the pod UID; None: there is no such node."""
        if node in self._promised_on.get(uid, ()):
            return self._room_besides(node, uid) if node in self.offers else None
        found = self._rooms.get(node)
        if found is None and (offer := self.offers.get(node)) is not None:
            claims = self._claims(node, self._promised.get(node, {}))
            found = self._rooms[node] = room_of(offer, self.unhealthy(node), claims)
        return found

    def room_with(self, node: str, ledger: Ledger, uid: str) -> Room:
        """Return what is left on NODE for the pod UID, where LEDGER has what was promised."""
        promised = {entry.uid: entry.claim for entry in ledger.entries}
        claims = self._claims(node, promised, besides=uid)
        return room_of(self.offers[node], self.unhealthy(node), claims)

    def is_fulfilled(self, node: str, uid: str) -> bool:
        """Return whether what the pod UID was promised on NODE is of no use, now and for ever."""
        return uid not in self._by_node.get(node, {}) and self._is_elsewhere(uid, node)

    def is_bound(self, node: str, uid: str) -> bool:
        """Return whether the pod UID is known to be bound to NODE."""
        return uid in self._by_node.get(node, {})

    def unhealthy(self, node: str) -> frozenset[int]:
        """Return the GPUs of NODE that ConfigMaps call unhealthy."""
        return frozenset().union(*self._sick.get(node, {}).values())

    def _room_besides(self, node: str, uid: str) -> Room:
        claims = self._claims(node, self._promised.get(node, {}), besides=uid)
        return room_of(self.offers[node], self.unhealthy(node), claims)

    def _claims(self, node: str, promised: Mapping[str, Claim], *, besides: str = "") -> Iterator[Claim]:
        shown = self._by_node.get(node, {})
        for uid in shown.keys() | promised.keys():
            if uid == besides or (uid not in shown and self._is_elsewhere(uid, node)):
                continue
            yield counted(promised.get(uid), shown.get(uid))

    def _is_elsewhere(self, uid: str, node: str) -> bool:
        """Return whether the pod UID is over, or bound to another node than NODE: then it stays so."""
        pod = self._pods.get(uid)
        return uid in self._gone or (pod is not None and pod.node not in {"", node})

    def _forget_promises(self, node: str) -> None:
        self._seen_s.pop(node, None)
        for uid in self._promised.pop(node, {}):
            nodes = self._promised_on[uid]
            nodes.discard(node)
            if not nodes:
                del self._promised_on[uid]

    def _look_again(self, uid: str) -> None:
        """Compute anew what is left where the pod UID was promised something."""
        for node in self._promised_on.get(uid, ()):
            self._rooms.pop(node, None)

    def _over(self, uid: str) -> None:
        self._gone[uid] = None
        self._look_again(uid)
        while len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]

    def _remove(self, uid: str) -> None:
        old = self._pods.pop(uid, None)
        if old is not None and old.node:
            on_node = self._by_node.get(old.node, {})
            on_node.pop(uid, None)
            if not on_node:
                self._by_node.pop(old.node, None)
            self._rooms.pop(old.node, None)


def _name(found: object) -> object:
    metadata = found.get("metadata") if isinstance(found, dict) else None
    return metadata.get("name") if isinstance(metadata, dict) else None
