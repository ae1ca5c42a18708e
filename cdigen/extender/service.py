"""The process: ``Service`` follows the API server, answers the scheduler, and binds.

The main thread only reports. A thread for each list follows it, one for each connection answers; what they
share is the index, behind one lock that is held for milliseconds and never during a request to the API.
"""

from __future__ import annotations

import json
import secrets
import threading
import time

from cdigen import __version__
from cdigen.extender.answers import filter_nodes, inspect, prioritize
from cdigen.extender.binding import Outcome, Terms, bind
from cdigen.extender.index import Index
from cdigen.extender.messages import MAX_BIND, failed, read_bind, read_filter, read_json
from cdigen.extender.metrics import BUSY, UNREADY, Counts, render
from cdigen.extender.server import Server
from cdigen.extender.sinks import Sink
from cdigen.extender.status import Facts, Listed, document
from cdigen.frontend.chassis import Chassis
from cdigen.frontend.http import Response, standard_routes
from cdigen.frontend.log import log_sources
from cdigen.frontend.rundir import save_status
from cdigen.gpushare.names import UNHEALTHY_NAMESPACE, Resources
from cdigen.kubeapi.calls import UNKNOWN, Reply, configmap_path
from cdigen.kubeapi.client import Client
from cdigen.kubeapi.following import Following
from cdigen.store.lock import LockHeld
from cdigen.value import frozen
from cdigen.watch.triggers import Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from structlog.typing import FilteringBoundLogger

    from cdigen.extender.binding import Wanted
    from cdigen.extender.messages import Filter
    from cdigen.extender.placement import Strategy
    from cdigen.extender.server import Access
    from cdigen.frontend.sd_notify import Notifier
    from cdigen.frontend.signals import Signals
    from cdigen.kubeapi.credentials import Server as ApiServer
    from cdigen.model.errors import StoreError

# gpushare's own path and version (gpushare-scheduler-extender, pkg/routes/routes.go).
PREFIX = "/gpushare-scheduler"
VERSION = "0.1.0"
# Pods that are over count nothing: the server leaves them out, and says DELETED when one comes to be.
RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
# Ledgers may be in kube-system as well; each bind changes one, and they list no unhealthy GPUs.
NO_LEDGERS = "app.kubernetes.io/managed-by!=cdigen"
FORBIDDEN = 403
REPORT_S = 30.0
# A bind takes milliseconds; kube-scheduler waits 5 s for an extender unless 'httpTimeout' says more.
BIND_S, CALL_S = 8.0, 5.0
# Before a server that has just failed is asked again.
PAUSE_S = 0.1
# Fewer than the server's connections, so that a slow API server does not keep filter from being answered.
MAX_BINDS = 32
_JSON = "application/json"
_TOO_LATE = Reply(status=UNKNOWN, body={}, reason="no answer within the time for a bind")
_MAX_NAME = 253
_MAX_UNREADABLE = 100


@frozen
class ServiceConfig:
    """How the extender works: where it listens, where ledgers are, how it chooses GPUs, and nodes.

    ``linger_s`` is how long it goes on when it is told to end, and is no longer ready.
    """

    host: str
    port: int
    access: Access
    run_dir: str
    namespace: str
    resources: Resources = Resources()
    strategy: Strategy = "binpack"
    node_strategy: Strategy = "binpack"
    linger_s: float = 0.0


class Service:
    """Answers as CONFIG says, for the cluster of API, until it is told to stop."""

    def __init__(
        self,
        config: ServiceConfig,
        api: ApiServer,
        *,
        notifier: Notifier,
        logger: FilteringBoundLogger,
        signals: Signals,
    ) -> None:
        self._config = config
        self._client = Client(api)
        self._bind_client = Client(api, timeout_s=CALL_S)
        self._log = logger
        self._chassis = Chassis(config.run_dir, notifier=notifier, logger=logger, signals=signals)
        self._index = Index(config.resources)
        self._lock = threading.Lock()
        # Binds to one node wait for each other: two of ours would only conflict.
        self._on_node = [threading.Lock() for _ in range(MAX_BINDS)]
        self._binding = threading.BoundedSemaphore(MAX_BINDS)
        # Reading a request and answering it from the index keep a core busy, and large ones much memory.
        self._answering = threading.Lock()
        self._stop = threading.Event()
        self._identity = secrets.token_hex(6)
        self._counts = Counts()
        self._started_s = self._since_s = time.time()
        self._was_waiting = True
        self._told = ""
        self._following = self._follow_lists()
        self._threads = [
            threading.Thread(target=each.run, name=name, daemon=True)
            for name, each in self._following.items()
        ]
        self._unreadable: set[str] = set()
        self._said: tuple[tuple[str, str], ...] = ()
        self._server = Server(config.host, config.port, self.answer, config.access, linger_s=config.linger_s)
        self._standard = standard_routes(metrics=self._metrics, alive=self._alive, ready=self._unavailable)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT. ``LockHeld``: another instance has the run directory."""
        with self._chassis.running(self._without_status):
            try:
                for each in self._threads:
                    each.start()
                self._chassis.start(self._server)
                while not self._chassis.is_stopping:
                    self._chassis.take_reload()
                    self._report()
                    if self._chassis.wait(time.monotonic() + REPORT_S):
                        self._chassis.inbox.take()
            finally:
                self._chassis.leave()
                self._server.stop()
                self._stop.set()

    def _without_status(self, error: StoreError) -> None:
        """Go on without a run directory: a pod's file system may be read-only."""
        if isinstance(error, LockHeld):
            raise error
        self._log.warning("no status", message=error.message)

    # What clients ask.

    def answer(self, method: str, path: str, body: bytes) -> Response:
        """Answer a request."""
        if method == "POST":
            verb = path.removeprefix(f"{PREFIX}/")
            routes: dict[str, Callable[[Any], Response]] = {
                "filter": lambda found: self._ask(filter_nodes, read_filter(found)),
                "prioritize": lambda found: self._ask(prioritize, read_filter(found)),
                "bind": self._bind,
            }
            route = routes.get(verb) if path.startswith(f"{PREFIX}/") else None
            return _nowhere() if route is None else self._timed(verb, route, body)
        if path == "/version":
            return Response(body=f"{VERSION} (cdigen {__version__})".encode())
        if path == f"{PREFIX}/inspect" or path.startswith(f"{PREFIX}/inspect/"):
            with self._lock:
                return _json(inspect(self._index, path.removeprefix(f"{PREFIX}/inspect").strip("/")))
        standard = self._standard.get(path)
        return _nowhere() if standard is None else standard("")

    def _timed(self, verb: str, route: Callable[[Any], Response], body: bytes) -> Response:
        begun_s = time.perf_counter()
        try:
            if verb == "bind":
                answer = route(read_json(body, MAX_BIND))
            else:
                with self._answering:
                    answer = route(read_json(body))
        except (ValueError, RecursionError) as error:
            # Of another status than 200 the scheduler says nothing but the number (kubernetes,
            # pkg/scheduler/extender.go, HTTPExtender.send); so refused binds have that as well.
            answer = _json(failed(f"the request cannot be read: {error}"))
        self._counts.answered(verb, answer.status[:3], time.perf_counter() - begun_s)
        return answer

    def _ask(self, ask: Callable[[Filter, Index, Strategy], Any], asked: Filter) -> Response:
        if problem := self._unready():
            return _json(failed(problem, is_old=asked.is_old))
        strategy = self._config.node_strategy if ask is prioritize else self._config.strategy
        with self._lock:
            answer = ask(asked, self._index, strategy)
        return _json(answer)

    def _bind(self, found: Any) -> Response:
        wanted, is_old = read_bind(found)
        begun_s = time.monotonic()
        if problem := self._unready():
            outcome = Outcome(kind=UNREADY, problem=problem)
        elif self._binding.acquire(blocking=False):
            try:
                outcome = self._bind_in_turn(wanted)
            finally:
                self._binding.release()
        else:
            outcome = Outcome(kind=BUSY, problem=f"{MAX_BINDS} other pods are being bound")
        self._counts.ended(outcome.kind)
        told = {"pod": f"{wanted.namespace}/{wanted.name}", "uid": wanted.uid, "node": wanted.node}
        spent_ms = round((time.monotonic() - begun_s) * 1000)
        if outcome.problem:
            self._log.warning("bind", **told, result=outcome.kind, message=outcome.problem, ms=spent_ms)
        else:
            gpus = {str(gpu): units for gpu, units in outcome.on}
            self._log.info("bind", **told, result=outcome.kind, gpus=gpus, ms=spent_ms)
        return _json(failed(outcome.problem, is_old=is_old))

    def _bind_in_turn(self, wanted: Wanted) -> Outcome:
        terms = Terms(
            namespace=self._config.namespace,
            token=f"{self._identity}-{secrets.token_hex(6)}",
            now_ns=time.time_ns(),
            strategy=self._config.strategy,
        )
        until_s = time.monotonic() + BIND_S
        lock = self._on_node[hash(wanted.node) % len(self._on_node)]
        if not lock.acquire(timeout=BIND_S):
            return Outcome(kind=BUSY, problem=f"other binds to {wanted.node} take too long")
        try:
            return self._run(bind(wanted, self._index, terms), until_s)
        finally:
            lock.release()

    def _run(self, steps: Any, until_s: float) -> Outcome:
        """Send what STEPS ask before UNTIL_S, without the lock; returns what they return.

        Later, all that they ask has no answer: whoever waited for this bind has given up.
        """
        reply: Reply | None = None
        try:
            while True:
                with self._lock:
                    call = steps.send(reply)
                if reply is not None and reply.is_unknown:
                    self._stop.wait(PAUSE_S)
                reply = self._bind_client.send(call) if time.monotonic() < until_s else _TOO_LATE
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome

    # What the API server tells.

    def _change(self, what: Callable[[Any], object], found: Any) -> None:
        """Let WHAT change the index by FOUND; an object that cannot be read is passed over, and said."""
        try:
            with self._lock:
                what(found)
        except (ValueError, KeyError, TypeError) as error:
            name = _name(found)
            if name not in self._unreadable and len(self._unreadable) < _MAX_UNREADABLE:
                self._unreadable.add(name)
                self._log.warning("object", name=name, message=f"it cannot be read: {error}")

    def _follow_lists(self) -> dict[str, Following]:
        index, unhealthy = self._index, configmap_path(UNHEALTHY_NAMESPACE)
        pods = self._sink("uid", index.put_pod, index.drop_pod, index.pods)
        nodes = self._sink("name", index.put_node, index.drop_node, index.nodes)
        sick = self._sink("name", index.put_unhealthy, index.drop_unhealthy, index.unhealthy_lists)
        return {
            "pods": self._follow("/api/v1/pods", pods, selector=RUNNING),
            "nodes": self._follow("/api/v1/nodes", nodes),
            "unhealthy": self._follow(unhealthy, sick, labels=NO_LEDGERS),
        }

    def _sink(self, key: str, put: Any, drop: Any, known: Any) -> Sink:
        return Sink(self._change, put=put, drop=drop, known=known, key=key)

    def _follow(self, path: str, sink: Sink, *, selector: str = "", labels: str = "") -> Following:
        def tell() -> None:
            self._chassis.inbox.put(Trigger(source="api", reason=path))

        return Following(self._client, path, sink, self._stop, changed=tell, selector=selector, labels=labels)

    # What others are told.

    def _unready(self) -> str:
        missing = [
            name for name, each in self._following.items() if not (each.is_synced or _is_let_be(name, each))
        ]
        problems = [f"{name}: {self._following[name].problem or 'not listed yet'}" for name in missing]
        return f"the cluster is not known yet ({'; '.join(problems)})" if missing else ""

    def _unavailable(self) -> str:
        return "it is ending" if self._chassis.is_stopping else self._unready()

    def _alive(self) -> str:
        ended = [each.name for each in self._threads if not each.is_alive()]
        return f"the thread that follows {ended[0]} has ended" if ended else self._server.problem()

    def _report(self) -> None:
        with self._lock:
            self._index.forget_promises()
        facts = self._facts()
        told = document(self._chassis.process, facts)
        self._chassis.save(lambda run_dir: save_status(run_dir, told))
        problems = {each.name: each.problem for each in facts.lists} | {self._server.name: facts.problem}
        now = tuple(problems.items())
        log_sources(self._log, now, self._said)
        self._said = now
        self._chassis.report(f"{told['state']}: {facts.nodes} nodes, {facts.pods} pods")
        if told["state"] != self._told:
            self._told = told["state"]
            self._log.info(self._told, port=facts.port, nodes=facts.nodes, pods=facts.pods)

    def _facts(self) -> Facts:
        """Return what is known now."""
        with self._lock:
            (total, used), nodes, pods = self._index.units(), len(self._index.offers), self._index.count()
        now_s, boot_s = time.time(), time.monotonic()
        waits_for = self._unready()
        if bool(waits_for) != self._was_waiting:
            self._was_waiting, self._since_s = bool(waits_for), now_s
        return Facts(
            started_s=self._started_s,
            since_s=self._since_s,
            waits_for=waits_for,
            port=self._server.port,
            nodes=nodes,
            pods=pods,
            total=total,
            used=used,
            binds=self._counts.binds(),
            lists=tuple(
                Listed(name=name, problem=each.problem, heard_s=now_s - (boot_s - each.heard_s))
                for name, each in self._following.items()
            ),
            problem=self._chassis.health().get(self._server.name, ""),
        )

    def _metrics(self) -> bytes:
        return render(self._facts(), self._counts)


def _json(found: object, status: str = "200 OK") -> Response:
    return Response(body=json.dumps(found).encode(), content_type=_JSON, status=status)


def _is_let_be(name: str, list_: Following) -> bool:
    """Return whether we do without LIST_, called NAME: without the right to see ConfigMaps."""
    return name == "unhealthy" and list_.status == FORBIDDEN


def _name(found: Any) -> str:
    metadata = found.get("metadata") if isinstance(found, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return str(name)[:_MAX_NAME]


def _nowhere() -> Response:
    return Response(body=b"there is nothing here\n", status="404 Not Found")
