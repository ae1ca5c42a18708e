"""``Service``: the process that watches the API server, serves the scheduler, and binds pods.

The main thread only reports the state. Each watched list has a thread with a reflector. Each HTTP connection
has a thread that serves its requests. All threads share the index. A thread holds the lock of the index for
milliseconds, and never during a request to the API server.
"""

from __future__ import annotations

import json
import secrets
import threading
import time

from cdigen import __version__
from cdigen.extender.answers import filter_nodes, inspect, prioritize
from cdigen.extender.binding import BindConfig, BindResult, bind
from cdigen.extender.index import Index
from cdigen.extender.messages import MAX_BIND, error_result, read_args, read_bind, read_json
from cdigen.extender.metrics import BUSY, NOT_READY, ExtenderCounts, render
from cdigen.extender.server import ExtenderServer
from cdigen.extender.status import ExtenderState, ListState, document
from cdigen.extender.stores import IndexStore
from cdigen.gpushare.names import UNHEALTHY_NAMESPACE, Resources
from cdigen.kubeapi.calls import UNKNOWN, Reply, configmap_path
from cdigen.kubeapi.client import Client
from cdigen.kubeapi.reflector import Reflector
from cdigen.service.http import Response, standard_routes
from cdigen.service.process.log import log_sources
from cdigen.service.rundir import save_status
from cdigen.service.runner import ServiceRunner
from cdigen.store.lock import LockHeld
from cdigen.value import frozen
from cdigen.watch.triggers import Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cdigen.extender.binding import BindRequest
    from cdigen.extender.messages import ExtenderArgs
    from cdigen.extender.placement import Strategy
    from cdigen.extender.server import Access
    from cdigen.kubeapi.credentials import ApiServerConfig as ApiServer
    from cdigen.model.errors import StoreError
    from cdigen.service.process.context import ProcessContext

# The path and version of gpushare's extender (gpushare-scheduler-extender, pkg/routes/routes.go).
PREFIX = "/gpushare-scheduler"
VERSION = "0.1.0"
# The selector of pods that have not ended. With this selector, the API server sends DELETED when a pod ends.
RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
# The selector of ConfigMaps that are not ledgers. Each bind changes a ledger. If ledgers are in kube-system,
# the watch would otherwise receive these changes.
NO_LEDGERS = "app.kubernetes.io/managed-by!=cdigen"
FORBIDDEN = 403
REPORT_S = 30.0
# The time limits of a bind and of each request to the API server. A bind usually takes milliseconds. By
# default, kube-scheduler waits 5 s for an extender ('httpTimeout').
BIND_S, CALL_S = 8.0, 5.0
# The pause after a request to the API server that has no valid reply.
PAUSE_S = 0.1
# The limit for concurrent binds. This limit is lower than MAX_CONNECTIONS, so that filter requests have
# connections while the API server is slow.
MAX_BINDS = 32
_JSON = "application/json"
_TOO_LATE = Reply(status=UNKNOWN, body={}, reason=f"the time limit of the bind has passed ({BIND_S:g} s)")
_MAX_NAME = 253
_MAX_UNREADABLE = 100


@frozen
class ServiceConfig:
    """The address, the namespace of ledgers, and the strategies of the extender for GPUs and for nodes.

    ``linger_s`` is the time for which the extender still serves requests after SIGTERM. During this time, the
    extender reports that it is not ready.
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
    """Runs the extender with the settings CONFIG until SIGTERM or SIGINT.

    API has the address and the credentials of the API server.
    """

    def __init__(
        self,
        config: ServiceConfig,
        api: ApiServer,
        context: ProcessContext,
    ) -> None:
        self._config = config
        self._client = Client(api)
        self._bind_client = Client(api, timeout_s=CALL_S)
        self._log = context.log
        self._runner = ServiceRunner(config.run_dir, context)
        self._index = Index(config.resources)
        self._lock = threading.Lock()
        # Binds to one node wait for each other, because concurrent binds to a node would only conflict.
        self._node_locks = [threading.Lock() for _ in range(MAX_BINDS)]
        self._binding = threading.BoundedSemaphore(MAX_BINDS)
        # Only one filter or prioritize request is processed at a time. Such a request keeps a core busy, and
        # may need much memory.
        self._answering = threading.Lock()
        self._stop = threading.Event()
        self._identity = secrets.token_hex(6)
        self._counts = ExtenderCounts()
        self._started_s = self._since_s = time.time()
        self._was_waiting = True
        self._logged_state = ""
        self._reflectors = self._make_reflectors()
        self._threads = [
            threading.Thread(target=each.run, name=name, daemon=True)
            for name, each in self._reflectors.items()
        ]
        self._unreadable: set[str] = set()
        self._logged_problems: tuple[tuple[str, str], ...] = ()
        self._server = ExtenderServer(
            config.host, config.port, self.answer, config.access, linger_s=config.linger_s
        )
        self._standard = standard_routes(metrics=self._metrics, alive=self._alive, ready=self._unavailable)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT, or raise ``LockHeld`` if another instance uses the run directory."""
        with self._runner.running(self._run_without_status):
            try:
                for each in self._threads:
                    each.start()
                self._runner.start(self._server)
                while not self._runner.is_stopping:
                    self._runner.take_reload()
                    self._report()
                    if self._runner.wait(time.monotonic() + REPORT_S):
                        self._runner.triggers.take()
            finally:
                self._runner.leave()
                self._server.stop()
                self._stop.set()

    def _run_without_status(self, error: StoreError) -> None:
        """Log ERROR and continue without a run directory, or raise ERROR if it is a ``LockHeld``.

        The file system of a pod may be read-only.
        """
        if isinstance(error, LockHeld):
            raise error
        self._log.warning("status_unavailable", message=error.message)

    # Requests of clients.

    def answer(self, method: str, path: str, body: bytes) -> Response:
        """Return the response to a request."""
        if method == "POST":
            verb = path.removeprefix(f"{PREFIX}/")
            routes: dict[str, Callable[[Any], Response]] = {
                "filter": lambda found: self._query(filter_nodes, read_args(found)),
                "prioritize": lambda found: self._query(prioritize, read_args(found)),
                "bind": self._bind,
            }
            route = routes.get(verb) if path.startswith(f"{PREFIX}/") else None
            return _not_found() if route is None else self._timed(verb, route, body)
        if path == "/version":
            return Response(body=f"{VERSION} (cdigen {__version__})".encode())
        if path == f"{PREFIX}/inspect" or path.startswith(f"{PREFIX}/inspect/"):
            with self._lock:
                return _json(inspect(self._index, path.removeprefix(f"{PREFIX}/inspect").strip("/")))
        standard = self._standard.get(path)
        return _not_found() if standard is None else standard("")

    def _timed(self, verb: str, route: Callable[[Any], Response], body: bytes) -> Response:
        begun_s = time.perf_counter()
        try:
            if verb == "bind":
                answer = route(read_json(body, MAX_BIND))
            else:
                with self._answering:
                    answer = route(read_json(body))
        except (ValueError, RecursionError) as error:
            # If the status is not 200, the scheduler reports only the status (kubernetes,
            # pkg/scheduler/extender.go, HTTPExtender.send). So a refused bind also has the status 200.
            answer = _json(error_result(f"the request cannot be read: {error}"))
        self._counts.answered(verb, answer.status[:3], time.perf_counter() - begun_s)
        return answer

    def _query(self, verb: Callable[[ExtenderArgs, Index, Strategy], Any], args: ExtenderArgs) -> Response:
        if problem := self._not_ready():
            return _json(error_result(problem, is_old=args.is_old))
        strategy = self._config.node_strategy if verb is prioritize else self._config.strategy
        with self._lock:
            answer = verb(args, self._index, strategy)
        return _json(answer)

    def _bind(self, found: Any) -> Response:
        request, is_old = read_bind(found)
        begun_s = time.monotonic()
        if problem := self._not_ready():
            result = BindResult(kind=NOT_READY, problem=problem)
        elif self._binding.acquire(blocking=False):
            try:
                result = self._bind_in_turn(request)
            finally:
                self._binding.release()
        else:
            result = BindResult(kind=BUSY, problem=f"{MAX_BINDS} other binds in progress")
        self._counts.ended(result.kind)
        fields = {"pod": f"{request.namespace}/{request.name}", "uid": request.uid, "node": request.node}
        spent_ms = round((time.monotonic() - begun_s) * 1000)
        if result.problem:
            self._log.warning("bind", **fields, result=result.kind, message=result.problem, ms=spent_ms)
        else:
            gpus = {str(gpu): units for gpu, units in result.on}
            self._log.info("bind", **fields, result=result.kind, gpus=gpus, ms=spent_ms)
        return _json(error_result(result.problem, is_old=is_old))

    def _bind_in_turn(self, request: BindRequest) -> BindResult:
        config = BindConfig(
            namespace=self._config.namespace,
            token=f"{self._identity}-{secrets.token_hex(6)}",
            now_ns=time.time_ns(),
            strategy=self._config.strategy,
        )
        until_s = time.monotonic() + BIND_S
        lock = self._node_locks[hash(request.node) % len(self._node_locks)]
        if not lock.acquire(timeout=BIND_S):
            return BindResult(kind=BUSY, problem=f"other binds to {request.node} take too long")
        try:
            return self._run(bind(request, self._index, config), until_s)
        finally:
            lock.release()

    def _run(self, steps: Any, until_s: float) -> BindResult:
        """Send the calls of STEPS until UNTIL_S; return the result of STEPS.

        The lock is not held while a call is sent. After UNTIL_S, each call fails without being sent, because
        the scheduler does not wait for this bind any more.
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
            result: BindResult = end.value
            return result

    # Lists of the API server.

    def _update(self, update: Callable[[Any], object], found: Any) -> None:
        """Call UPDATE, a function of the index, with FOUND; ignore and log an object that cannot be read."""
        try:
            with self._lock:
                update(found)
        except (ValueError, KeyError, TypeError) as error:
            name = _name(found)
            if name not in self._unreadable and len(self._unreadable) < _MAX_UNREADABLE:
                self._unreadable.add(name)
                self._log.warning("unreadable_object", name=name, message=f"{name} cannot be read: {error}")

    def _make_reflectors(self) -> dict[str, Reflector]:
        index, configmaps = self._index, configmap_path(UNHEALTHY_NAMESPACE)
        pods = self._store("uid", index.put_pod, index.drop_pod, index.pods)
        nodes = self._store("name", index.put_node, index.drop_node, index.nodes)
        unhealthy = self._store("name", index.put_unhealthy, index.drop_unhealthy, index.unhealthy_lists)
        return {
            "pods": self._reflector("/api/v1/pods", pods, field_selector=RUNNING),
            "nodes": self._reflector("/api/v1/nodes", nodes),
            "unhealthy": self._reflector(configmaps, unhealthy, label_selector=NO_LEDGERS),
        }

    def _store(self, key: str, put: Any, drop: Any, known: Any) -> IndexStore:
        return IndexStore(self._update, put=put, drop=drop, known=known, key=key)

    def _reflector(
        self, path: str, store: IndexStore, *, field_selector: str = "", label_selector: str = ""
    ) -> Reflector:
        def wake() -> None:
            self._runner.triggers.put(Trigger(source="api", reason=path))

        return Reflector(
            self._client,
            path,
            store,
            self._stop,
            on_change=wake,
            field_selector=field_selector,
            label_selector=label_selector,
        )

    # The state.

    def _not_ready(self) -> str:
        missing = [
            name
            for name, each in self._reflectors.items()
            if not (each.is_synced or _is_optional(name, each))
        ]
        problems = [f"{name}: {self._reflectors[name].problem or 'not listed yet'}" for name in missing]
        return f"the extender is not ready ({'; '.join(problems)})" if missing else ""

    def _unavailable(self) -> str:
        return "the extender is stopping" if self._runner.is_stopping else self._not_ready()

    def _alive(self) -> str:
        ended = [each.name for each in self._threads if not each.is_alive()]
        return f"the thread that watches {ended[0]} has ended" if ended else self._server.problem()

    def _report(self) -> None:
        with self._lock:
            self._index.drop_old_ledgers()
        state = self._state()
        status = document(self._runner.process, state)
        self._runner.save(lambda run_dir: save_status(run_dir, status))
        problems = {each.name: each.problem for each in state.lists} | {self._server.name: state.problem}
        now = tuple(problems.items())
        log_sources(self._log, now, self._logged_problems)
        self._logged_problems = now
        self._runner.report(f"{status['state']}: {state.nodes} nodes, {state.pods} pods")
        if status["state"] != self._logged_state:
            self._logged_state = status["state"]
            self._log.info(self._logged_state, port=state.port, nodes=state.nodes, pods=state.pods)

    def _state(self) -> ExtenderState:
        """Return the present state."""
        with self._lock:
            (total, used), nodes, pods = self._index.units(), len(self._index.capacities), self._index.count()
        now_s, boot_s = time.time(), time.monotonic()
        waits_for = self._not_ready()
        if bool(waits_for) != self._was_waiting:
            self._was_waiting, self._since_s = bool(waits_for), now_s
        return ExtenderState(
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
                ListState(name=name, problem=each.problem, last_event_s=now_s - (boot_s - each.last_event_s))
                for name, each in self._reflectors.items()
            ),
            problem=self._runner.health().get(self._server.name, ""),
        )

    def _metrics(self) -> bytes:
        return render(self._state(), self._counts)


def _json(found: object, status: str = "200 OK") -> Response:
    return Response(body=json.dumps(found).encode(), content_type=_JSON, status=status)


def _is_optional(name: str, reflector: Reflector) -> bool:
    """Return whether the list NAME of REFLECTOR may be missing.

    Only the list of ConfigMaps may be missing, if the account has no permission to list ConfigMaps.
    """
    return name == "unhealthy" and reflector.status == FORBIDDEN


def _name(found: Any) -> str:
    metadata = found.get("metadata") if isinstance(found, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return str(name)[:_MAX_NAME]


def _not_found() -> Response:
    return Response(body=b"not found\n", status="404 Not Found")
