"""``DeviceUsersReader``: reads the users of devices, and the devices that runtimes find, on demand."""

from __future__ import annotations

import time
from functools import partial

from cdigen.device_users import cgroups
from cdigen.device_users.engines import Engine
from cdigen.device_users.model import EngineReport
from cdigen.device_users.open_nodes import OpenDeviceNodes, read_open_nodes
from cdigen.host.root import Root
from cdigen.page.runtime_resolution import RuntimeResolution
from cdigen.page.services import read_services
from cdigen.page.user_reports import UserReports, numbers_of, pids_of
from cdigen.page.view import names_for_containers
from cdigen.runtimes.daemon_service import service_of
from cdigen.service.polling import BackgroundPoller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.daemon.setup import DaemonSetup
    from cdigen.daemon.stats import VendorStats
    from cdigen.pipeline.device_names import KnownDevice

# Names of the queries that use no socket.
_RUNNING, _OPEN, _RUNTIMES = "processes", "open files", "runtimes"
# Seconds for which the last result of a query that hangs is used.
STALE_S = 15.0
# Maximum number of callers that wait at the same time. Further callers get the present results.
MAX_WAITING = 1
# Maximum number of processes that are examined. cdigen opens a file for each process.
_MAX_PIDS = 512


class DeviceUsersReader:
    """Reads the containers of engines, the processes that use devices, and the devices that runtimes find."""

    def __init__(self, setup: Callable[[], DaemonSetup]) -> None:
        self._setup = setup
        self._poller = BackgroundPoller("users", max_waiting=MAX_WAITING)
        # Keys: the configured path of a socket, and its resolved path on this machine.
        self._engines: dict[tuple[str, str], Engine] = {}
        self._runtimes = RuntimeResolution(setup().outer)

    def read(
        self,
        read_stats: Callable[[], tuple[VendorStats, ...]],
        devices: tuple[KnownDevice, ...],
        wait_s: float,
    ) -> UserReports:
        """Return the reports that arrive within WAIT_S seconds.

        READ_STATS returns the stats. Its waiting time is part of WAIT_S. DEVICES are the devices that
        runtimes should find and that containers may use.
        """
        until_s = time.monotonic() + wait_s
        setup = self._setup()
        outer = setup.outer.rstrip("/")
        proc = f"{outer}{cgroups.PROC}"
        services = read_services(setup.nri_dir, setup.kubelet_dir, service_of(Root(setup.outer)))
        paths = setup.page.sockets
        # Engines that are no longer configured are dropped.
        sockets = {path: _resolved_socket(setup.outer, path) for path in paths}
        self._engines = {
            (path, socket): self._engines.get((path, socket)) or Engine(socket)
            for path, socket in sockets.items()
        }
        queries: dict[str, Callable[[], object]] = {
            path: engine.query for (path, _), engine in self._engines.items()
        }
        queries[_RUNTIMES] = partial(self._runtimes.resolve, names_for_containers(devices))
        if numbers := tuple(numbers_of(devices)):
            queries[_OPEN] = partial(read_open_nodes, numbers, proc=proc)
        if services.nri_containers:
            queries[_RUNNING] = partial(cgroups.running_containers, proc=proc)
        self._poller.start(queries)
        stats = read_stats()
        results = self._poller.wait(max(0.0, until_s - time.monotonic()), stale_s=STALE_S)
        engines = {path: results.get(path) for path in paths}
        running, runtimes = results.get(_RUNNING), results.get(_RUNTIMES)
        found = results.get(_OPEN)
        open_nodes = found if isinstance(found, OpenDeviceNodes) else None
        pids = pids_of(stats, open_nodes)[:_MAX_PIDS]
        return UserReports(
            services=services,
            engines={path: one if isinstance(one, EngineReport) else None for path, one in engines.items()},
            running=running if isinstance(running, frozenset) else None,
            stats=stats,
            runtimes=runtimes if isinstance(runtimes, tuple) else None,
            containers=cgroups.containers_of(pids, proc=proc),
            open_nodes=open_nodes,
        )


def _resolved_socket(outer: str, path: str) -> str:
    """Return the path on this machine for PATH, a socket of the host whose root is OUTER; "" if unresolved.

    Links are resolved within OUTER. Each call resolves PATH again, because a link may change. Also, /run is
    often created after the start of the daemon.
    """
    root = Root(outer)
    try:
        return root.outer_path(root.resolve_new(path))
    except OSError:
        # PATH cannot be resolved. If OUTER is "/", PATH is returned, and the query of the socket reports the
        # error.
        return root.outer_path(path) if root.is_this_machine else ""
