"""``Service``: the process that watches the API server, serves the scheduler, and binds pods.

The main thread only reports the state. ``watched_index`` has a thread for each list of the API server. Each
HTTP request has a thread that runs its route.
"""

from __future__ import annotations

import json
import threading
import time
from functools import partial

from cdigen import __version__
from cdigen.extender.answers import filter_nodes, inspect, prioritize
from cdigen.extender.binder import Binder
from cdigen.extender.binding import BindResult
from cdigen.extender.messages import MAX_BIND, error_result, read_args, read_bind, read_json
from cdigen.extender.server import DRAIN_S, LIMITS, extender_address
from cdigen.extender.status import NOT_READY, ExtenderCounts, ExtenderState, document, render
from cdigen.extender.watched_index import WatchedIndex
from cdigen.gpushare.names import Resources
from cdigen.kubeapi.client import Client
from cdigen.service.http.routes import Request, Response, standard_routes
from cdigen.service.http.server import HttpServer
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

    from cdigen.extender.index import Index
    from cdigen.extender.messages import ExtenderArgs
    from cdigen.extender.placement import Strategy
    from cdigen.extender.server import Access
    from cdigen.kubeapi.credentials import ApiServerConfig as ApiServer
    from cdigen.model.errors import StoreError
    from cdigen.service.http.routes import Route
    from cdigen.service.process.context import ProcessContext

# The path and version of gpushare's extender (gpushare-scheduler-extender, pkg/routes/routes.go).
PREFIX = "/gpushare-scheduler"
VERSION = "0.1.0"
REPORT_S = 30.0
# The time limit of each request of a bind to the API server.
CALL_S = 5.0
_JSON = "application/json"


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
        self._log = context.log
        self._runner = ServiceRunner(config.run_dir, context)
        self._watched = WatchedIndex(
            Client(api),
            config.resources,
            on_change=lambda: self._runner.triggers.put(Trigger(source="api", reason="a list has changed")),
            log=lambda name, reason: context.log.warning(
                "unreadable_object", name=name, message=f"{name} cannot be read: {reason}"
            ),
        )
        client = Client(api, timeout_s=CALL_S)
        self._binder = Binder(self._watched, client, config.namespace, config.strategy)
        # Only one filter or prioritize request is processed at a time. Such a request keeps a core busy, and
        # may need much memory.
        self._answering = threading.Lock()
        self._counts = ExtenderCounts()
        self._started_s = self._since_s = time.time()
        self._was_waiting = True
        self._logged_state = ""
        self._logged_problems: tuple[tuple[str, str], ...] = ()
        address = extender_address(config.host, config.port, self.routes(), config.access)
        self._server = HttpServer(address, limits=LIMITS, linger_s=config.linger_s, drain_s=DRAIN_S)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT, or raise ``LockHeld`` if another instance uses the run directory."""
        with self._runner.running(self._run_without_status):
            try:
                self._watched.start()
                self._runner.start(self._server)
                while not self._runner.is_stopping:
                    self._runner.take_reload()
                    self._report()
                    if self._runner.wait(time.monotonic() + REPORT_S):
                        self._runner.triggers.take()
            finally:
                self._runner.leave()
                self._server.stop()
                self._watched.stopping.set()

    def _run_without_status(self, error: StoreError) -> None:
        """Log ERROR and continue without a run directory, or raise ERROR if it is a ``LockHeld``.

        The file system of a pod may be read-only.
        """
        if isinstance(error, LockHeld):
            raise error
        self._log.warning("status_unavailable", message=error.message)

    # Requests of clients.

    def routes(self) -> dict[str, Route]:
        """Return the routes of the scheduler, of inspect, and of every process."""
        posts: dict[str, Callable[[Any], Response]] = {
            "filter": lambda found: self._query(filter_nodes, read_args(found)),
            "prioritize": lambda found: self._query(prioritize, read_args(found)),
            "bind": self._bind,
        }
        return {
            **{f"POST {PREFIX}/{verb}": partial(self._timed, verb, route) for verb, route in posts.items()},
            f"{PREFIX}/inspect": self._inspect,
            f"{PREFIX}/inspect/*": self._inspect,
            "/version": lambda _: Response(body=f"{VERSION} (cdigen {__version__})".encode()),
            **standard_routes(metrics=self._metrics, alive=self._alive, ready=self._unavailable),
        }

    def _inspect(self, request: Request) -> Response:
        with self._watched.lock:
            return _json(
                inspect(self._watched.index, request.path.removeprefix(f"{PREFIX}/inspect").strip("/"))
            )

    def _timed(self, verb: str, route: Callable[[Any], Response], request: Request) -> Response:
        begun_s = time.perf_counter()
        try:
            if verb == "bind":
                answer = route(read_json(request.body, MAX_BIND))
            else:
                with self._answering:
                    answer = route(read_json(request.body))
        except (ValueError, RecursionError) as error:
            # If the status is not 200, the scheduler reports only the status (kubernetes,
            # pkg/scheduler/extender.go, HTTPExtender.send). So a refused bind also has the status 200.
            answer = _json(error_result(f"the request cannot be read: {error}"))
        self._counts.answered(verb, answer.status[:3], time.perf_counter() - begun_s)
        return answer

    def _query(self, verb: Callable[[ExtenderArgs, Index, Strategy], Any], args: ExtenderArgs) -> Response:
        if problem := self._watched.not_ready():
            return _json(error_result(problem, is_old=args.is_old))
        strategy = self._config.node_strategy if verb is prioritize else self._config.strategy
        with self._watched.lock:
            answer = verb(args, self._watched.index, strategy)
        return _json(answer)

    def _bind(self, found: Any) -> Response:
        request, is_old = read_bind(found)
        begun_s = time.monotonic()
        if problem := self._watched.not_ready():
            result = BindResult(kind=NOT_READY, problem=problem)
        else:
            result = self._binder.bind(request)
        self._counts.ended(result.kind)
        fields = {"pod": f"{request.namespace}/{request.name}", "uid": request.uid, "node": request.node}
        spent_ms = round((time.monotonic() - begun_s) * 1000)
        if result.problem:
            self._log.warning("bind", **fields, result=result.kind, message=result.problem, ms=spent_ms)
        else:
            gpus = {str(gpu): units for gpu, units in result.on}
            self._log.info("bind", **fields, result=result.kind, gpus=gpus, ms=spent_ms)
        return _json(error_result(result.problem, is_old=is_old))

    # The state.

    def _unavailable(self) -> str:
        return "the extender is stopping" if self._runner.is_stopping else self._watched.not_ready()

    def _alive(self) -> str:
        return self._watched.ended_thread() or self._server.problem()

    def _report(self) -> None:
        with self._watched.lock:
            self._watched.index.drop_old_ledgers()
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
        with self._watched.lock:
            index = self._watched.index
            (total, used), nodes, pods = index.units(), len(index.capacities), index.count()
        waits_for = self._watched.not_ready()
        if bool(waits_for) != self._was_waiting:
            self._was_waiting, self._since_s = bool(waits_for), time.time()
        return ExtenderState(
            started_s=self._started_s,
            since_s=self._since_s,
            waits_for=waits_for,
            port=self._server.port or self._config.port,
            nodes=nodes,
            pods=pods,
            total=total,
            used=used,
            binds=self._counts.binds(),
            lists=self._watched.lists(),
            problem=self._runner.health().get(self._server.name, ""),
        )

    def _metrics(self) -> bytes:
        return render(self._state(), self._counts)


def _json(found: object) -> Response:
    return Response(body=json.dumps(found).encode(), content_type=_JSON)
