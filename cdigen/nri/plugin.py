"""``NriPlugin``: the process of the NRI plugin.

The link to the runtime has its own thread. The main thread runs this module and does all slow work. The main
thread reads changed specs and inventory, writes log and status, audits the containers that existed before
the registration, and serves HTTP. The modules for this work are imported after the registration, so that the
imports do not delay the registration.
"""

from __future__ import annotations

import time
from functools import partial

from cdigen import __version__
from cdigen.config import Settings
from cdigen.model.errors import ConfigError, StoreError
from cdigen.nri.decision.context import LIBRARY, cache_for, context_of, injects_raw
from cdigen.nri.decision.limits.policy import policy_of
from cdigen.nri.link import RuntimeLink
from cdigen.nri.plugin_config import active_configuration
from cdigen.nri.reporter import Reporter
from cdigen.nri.shared_state import SharedState
from cdigen.nri.status import REGISTERING, PluginStatus, document
from cdigen.service.host_state import read_host_state, watch_host
from cdigen.service.liveness import freeze_objects, prefer_link
from cdigen.service.rundir import LOCK_TIMEOUT_S
from cdigen.service.runner import ServiceRunner
from cdigen.service.status import StatusWriter
from cdigen.store.lock import LockHeld
from cdigen.watch.triggers import Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.plugin_config import NriPluginConfig
    from cdigen.runtimes.spec_cache import SpecCache
    from cdigen.service.host_state import HostSources
    from cdigen.service.http.server import HttpServer
    from cdigen.service.process.buffered_log import Logger
    from cdigen.service.process.context import ProcessContext

# Seconds. The start waits at most this time for the registration, so that the next steps do not delay the
# registration.
REGISTER_FIRST_S = 0.25
# Seconds. The start waits at most this time for the synchronization. The runtime's timeout for the
# synchronization of all registered plugins is also 2 s.
SYNCHRONIZE_FIRST_S = 2.0
# Seconds. The main thread waits until no event has arrived for _QUIET_S, and at most for _BURST_S. So the
# link responds to all containers of a burst before the main thread writes log lines.
_QUIET_S = 0.02
_BURST_S = 0.25
# Seconds between checks for changes that cause no event, such as a new driver without a new inventory.
RESYNC_S = 60.0
_SAVE_S = 1.0


class NriPlugin:
    """The plugin process, which serves one runtime.

    The process runs until a signal stops it. A process that the runtime launched also stops when its
    connection ends. LOAD reads the configuration and the command line, or raises a CdigenError. The argument
    of LOAD is true in the first call. If VERBOSE is true, the plugin logs the result of every container.
    """

    def __init__(
        self,
        load: Callable[[bool], NriPluginConfig],
        context: ProcessContext,
        *,
        verbose: bool,
    ) -> None:
        self._log = log = context.log
        self._configuration = active_configuration(load, log)
        self._verbose = verbose
        self._runner = ServiceRunner(
            self._config.run_dir,
            context,
            alive=lambda: self._shared.liveness.problem(is_running=self._link.is_running()),
        )
        self._runner.on_stop = self._stop_link
        self._shared = SharedState(
            lambda source: self._runner.triggers.put(Trigger(source=source, reason="the runtime"))
        )
        self._status = PluginStatus(self._shared.metrics, self._shared.injected)
        self._reporter = Reporter(self._status, log, lambda: self._config)
        self._link = RuntimeLink(self._config.endpoint, self._config.name, self._config.index, self._shared)
        self._reader = ContextReader(log)
        self._server: HttpServer | None = None
        self._is_lock_held = False
        self._is_stale = True
        self._is_urgent = False
        self._status_writer = StatusWriter(
            self._runner.run_directory,
            lambda: document(self._status, self._runner.process),
            least_s=_SAVE_S,
        )

    def run(self, *, is_standby: bool = False) -> None:
        """Run until SIGTERM or SIGINT; raise LockHeld if another instance runs.

        If IS_STANDBY is true and another instance serves the runtime, this process registers as a second
        plugin. When the other instance ends, this process becomes the active instance.
        """
        prefer_link()
        # A standby instance does not wait for the lock. It registers before the other instance ends.
        lock_timeout_s = 0.0 if is_standby else LOCK_TIMEOUT_S
        on_refusal = partial(self._continue_after, is_standby=is_standby)
        with self._runner.running(on_refusal, lock_timeout_s=lock_timeout_s):
            try:
                self._serve()
            finally:
                self._runner.leave()
                self._link.stop()
                self._take_events()

    def _continue_after(self, error: StoreError, *, is_standby: bool) -> None:
        """Continue after ERROR without the run directory, and so without a status file.

        If another instance holds the lock, raise ERROR, with two exceptions. A standby instance continues. A
        plugin that the runtime launched also continues, because some runtimes do not start without their
        plugins. This plugin then permits devices to no container.
        """
        if not isinstance(error, LockHeld):
            self._log.error("status_unavailable", message=error.message, hint=error.hint)
        elif is_standby:
            self._stand_by(error)
        elif self._config.endpoint.fd is None:
            raise error
        else:
            self._log.error("lock_held", message=error.message, hint="another cdigen serves the runtime")
            self._is_lock_held = True

    def _stand_by(self, error: LockHeld) -> None:
        """Serve the runtime together with the active instance; ERROR contains the name of that instance.

        The runtime calls both instances. The instance that is called first injects the devices. Raise
        ConfigError if the configuration is invalid, because it would also be invalid when this instance
        becomes active.
        """
        if self._config.problem:
            hint = f"{error.holder} continues to serve the runtime"
            raise ConfigError(self._config.problem, hint=hint)
        self._shared.is_standby = True
        self._runner.wait_on_standby(error)

    def _take_over(self) -> None:
        """Become the active instance, which writes the run directory, after the end of the other instance."""
        self._shared.is_standby = False
        if self._server is not None:
            self._runner.add(self._server)
        self._runner.report(self._summary())

    def _serve(self) -> None:
        self._shared.policy = policy_of(self._settings())
        self._shared.problem = self._config.problem
        self._configuration.begin("every request for devices is refused", self._config.problem)
        self._link.start(REGISTER_FIRST_S)
        # After this report, the service manager starts the next services. The slow work comes later.
        self._status_writer.update()
        self._runner.report(self._summary())
        self._read_host()
        self._synchronize()
        self._begin()
        self._loop()

    @property
    def _config(self) -> NriPluginConfig:
        return self._configuration.current

    def _settings(self) -> Settings:
        """Return the active settings, or settings that permit no device if another instance has the lock."""
        return Settings() if self._is_lock_held else self._config.settings

    def _synchronize(self) -> None:
        """Process the first events of the runtime, for SYNCHRONIZE_FIRST_S at most."""
        self._take_events()
        until_s = time.monotonic() + SYNCHRONIZE_FIRST_S
        while (
            self._status.state == REGISTERING
            and not self._is_stopping()
            and (left_s := until_s - time.monotonic()) > 0
        ):
            self._runner.triggers.wait(left_s)
            self._take_triggers()
            self._take_events()

    def _begin(self) -> None:
        """Start the parts that are not necessary for the registration: log, event sources, HTTP."""
        # These imports would delay the registration.
        from cdigen.nri.metrics import render  # noqa: PLC0415
        from cdigen.service.http.routes import standard_routes  # noqa: PLC0415
        from cdigen.service.http.server import local_server  # noqa: PLC0415
        from cdigen.watch.files import FileSource  # noqa: PLC0415

        self._log.info("started", version=__version__, index=self._config.index)
        self._log.open(verbose=self._verbose)
        routes = standard_routes(
            metrics=lambda: render(self._status),
            alive=self._runner.alive,
            ready=self._status.reason_unready,
        )
        port = self._config.settings.nri.http_port
        self._files = FileSource()
        self._watch()
        self._server = local_server(routes, self._config.run_dir, port)
        # On standby, the run directory contains the HTTP socket of the active instance.
        self._runner.start(self._files, *(() if self._shared.is_standby else (self._server,)))
        # The file watches did not exist during the last read of the host. A later change caused no event.
        self._is_stale = True
        freeze_objects()

    # The loop.

    def _loop(self) -> None:
        resync_s = time.monotonic() + RESYNC_S
        while not self._is_stopping():
            if self._runner.wait(min(resync_s, self._status_writer.due_s)):
                self._take_triggers()
            elif time.monotonic() >= resync_s:
                self._is_stale = self._reader.has_changed()
                resync_s = time.monotonic() + RESYNC_S
            if self._is_stopping():
                return
            if self._is_stale:
                self._refresh()
                resync_s = time.monotonic() + RESYNC_S
            self._take_events()
            self._status_writer.update()

    def _is_stopping(self) -> bool:
        return self._runner.is_stopping

    def _take_triggers(self) -> None:
        """Process the triggers in the queue.

        If no container waits for a response, wait first until no event arrives for a short time.
        """
        until_s = time.monotonic() + _BURST_S
        count = -1
        while (
            not self._is_awaited()
            and count != (count := len(self._shared.events))
            and time.monotonic() < until_s
        ):
            self._shared.context_requested.wait(_QUIET_S)
        self._shared.context_requested.clear()
        sources = {trigger.source for trigger in self._runner.triggers.take().triggers}
        if "standby" in sources:
            self._take_over()
        if sources - {"link", "http"}:
            self._is_stale = True
        self._is_urgent = "request" in sources
        if "files" in sources:
            # A file event can mean that the runtime's socket exists now.
            self._shared.wake()

    def _is_awaited(self) -> bool:
        pending = {trigger.source for trigger in self._runner.triggers.peek().triggers}
        return bool(pending & {"request", "signal"})

    def _stop_link(self) -> None:
        # This function does not wait for the main thread, because the pending requests need responses.
        self._shared.stopping.set()
        self._shared.wake()

    def _read_host(self) -> None:
        """Read the state of the host, and pass a new context to the link."""
        self._is_stale = False
        context = self._reader.read(self._config.sources, self._settings())
        self._shared.set_context(context)
        self._shared.problem = self._config.problem
        self._status.problems = (*self._configuration.findings, *context.host.specs.problems)
        self._reader.log_problems()

    def _refresh(self) -> None:
        """Read the configuration and the host again.

        After a SIGHUP, notify the service manager when the new configuration and host state are active.
        """
        is_reload = self._runner.take_reload()
        self._configuration.refresh(is_reload=is_reload)
        if self._is_urgent:
            # A container waits for the host's state, so the host is read before the watches are set. The
            # recheck finds changes between the read and the watches.
            self._read_host()
            self._watch()
            self._runner.triggers.put(Trigger(source="recheck", reason="watched"))
        else:
            self._watch()
            self._read_host()
        if is_reload:
            self._runner.report(self._summary())

    def _watch(self) -> None:
        """Watch the files that the plugin currently depends on."""
        socket = (self._config.endpoint.path,) if self._config.endpoint.path else ()
        watched = (*self._configuration.watched, self._runner.run_directory.lock, *socket)
        watch_host(self._files, self._config.sources, *watched)

    def _take_events(self) -> None:
        events = self._shared.events
        while events:
            if self._reporter.take(events.popleft(), self._reader.context):
                self._runner.report(self._summary())
        if self._config.endpoint.fd is not None and not self._link.is_running():
            # The runtime that launched this process has ended. After its restart, it launches a new process.
            self._runner.stop()

    def _summary(self) -> str:
        summary = self._status.summary()
        return f"standby; {summary}" if self._shared.is_standby else summary


class ContextReader:
    """Reads the state of the host for the decisions of the link. LOGGER gets the problems of specs.

    ``context`` is the last context.
    """

    def __init__(self, logger: Logger) -> None:
        self.context: DecisionContext | None = None
        self._log = logger
        self._cache: SpecCache | None = None
        self._logged: frozenset[str] = frozenset()

    def read(self, sources: HostSources, settings: Settings) -> DecisionContext:
        """Return the context of the present state in SOURCES with SETTINGS."""
        before = self.context
        if before is None or before.injects_raw != injects_raw(settings):
            self._cache = cache_for(settings)
        state = read_host_state(
            sources, library=LIBRARY, cache=self._cache, before=before.host if before else None
        )
        self.context = context_of(state, settings, before)
        return self.context

    def log_problems(self) -> None:
        """Log the problems of specs that are new since the last call."""
        problems = self.context.host.specs.problems if self.context else ()
        messages = frozenset(finding.message for finding in problems)
        for message in sorted(messages - self._logged):
            self._log.warning("spec", message=message)
        self._logged = messages

    def has_changed(self) -> bool:
        """Return whether the host has changed since the last ``read``."""
        return self.context is None or self.context.host.has_changed()
