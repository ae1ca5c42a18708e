"""``Agent``: what the shares need of the API server, in threads of its own.

One thread follows the node's pods; another writes what can wait: the node's annotation, its number of GPUs,
and promises that are to follow what containers have. The kubelet's requests wait for the API server only
where promises differ from what the kubelet chose: 3 s, and for a request under way by then, 5 s in all.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from cdigen.kubeapi.calls import UNKNOWN, Call, Reply
from cdigen.kubeapi.client import Client
from cdigen.kubeapi.following import Following
from cdigen.kubelet.pods import PodList
from cdigen.kubelet.shares.books import Books
from cdigen.kubelet.shares.given import STORED_S
from cdigen.kubelet.shares.settling import (
    ReplacedError,
    ShareRefused,
    Terms,
    active_pods,
    mismatch,
    repair,
    settle,
)
from cdigen.kubelet.shares.state import OUTCOMES, SharesState
from cdigen.kubelet.shares.telling import UntoldError, tell_node
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from typing import TypeVar

    from cdigen.gpushare.names import Resources
    from cdigen.kubeapi.credentials import Server
    from cdigen.kubelet.resources.memory import MemoryOffer
    from cdigen.kubelet.shares.settling import Settled

    T = TypeVar("T")

# After an answer the kubelet stores it; what differs by then is repaired.
_REPAIR_AFTER_S = 1.0
_REPAIR_EVERY_S = 60.0
_RETRY_S = 5.0


@frozen
class Limits:
    """How long a request of the kubelet waits.

    ``settle_s``: in all; the kubelet's own limit is 10 s at the least (kubelet 1.20: none), and an admission
    holds up those behind it. ``request_s``: for each answer of the API server; a request that is under way
    after ``settle_s`` is waited for, and one that only reads is sent twice. ``told_s``: from the start of the
    agent, for what containers have by the kubelet's word: pods that have their units may wait for images.
    """

    settle_s: float = 3.0
    request_s: float = 1.0
    told_s: float = 2.0


class Agent:
    """Knows the pods of NODE by SERVER, whose ledgers are in NAMESPACE; LOG is given lines about trouble."""

    def __init__(  # noqa: PLR0913 - each is what one Agent differs in
        self,
        server: Server,
        node: str,
        namespace: str,
        resources: Resources,
        log: Callable[[str], object],
        *,
        limits: Limits = Limits(),  # noqa: B008 - a value
    ) -> None:
        self._limits = limits
        self._node = node
        self._resources = resources
        self._terms = Terms(node=node, namespace=namespace)
        self._log = log
        self._lock = threading.Lock()
        self._books = Books(resources, {}, namespace)
        # Pods that were known when the watch began its list: a request may learn of newer ones meanwhile.
        self._before: frozenset[str] = frozenset()
        self._stop = threading.Event()
        self._due = threading.Event()
        # Requests of the kubelet wait for nothing else, so they have a client of their own.
        self._client = Client(server, timeout_s=limits.request_s, page_timeout_s=limits.settle_s)
        self._settling = ThreadPoolExecutor(1, "shares-settle")
        self._writer = Client(server)
        selector = active_pods(node)
        self._following = Following(
            Client(server), "/api/v1/pods", self, self._stop, selector=selector, changed=self._heard
        )
        # Why nothing is heard of pods, as the log has it.
        self._silence = ""
        self._offer: MemoryOffer | None = None
        self._has_offered = False
        # What containers have, in the kubelet's words, and what of it the books do not have yet.
        self._pods = PodList(devices=(), names=frozenset())
        self._told: tuple[dict[tuple[str, str], int], frozenset[str], float] | None = None
        self._has_told = threading.Event()
        self._begun_s = time.monotonic()
        self._state = SharesState(node=node)
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        self._threads = [
            threading.Thread(target=self._following.run, name="shares-pods", daemon=True),
            threading.Thread(target=self._write, name="shares-write", daemon=True),
        ]

    @property
    def problem(self) -> str:
        """Why pods cannot be told apart now, "" if they can."""
        if self._following.problem:
            return f"the API server: {self._following.problem}"
        return "" if self._following.is_synced else "the API server has not shown this node's pods yet"

    def state(self) -> SharesState:
        """Return how the shares stand."""
        with self._lock:
            pods, served, waiting = self._books.counts()
            return replace(
                self._state,
                problem=self.problem,
                pods=pods,
                served=served,
                waiting=waiting,
                outcomes=self._outcomes.copy(),
            )

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def withdraw(self) -> None:
        """Begin, in place of ``start``, to take away what the node says of shares: there are none."""
        threading.Thread(target=self._withdraw, name="shares-withdraw", daemon=True).start()

    def stop(self) -> None:
        """End; nothing is waited for."""
        self._stop.set()
        self._due.set()
        self._settling.submit(self._client.close)
        self._settling.shutdown(wait=False)

    def show(self, offer: MemoryOffer | None) -> None:
        """Take what is offered from now on, None: nothing any more."""
        with self._lock:
            has_begun, self._has_offered = self._has_offered, True
            if has_begun and offer == self._offer:
                return
            before, self._offer = self._offer, offer
            self._books.sizes = {gpu.index: gpu.units for gpu in offer.gpus} if offer else {}
            if before is not None and offer is not None and _are_renumbered(before, offer):
                # What was given counts by its ids.
                self._books.forget()
                self._told = (self._found(offer, self._pods), self._pods.names, time.monotonic() + STORED_S)
        self._due.set()

    def told(self, pods: PodList, asked_s: float) -> None:
        """Take what containers have by the kubelet's own word, asked for at ASKED_S (monotonic)."""
        offer = self._offer
        if offer is None:
            return
        ours = tuple(pod for pod in pods.devices if pod.resource == self._resources.memory)
        pods = replace(pods, devices=ours)
        found = self._found(offer, pods)
        with self._lock:
            self._pods, self._told = pods, (found, pods.names, asked_s)
        self._has_told.set()
        self._due.set()

    def _found(self, offer: MemoryOffer, pods: PodList) -> dict[tuple[str, str], int]:
        """Return the index in OFFER of what each container of PODS has, by pod and container."""
        found: dict[tuple[str, str], int] = {}
        for pod in pods.devices:
            gpus = {gpu.index for id_ in pod.ids if (gpu := offer.gpu_of(id_))}
            if len(gpus) == 1:
                found[f"{pod.namespace}/{pod.pod}", pod.container] = gpus.pop()
        return found

    # For the kubelet's requests.

    def prefer(self, free: Mapping[int, int], must: Sequence[int], count: int) -> int | None:
        """Return the GPU of which a container should get COUNT units (``Books.prefer``)."""
        with self._lock:
            return self._books.prefer(free, must, count)

    def settle(self, gpu: int, ids: frozenset[str]) -> Future[Settled]:
        """Return for whom the units IDS of GPU are, one after another. ``ShareRefused``: for nobody."""
        try:
            return self._settling.submit(self._settle, gpu, ids)
        except RuntimeError:
            raise ReplacedError("the configuration has changed at this moment") from None

    def _settle(self, gpu: int, ids: frozenset[str]) -> Settled:
        until_s = time.monotonic() + self._limits.settle_s
        self._has_told.wait(max(0.0, self._begun_s + self._limits.told_s - time.monotonic()))
        self._learn()
        outcome = "refused"
        try:
            found = self._drive(settle(self._books, gpu, len(ids), self._terms, ids), self._client, until_s)
            outcome = ("promised", "moved")[found.moves] if found.moves < 2 else "exchanged"
        except ShareRefused:
            raise
        except Exception as error:
            text = f"what the API server says cannot be used: {type(error).__name__}: {error}"
            raise ShareRefused(text) from error
        finally:
            self._outcomes[outcome] += 1
            self._due.set()
        return found

    def _drive(self, steps: Generator[Call, Reply, T], client: Client, until_s: float) -> T:
        """Run STEPS; the lock is held while they think, never while they wait."""
        reply: Reply | None = None
        while True:
            try:
                with self._lock:
                    call = next(steps) if reply is None else steps.send(reply)
            except StopIteration as end:
                found: T = end.value
                return found
            if time.monotonic() >= until_s:
                steps.close()
                why = f": {reply.text}" if reply is not None and reply.status == UNKNOWN else ""
                raise ShareRefused(f"the API server did not answer within {self._limits.settle_s:g} s{why}")
            reply = client.send(call)

    # The watch's sink.

    def put(self, found: object) -> None:
        """Take a pod as it is now."""
        with self._lock:
            self._books.put(found)

    def drop(self, found: object) -> None:
        """Take it that a pod is gone."""
        with self._lock:
            self._books.drop(str(found["metadata"]["uid"]))  # type: ignore[index]

    def begin(self) -> None:
        """Take it that a list begins."""
        with self._lock:
            self._before = frozenset(self._books.bounds)

    def keep(self, found: Iterable[dict[str, str]]) -> None:
        """Take it that pods that were known when the list began are gone, but those FOUND."""
        with self._lock:
            self._books.keep([each["uid"] for each in found], self._before)

    def _heard(self) -> None:
        """Let the log have why pods are not known."""
        before, self._silence = self._silence, self._following.problem
        if self._silence not in {"", before}:
            self._log(f"which pods are on {self._node} is not known: {self.problem}")

    # What can wait.

    def _write(self) -> None:
        wait_s = retry_s = 0.0
        while not self._stop.is_set():
            self._due.wait(wait_s)
            self._due.clear()
            if self._stop.wait(_REPAIR_AFTER_S):
                break
            is_well = not self._has_offered or self._tell_node()
            if self._following.is_synced:
                is_well = self._repair() and is_well
            retry_s = 0.0 if is_well else min(max(_RETRY_S, 2 * retry_s), _REPAIR_EVERY_S)
            wait_s = retry_s or _REPAIR_EVERY_S
        self._writer.close()

    def _withdraw(self) -> None:
        wait_s = _RETRY_S
        while not self._tell_node() and not self._stop.wait(wait_s):
            wait_s = min(2 * wait_s, _REPAIR_EVERY_S)
        self._writer.close()

    def _learn(self) -> None:
        """Take what the kubelet has told, once it is known of whom it told."""
        with self._lock:
            if self._told is not None and self._following.is_synced:
                self._books.learn(*self._told)
                self._told = None

    def _repair(self) -> bool:
        self._learn()
        problem, changed = "", 0
        try:
            steps = repair(self._books, self._terms)
            changed = self._drive(steps, self._writer, time.monotonic() + _REPAIR_EVERY_S)
        except ShareRefused as refusal:
            problem = str(refusal)
        except Exception as error:  # noqa: BLE001 - what an API server says is not ours; the thread goes on
            problem = f"promises do not follow: {type(error).__name__}: {error}"
        problem = problem or self._mismatch()
        self._note(promise_problem=problem, repaired=self._state.repaired + changed)
        return not problem

    def _mismatch(self) -> str:
        """Return that the extender keeps ledgers elsewhere, by the pod it bound last; "": it does not."""
        with self._lock:
            bounds = self._books.bounds.values()
            last = max(bounds, key=lambda bound: bound.assumed_ns, default=None)
            return mismatch(last, self._terms) if last and self._books.is_elsewhere(last) else ""

    def _tell_node(self) -> bool:
        """Let the node's annotation and status say what is offered; returns whether they do."""
        problem = ""
        try:
            steps = tell_node(self._node, self._offer, self._resources)
            uid = self._drive(steps, self._writer, time.monotonic() + _REPAIR_EVERY_S)
            self._terms = replace(self._terms, node_uid=uid)
        except (UntoldError, ShareRefused) as refusal:
            problem = str(refusal)
        except Exception as error:  # noqa: BLE001 - likewise
            problem = f"what the API server says of the node: {type(error).__name__}: {error}"
        self._note(node_problem=problem)
        return not problem

    def _note(self, **changed: object) -> None:
        """Note what has CHANGED in the state, and let the log have a new problem."""
        before, self._state = self._state, replace(self._state, **changed)
        for was, now in (
            (before.node_problem, self._state.node_problem),
            (before.promise_problem, self._state.promise_problem),
        ):
            if now and now != was:
                self._log(now)


def _are_renumbered(before: MemoryOffer, after: MemoryOffer) -> bool:
    """Return whether a GPU has another index than it had."""
    indices = {gpu.id: gpu.index for gpu in before.gpus}
    return any(indices.get(gpu.id, gpu.index) != gpu.index for gpu in after.gpus)
