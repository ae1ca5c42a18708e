"""The plugin as a process: ``Plugin``.

The link to the runtime has a thread of its own. This one, the main thread, does all that takes time: it looks
at specs and inventory when they have changed, writes the log and the status, looks through what was there
before us, and keeps the sources of events and the HTTP server. Nothing that it needs for that is imported
before the runtime has had the registration.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from contextlib import ExitStack

from cdigen import __version__
from cdigen.config import RULE, Settings
from cdigen.frontend import status as files
from cdigen.frontend.host_state import read_host_state, watched_paths
from cdigen.frontend.rundir import RunDirectory, save_status
from cdigen.frontend.signals import Overdue
from cdigen.model.errors import CdigenError, ConfigError, StoreError
from cdigen.model.findings import Finding
from cdigen.nri import status
from cdigen.nri.decision.context import LIBRARY, context_of
from cdigen.nri.decision.policy import policy_of
from cdigen.nri.link import Link
from cdigen.nri.reporter import Reporter
from cdigen.nri.shared_state import SharedState
from cdigen.runtimes.spec_cache import SpecCache
from cdigen.store.lock import LockHeld
from cdigen.watch.triggers import Inbox, Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.frontend.earlylog import EarlyLog
    from cdigen.frontend.sd_notify import Notifier
    from cdigen.frontend.signals import Signals
    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.plugin_config import PluginConfig
    from cdigen.watch.supervisor import Supervisor

# How long the rest of the start waits for the registration, which it would slow down.
REGISTER_FIRST_S = 0.25
MEET_S = 2.0
# A burst of containers is answered before it is written about, if it does not last.
_QUIET_S = 0.02
_BURST_S = 0.25
# What no event tells: another driver runs, and nobody has written an inventory.
LOOK_S = 60.0
_SHOW_S = 1.0
# The interpreter gives the link's thread its turn so soon, where another computes.
_SWITCH_S = 0.0005
_SILENT_S = 30.0


class Plugin:
    """Serves one runtime until it is told to stop, or the runtime that has started it ends.

    LOAD reads configuration and command line and returns the setup, or raises a CdigenError; it is told
    whether this is the first time. VERBOSE makes it say what became of every container.
    """

    def __init__(
        self,
        load: Callable[[bool], PluginConfig],
        *,
        notifier: Notifier,
        log: EarlyLog,
        signals: Signals,
        verbose: bool,
    ) -> None:
        self._load = load
        self._setup = load(True)  # noqa: FBT003 - its own signature
        self._stamp: tuple[int, ...] = ()
        self._spec_cache = SpecCache()
        self._notifier = notifier
        self._log = log
        self._signals = signals
        self._verbose = verbose
        self._inbox = Inbox()
        self._desk = SharedState(lambda what: self._inbox.put(Trigger(source=what, reason="the runtime")))
        self._board = status.PluginStatus(self._desk.tally)
        self._home = RunDirectory(self._setup.run_dir, log)
        self._has_home = self._stands_aside = False
        self._link = Link(self._setup.endpoint, self._setup.name, self._setup.index, self._desk)
        self._known: DecisionContext | None = None
        self._reporter = Reporter(self._board, self._desk, log, lambda: self._setup)
        self._supervisor: Supervisor | None = None
        self._process = files.this_process()
        self._stopping = threading.Event()
        self._reloading = False
        self._said: frozenset[str] = frozenset()
        self._misconfigured: tuple[Finding, ...] = ()
        self._is_stale = True
        self._shown_s = 0.0
        self._is_shown = False

    def run(self) -> None:
        """Run until SIGTERM or SIGINT. ``LockHeld``: another instance runs."""
        sys.setswitchinterval(_SWITCH_S)
        self._signals.attach(self._on_signal, give_up=_nothing)
        with ExitStack() as held:
            self._take_home(held)
            try:
                self._signals.is_interruptible = True
                self._serve()
            except Overdue:
                self._log.warning("gave up", message="it was still at work when it was to end")
            finally:
                self._signals.is_interruptible = False
                self._notifier.stopping()
                self._link.stop()
                if self._supervisor is not None:
                    self._supervisor.stop()
                if self._has_home:
                    self._home.remove_status()
                self._log.info("stopped")

    def _take_home(self, held: ExitStack) -> None:
        """Take the run directory. ``LockHeld``: another instance has it.

        That there is none costs the status; the runtime is served all the same. One that a runtime has
        started must not end, as some do not start without it: it stands aside for the other.
        """
        try:
            held.enter_context(self._home.taken())
            self._has_home = True
        except LockHeld as error:
            if self._setup.endpoint.fd is None:
                raise
            self._log.error("stands aside", message=error.message, hint="another cdigen serves the runtime")
            self._stands_aside = True
        except StoreError as error:
            self._log.error("no status", message=error.message, hint=error.hint)

    def _serve(self) -> None:
        self._desk.policy = policy_of(self._settings())
        if self._setup.problem:
            self._desk.problem = self._setup.problem
            self._misconfigure(f"whoever asks is refused: {self._setup.problem}")
        self._link.start(REGISTER_FIRST_S)
        # Whoever starts after us waits for the registration, and not for what may take long.
        self._show()
        self._notifier.ready(self._summary())
        self._look()
        self._meet()
        self._loop(self._begin())

    def _settings(self) -> Settings:
        """Return the settings that count; those of one that stands aside let nobody ask."""
        return Settings() if self._stands_aside else self._setup.settings

    def _meet(self) -> None:
        """Hear what the runtime tells at first: it gives the whole of it 2 s."""
        self._read_news()
        until_s = time.monotonic() + MEET_S
        while (
            self._board.state == status.REGISTERING
            and not self._stopping.is_set()
            and (left_s := until_s - time.monotonic()) > 0
        ):
            self._inbox.wait(left_s)
            self._hear()
            self._read_news()

    def _begin(self) -> Supervisor:
        """Begin what can wait until the runtime is served; returns who keeps the sources and the server."""
        from cdigen.frontend import log  # noqa: PLC0415 - likewise
        from cdigen.frontend.http import SOCKET_FILE, Server, standard_routes  # noqa: PLC0415 - likewise
        from cdigen.nri.metrics import NriCollector  # noqa: PLC0415 - see the head of this file
        from cdigen.watch.files import FileSource  # noqa: PLC0415 - likewise
        from cdigen.watch.supervisor import Supervisor  # noqa: PLC0415 - likewise

        logger = log.make_logger(verbose=self._verbose)
        log.take_over(logger)
        self._log.info("started", version=__version__, index=self._setup.index)
        self._log.hand_over(logger)
        routes = standard_routes(
            metrics=NriCollector(self._board).render, alive=self._alive, ready=self._unready
        )
        port = self._setup.settings.nri.http_port
        self._files = FileSource()
        server = Server(routes, f"{self._setup.run_dir}/{SOCKET_FILE}", port=port)
        self._supervisor = supervisor = Supervisor((self._files, server), self._inbox)
        self._rearm()
        supervisor.start()
        # What has changed since the first look made no event.
        self._is_stale = True
        # All that is there now stays: the collector need not go through it again, which takes milliseconds.
        gc.collect()
        gc.freeze()
        return supervisor

    # The loop.

    def _loop(self, supervisor: Supervisor) -> None:
        next_look_s = time.monotonic() + LOOK_S
        while not self._stopping.is_set():
            now = time.monotonic()
            wake_s = min(next_look_s, supervisor.tick(), now + self._pulse_s())
            if not self._is_shown and self._has_home:
                wake_s = min(wake_s, self._shown_s + _SHOW_S)
            if self._inbox.wait(max(0.0, wake_s - now)):
                self._hear()
            elif time.monotonic() >= next_look_s:
                self._is_stale = self._has_changed()
                next_look_s = time.monotonic() + LOOK_S
            if self._stopping.is_set():
                return
            if self._is_stale:
                self._renew()
                next_look_s = time.monotonic() + LOOK_S
            self._read_news()
            self._show()
            self._pulse()

    def _has_changed(self) -> bool:
        """Return whether something has changed that may make no event: a daemon has ended, another driver."""
        known = self._known
        return known is None or known.host.has_changed()

    def _hear(self) -> None:
        """Take what has come; where nobody waits for it, after some quiet."""
        until_s = time.monotonic() + _BURST_S
        told = -1
        while (
            not self._is_awaited() and told != (told := len(self._desk.news)) and time.monotonic() < until_s
        ):
            time.sleep(_QUIET_S)
        batch = self._inbox.take()
        sources = {trigger.source for trigger in batch.triggers}
        if sources - {"link", "state", "http"}:
            self._is_stale = True
        if "files" in sources:
            # It may be the runtime's socket that has come.
            self._desk.ring()

    def _is_awaited(self) -> bool:
        pending = {trigger.source for trigger in self._inbox.peek().triggers}
        return bool(pending & {"question", "state", "signal"})

    def _on_signal(self, name: str) -> None:
        if name == "SIGHUP":
            self._reloading = True
        else:
            self._stopping.set()
            # At once, whatever the main thread is at: who waits for an answer gets one.
            self._desk.stopping.set()
            self._desk.ring()
        self._inbox.put(Trigger(source="signal", reason=name))

    def _look(self) -> None:
        self._is_stale = False
        state = read_host_state(self._setup.sources, library=LIBRARY, cache=self._spec_cache)
        self._known = context_of(state, self._settings())
        self._desk.give(self._known)
        self._desk.problem = self._setup.problem
        self._board.problems = (*self._misconfigured, *state.specs.problems)
        self._is_shown = False
        said = frozenset(finding.message for finding in state.specs.problems)
        for message in sorted(said - self._said):
            self._log.warning("spec", message=message)
        self._said = said

    def _renew(self) -> None:
        """Read the configuration again, and look by it; who has asked for that is told when it counts."""
        is_asked = self._reloading
        self._reloading = False
        if is_asked:
            self._notifier.reloading()
        # Where somebody waits for devices, the configuration is not parsed for nothing.
        stamp = _identity(self._setup.watched[0])
        if is_asked or stamp != self._stamp:
            self._stamp = stamp
            self._reload()
        self._rearm()
        self._look()
        if is_asked:
            self._notifier.ready(self._summary())

    def _reload(self) -> None:
        """Read the configuration again; one that is wrong changes nothing, and is said."""
        path = self._setup.watched[0]
        try:
            setup = self._load(False)  # noqa: FBT003 - its own signature
            if not any(_identity(path)) and _lets_ask(self._setup.settings):
                raise ConfigError(f"{path} has gone, or is empty", hint="write 'nri: {}' to let nobody ask")
        except CdigenError as error:
            counts = "whoever asks is refused" if self._setup.problem else "the last good one does"
            self._misconfigure(f"the configuration does not count, {counts}: {error.message}", error.hint)
            return
        if (changed := _fixed(setup)) != _fixed(self._setup):
            self._log.warning("configuration", message="takes effect at the next start", fixed=changed)
        self._setup = setup
        self._misconfigured = ()

    def _misconfigure(self, message: str, hint: str = "") -> None:
        path = self._setup.watched[0]
        problems = (Finding(severity="error", rule=RULE, path=path, message=message, hint=hint),)
        if problems != self._misconfigured:
            self._log.error("configuration", message=message, hint=hint)
        self._misconfigured = problems

    def _rearm(self) -> None:
        sources = self._setup.sources
        socket = (self._setup.endpoint.path,) if self._setup.endpoint.path else ()
        # Links of a tree that is not this machine's own lead where they lead in it.
        roots = tuple({sources.specs, sources.runs} - {"/"})
        paths = (*watched_paths(sources), *self._setup.watched, self._home.lock, *socket)
        self._files.rearm(paths, roots=roots)

    def _read_news(self) -> None:
        fresh = self._desk.news
        while fresh:
            self._is_shown = False
            if self._reporter.take(fresh.popleft(), self._known):
                self._notifier.status(self._summary())
        if self._setup.endpoint.fd is not None and not self._link.is_running():
            # The runtime that has started us starts another one, if it comes again.
            self._stopping.set()

    # Showing.

    def _show(self) -> None:
        now = time.monotonic()
        if not self._has_home or self._is_shown or now - self._shown_s < _SHOW_S:
            return
        self._home.keep()
        self._home.show(lambda run_dir: save_status(run_dir, status.document(self._board, self._process)))
        self._is_shown, self._shown_s = True, now

    def _summary(self) -> str:
        board = self._board
        if board.state == status.REGISTERED:
            counts = board.tally.outcomes
            return f"registered with {board.runtime}, {counts['inject']} injected, {counts['refuse']} refused"
        return f"{board.state}; {board.reason}" if board.reason else board.state

    def _unready(self) -> str:
        if self._board.state == status.REGISTERED:
            return ""
        return self._board.reason or "the runtime has not registered the plugin yet"

    def _alive(self) -> str:
        if not self._link.is_running():
            return "the thread that serves the runtime has ended"
        silent_s = time.monotonic() - self._desk.alive_s
        return f"the runtime has not been served for {silent_s:.0f} s" if silent_s > _SILENT_S else ""

    def _pulse_s(self) -> float:
        return self._notifier.watchdog_s / 3 if self._notifier.watchdog_s else LOOK_S

    def _pulse(self) -> None:
        # Without its link this process is of no use: the manager starts another.
        if self._notifier.watchdog_s and not self._alive():
            self._notifier.ping()


def _identity(path: str) -> tuple[int, ...]:
    """Return what tells one content of the file PATH from another; nothing but zeros where it has none.

    It is empty as well while somebody writes it in place.
    """
    try:
        found = os.stat(path)
    except OSError:
        return (0,)
    return (found.st_size and found.st_ctime_ns, found.st_size, found.st_size and found.st_ino)


def _lets_ask(settings: Settings) -> bool:
    return bool(settings.nri.allow or settings.nri.management_namespaces)


def _fixed(setup: PluginConfig) -> str:
    """Return what counts from the start on."""
    place = setup.endpoint.path or "the runtime's socket"
    return f"{place}, index {setup.index}, {setup.run_dir}, HTTP port {setup.settings.nri.http_port}"


def _nothing() -> None:
    """Stand for what there is to say before a hard end."""
