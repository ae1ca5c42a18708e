"""The plugin as a process: ``Plugin``.

The link to the runtime has a thread of its own. The main thread, here, does all that takes time: it reads
specs and inventory when they have changed, writes log and status, looks for containers that were started
before the plugin, and serves HTTP. What it needs for that is imported after the registration, which would
otherwise wait for it.
"""

from __future__ import annotations

import gc
import sys
import time

from cdigen import __version__
from cdigen.config import Settings
from cdigen.frontend.chassis import Chassis
from cdigen.frontend.host_state import read_host_state, watched_paths
from cdigen.frontend.rundir import LOCK_TIMEOUT_S, save_status
from cdigen.model.errors import ConfigError, StoreError
from cdigen.nri.configuration import Configuration
from cdigen.nri.decision.context import LIBRARY, cache_for, context_of, gives_raw
from cdigen.nri.decision.policy import policy_of
from cdigen.nri.link import Link
from cdigen.nri.reporter import Reporter
from cdigen.nri.shared_state import SharedState
from cdigen.nri.status import REGISTERED, REGISTERING, PluginStatus, document
from cdigen.store.lock import LockHeld
from cdigen.watch.triggers import Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.frontend.earlylog import EarlyLog
    from cdigen.frontend.http import Server
    from cdigen.frontend.sd_notify import Notifier
    from cdigen.frontend.signals import Signals
    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.plugin_config import PluginConfig
    from cdigen.runtimes.spec_cache import SpecCache

# How long the rest of the start waits for the registration, which it would slow down.
REGISTER_FIRST_S = 0.25
# A runtime gives all registered plugins so long to be synchronized.
SYNCHRONIZE_FIRST_S = 2.0
# A burst of containers is answered before it is logged, if it does not last.
_QUIET_S = 0.02
_BURST_S = 0.25
# For what makes no event: another driver runs, and nobody has written an inventory.
RESYNC_S = 60.0
_SAVE_S = 1.0
# The interpreter gives the link's thread its turn so soon, where the main thread computes.
_SWITCH_S = 0.0005
_SILENT_S = 30.0


class Plugin:
    """Serves one runtime until it is told to stop, or the runtime that has started it ends.

    LOAD reads configuration and command line, or raises a CdigenError; it is told whether this is the first
    time. VERBOSE logs what became of every container. STANDS_BY: where another instance serves the runtime,
    be registered beside it, and take the run directory when that ends.
    """

    def __init__(  # noqa: PLR0913 - each is its own thing
        self,
        load: Callable[[bool], PluginConfig],
        *,
        notifier: Notifier,
        log: EarlyLog,
        signals: Signals,
        verbose: bool,
        stands_by: bool = False,
    ) -> None:
        self._configuration = Configuration(load, log)
        self._log = log
        self._verbose = verbose
        self._chassis = Chassis(self._config.run_dir, notifier=notifier, logger=log, signals=signals)
        self._chassis.alive, self._chassis.on_stop = self._alive, self._stop_link
        self._shared = SharedState(
            lambda source: self._chassis.inbox.put(Trigger(source=source, reason="the runtime"))
        )
        self._status = PluginStatus(self._shared.metrics, self._shared.book)
        self._reporter = Reporter(self._status, log, lambda: self._config)
        self._link = Link(self._config.endpoint, self._config.name, self._config.index, self._shared)
        self._spec_cache: SpecCache | None = None
        self._context: DecisionContext | None = None
        self._logged: frozenset[str] = frozenset()
        self._may_stand_by = stands_by
        self._server: Server | None = None
        self._stands_aside = False
        self._is_stale = True
        self._is_urgent = False
        self._saved_s = 0.0
        self._is_saved = False

    def run(self) -> None:
        """Run until SIGTERM or SIGINT. ``LockHeld``: another instance runs."""
        sys.setswitchinterval(_SWITCH_S)
        # Who stands by is registered before the other ends, however soon that is.
        patience_s = 0.0 if self._may_stand_by else LOCK_TIMEOUT_S
        with self._chassis.running(on_refusal=self._do_without, patience_s=patience_s):
            try:
                self._serve()
            finally:
                self._chassis.leave()
                self._link.stop()
                self._take_events()

    def _do_without(self, error: StoreError) -> None:
        """Run without the run directory, and so without a status, as ERROR says.

        Where another instance has it, one that a runtime has started must not end, as some runtimes do not
        start without it: it lets no container have a device.
        """
        if not isinstance(error, LockHeld):
            self._log.error("no status", message=error.message, hint=error.hint)
        elif self._may_stand_by:
            self._stand_by(error)
        elif self._config.endpoint.fd is None:
            raise error
        else:
            self._log.error("stands aside", message=error.message, hint="another cdigen serves the runtime")
            self._stands_aside = True

    def _stand_by(self, error: LockHeld) -> None:
        """Serve beside the instance that ERROR names: who comes first gives, the other lets that pass.

        ConfigError: the configuration is wrong, and would be so once that instance has ended.
        """
        if self._config.problem:
            hint = f"{error.holder} goes on serving the runtime meanwhile"
            raise ConfigError(self._config.problem, hint=hint)
        self._shared.stands_by = True
        self._chassis.take_over_later(error)

    def _take_over(self) -> None:
        """Be the instance that the run directory shows: the other one has ended."""
        self._shared.stands_by = False
        self._is_saved, self._saved_s = False, 0.0
        if self._server is not None:
            self._chassis.add(self._server)
        self._chassis.report(self._summary())

    def _serve(self) -> None:
        self._shared.policy = policy_of(self._settings())
        if self._config.problem:
            self._shared.problem = self._config.problem
            self._configuration.misconfigure(f"whoever asks is refused: {self._config.problem}")
        if not self._stands_aside:
            self._configuration.note_policy()
        self._link.start(REGISTER_FIRST_S)
        # Services that start after this one wait for the registration, and not for what may take long.
        self._save()
        self._chassis.report(self._summary())
        self._read_host()
        self._synchronize()
        self._begin()
        self._loop()

    @property
    def _config(self) -> PluginConfig:
        return self._configuration.current

    def _settings(self) -> Settings:
        """Return the settings that count; those of a plugin that stands aside allow nothing."""
        return Settings() if self._stands_aside else self._config.settings

    def _synchronize(self) -> None:
        """Take what the runtime tells at first, which it does not give much time to."""
        self._take_events()
        until_s = time.monotonic() + SYNCHRONIZE_FIRST_S
        while (
            self._status.state == REGISTERING
            and not self._is_stopping()
            and (left_s := until_s - time.monotonic()) > 0
        ):
            self._chassis.inbox.wait(left_s)
            self._take_triggers()
            self._take_events()

    def _begin(self) -> None:
        """Begin what can wait until the runtime is served: log, sources of events, HTTP."""
        from cdigen.frontend import log  # noqa: PLC0415 - see the head of this file
        from cdigen.frontend.http import SOCKET_FILE, Server, standard_routes  # noqa: PLC0415 - likewise
        from cdigen.nri.metrics import NriCollector  # noqa: PLC0415 - likewise
        from cdigen.watch.files import FileSource  # noqa: PLC0415 - likewise

        logger = log.make_logger(verbose=self._verbose)
        log.take_over(logger)
        self._log.info("started", version=__version__, index=self._config.index)
        self._log.hand_over(logger)
        routes = standard_routes(
            metrics=NriCollector(self._status).render, alive=self._alive, ready=self._reason_unready
        )
        port = self._config.settings.nri.http_port
        self._files = FileSource()
        self._watch()
        self._server = Server(routes, f"{self._config.run_dir}/{SOCKET_FILE}", port=port)
        # While this one stands by, the other one's answers are there.
        self._chassis.start(self._files, *(() if self._shared.stands_by else (self._server,)))
        # What has changed since the host was read made no event.
        self._is_stale = True
        # All that is there now stays: the collector need not go through it again, which takes milliseconds.
        gc.collect()
        gc.freeze()

    # The loop.

    def _loop(self) -> None:
        resync_s = time.monotonic() + RESYNC_S
        while not self._is_stopping():
            waits_for_save = self._chassis.has_run_directory and not self._is_saved
            if self._chassis.wait(min(resync_s, self._saved_s + _SAVE_S) if waits_for_save else resync_s):
                self._take_triggers()
            elif time.monotonic() >= resync_s:
                self._is_stale = self._context is None or self._context.host.has_changed()
                resync_s = time.monotonic() + RESYNC_S
            if self._is_stopping():
                return
            if self._is_stale:
                self._refresh()
                resync_s = time.monotonic() + RESYNC_S
            self._take_events()
            self._save()

    def _is_stopping(self) -> bool:
        return self._chassis.is_stopping

    def _take_triggers(self) -> None:
        """Take the triggers in the inbox; where no container waits for it, after some quiet."""
        until_s = time.monotonic() + _BURST_S
        count = -1
        while (
            not self._is_awaited()
            and count != (count := len(self._shared.events))
            and time.monotonic() < until_s
        ):
            self._shared.asked.wait(_QUIET_S)
        self._shared.asked.clear()
        sources = {trigger.source for trigger in self._chassis.inbox.take().triggers}
        if "place" in sources:
            self._take_over()
        if sources - {"link", "http"}:
            self._is_stale = True
        self._is_urgent = "question" in sources
        if "files" in sources:
            # The runtime's socket may be there now.
            self._shared.wake()

    def _is_awaited(self) -> bool:
        pending = {trigger.source for trigger in self._chassis.inbox.peek().triggers}
        return bool(pending & {"question", "signal"})

    def _stop_link(self) -> None:
        # At once, whatever the main thread is at: open questions are answered.
        self._shared.stopping.set()
        self._shared.wake()

    def _read_host(self) -> None:
        """Let the link answer by the host as it is now."""
        settings = self._settings()
        self._is_stale = False
        if self._context is None or self._context.gives_raw != gives_raw(settings):
            self._spec_cache = cache_for(settings)
        before = self._context.host if self._context else None
        state = read_host_state(self._config.sources, library=LIBRARY, cache=self._spec_cache, before=before)
        self._context = context_of(state, settings, self._context)
        self._shared.set_context(self._context)
        self._shared.problem = self._config.problem
        self._status.problems = (*self._configuration.problems(), *state.specs.problems)
        self._is_saved = False
        messages = frozenset(finding.message for finding in state.specs.problems)
        for message in sorted(messages - self._logged):
            self._log.warning("spec", message=message)
        self._logged = messages

    def _refresh(self) -> None:
        """Read configuration and host again; SIGHUP is answered to the service manager when both count."""
        is_reload = self._chassis.take_reload()
        self._configuration.refresh(is_reload=is_reload)
        if self._is_urgent:
            # A container waits for the reading, and not for the watches; a look after them finds the rest.
            self._read_host()
            self._watch()
            self._chassis.inbox.put(Trigger(source="look", reason="watched"))
        else:
            self._watch()
            self._read_host()
        if is_reload:
            self._chassis.report(self._summary())

    def _watch(self) -> None:
        """Watch the files that the plugin depends on now."""
        sources = self._config.sources
        socket = (self._config.endpoint.path,) if self._config.endpoint.path else ()
        # Links of a tree that is not this machine's own lead where they lead in it.
        roots = tuple({sources.specs, sources.runs} - {"/"})
        lock = self._chassis.run_directory.lock
        self._files.rearm((*watched_paths(sources), *self._config.watched, lock, *socket), roots=roots)

    def _take_events(self) -> None:
        events = self._shared.events
        while events:
            self._is_saved = False
            if self._reporter.take(events.popleft(), self._context):
                self._chassis.report(self._summary())
        if self._config.endpoint.fd is not None and not self._link.is_running():
            # The runtime that has started us starts another one, if it comes again.
            self._chassis.stop()

    # What others are told.

    def _save(self) -> None:
        now = time.monotonic()
        if not self._chassis.has_run_directory or self._is_saved or now - self._saved_s < _SAVE_S:
            return
        self._chassis.save(
            lambda run_dir: save_status(run_dir, document(self._status, self._chassis.process))
        )
        self._is_saved, self._saved_s = True, now

    def _summary(self) -> str:
        return f"stands by; {self._state()}" if self._shared.stands_by else self._state()

    def _state(self) -> str:
        status = self._status
        if status.state == REGISTERED:
            counts = status.metrics.outcomes
            return (
                f"registered with {status.runtime}, {counts['inject']} injected, {counts['refuse']} refused"
            )
        return f"{status.state}; {status.reason}" if status.reason else status.state

    def _reason_unready(self) -> str:
        if self._status.state == REGISTERED:
            return ""
        return self._status.reason or "the runtime has not registered the plugin yet"

    def _alive(self) -> str:
        """Return why this process is of no use: without its link the service manager starts another."""
        if not self._link.is_running():
            return "the thread that serves the runtime has ended"
        silent_s = time.monotonic() - self._shared.alive_s
        return f"the runtime has not been served for {silent_s:.0f} s" if silent_s > _SILENT_S else ""
