"""``DeviceUsersReader``: reads the users of devices, and the devices that runtimes find, on demand.

``RuntimeResolution`` computes the devices that installed runtimes find, with models of the runtimes' loaders.
cdigen runs the program of a runtime to read its version, and runs the program again only if the program's
file has changed. A spec file is parsed again only if the file has changed.
"""

from __future__ import annotations

import time
from functools import partial

from cdigen.device_users import cgroups
from cdigen.device_users.engines import Engine, EngineReport
from cdigen.device_users.open_nodes import OpenDeviceNodes, read_open_nodes
from cdigen.host.root import Root, shown
from cdigen.page.services import read_services
from cdigen.page.user_reports import UserReports, numbers_of, pids_of
from cdigen.page.view import RuntimeView, names_for_containers
from cdigen.runtimes import installed, settings
from cdigen.runtimes.daemon_service import service_of
from cdigen.runtimes.releases import RUNTIME_NAMES, library_of, newest_release
from cdigen.runtimes.scan import scan
from cdigen.runtimes.spec_cache import SpecCache
from cdigen.runtimes.users import Reader
from cdigen.service.polling import BackgroundPoller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cdigen.daemon.setup import DaemonSetup
    from cdigen.daemon.stats import VendorStats
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.runtimes.installed import InstalledRuntime
    from cdigen.runtimes.scan import SpecScan

# Names of the queries that use no socket.
_RUNNING, _OPEN, _RUNTIMES = "processes", "open files", "runtimes"
# Seconds for which the last result of a query that hangs is used.
STALE_S = 15.0
# Maximum number of callers that wait at the same time. Further callers get the present results.
MAX_WAITING = 1
# Maximum number of processes that are examined. cdigen opens a file for each process.
_MAX_PIDS = 512
_NAMES = {"podman": "podman", "docker": "Docker", "containerd": "containerd", "cri-o": "CRI-O"}
# Maximum number of problems that are reported for a runtime, and maximum length of a reason.
_MAX_PROBLEMS = 20
_MAX_REASON = 500


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


class RuntimeResolution:
    """The runtimes of the tree OUTER, and the devices that each runtime finds. Not thread-safe."""

    def __init__(self, outer: str) -> None:
        self._host = Root(outer)
        self._cache = SpecCache()
        # Keys: paths of programs. Values: the identity of the program's file, and the runtime.
        self._known: dict[str, tuple[tuple[int, ...], InstalledRuntime]] = {}

    def resolve(self, names: tuple[str, ...]) -> tuple[RuntimeView, ...]:
        """Return for each runtime how many of the devices NAMES the runtime finds, and the problems."""
        return tuple(self._view(one, names) for one in self._installed())

    def _installed(self) -> Iterable[InstalledRuntime]:
        known, self._known = self._known, {}
        for runtime in RUNTIME_NAMES.values():
            binary = installed.place(self._host, installed.BINARIES[runtime])
            if not binary:
                continue
            identity = _identity(self._host, binary)
            last = known.get(binary)
            one = (
                last[1]
                if last is not None and last[0] == identity
                else installed.examine(self._host, runtime, binary)
            )
            self._known[binary] = identity, one
            yield one

    def _view(self, one: InstalledRuntime, names: tuple[str, ...]) -> RuntimeView:
        library = one.library if one.release else library_of(one.runtime, newest_release(one.runtime))[0]
        version = ".".join(map(str, one.release)) if one.release else ""
        if not library:
            return _none(one, version, names, one.problem)
        read = settings.read(one.runtime, self._host, one.release)
        if read.cdi_enabled is False:
            by = read.source("cdi")
            how = f"by {shown(by)}" if by else "by default"
            return _none(one, version, names, f"CDI is switched off {how}")
        found = scan(
            read.spec_dirs,
            self._host,
            library=library,
            reader=Reader(follows_links=read.follows_links),
            cache=self._cache,
        )
        lost = [name for name in names if found.file(name) is None]
        return RuntimeView(
            name=_NAMES[one.runtime],
            version=version,
            found=len(names) - len(lost),
            offered=len(names),
            problems=_problems(found, lost),
        )


def _identity(host: Root, binary: str) -> tuple[int, ...]:
    try:
        _, status = host.located(binary)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _none(one: InstalledRuntime, version: str, names: tuple[str, ...], why: str) -> RuntimeView:
    return RuntimeView(
        name=_NAMES[one.runtime],
        version=version,
        found=0,
        offered=len(names),
        problems=((one.binary, why[:_MAX_REASON]),),
    )


def _problems(found: SpecScan, lost: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the reasons why the devices LOST are not found, at most _MAX_PROBLEMS.

    A reason that concerns a file is returned once. Any other reason is returned for each device.
    """
    problems: dict[tuple[str, str], None] = {}
    for name in lost:
        why = found.resolve(name)
        problems[why.file or name, why.reason.removeprefix(f"{shown(why.file)}: ")[:_MAX_REASON]] = None
        if len(problems) >= _MAX_PROBLEMS:
            break
    return tuple(problems)
