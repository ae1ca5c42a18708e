"""The process: ``Plugin``.

The main thread, here, does all that takes time: it reads configuration, specs and inventory when they have
changed, makes the resources of them, writes log and status, and serves HTTP. The ``link`` serves the kubelet
in a thread of its own. What HTTP needs is imported after the registration, which would otherwise wait for it.
"""

from __future__ import annotations

import gc
import os
import sys
import time

from cdigen import __version__
from cdigen.config import RULE
from cdigen.frontend.chassis import Chassis
from cdigen.frontend.descriptors import MessageError
from cdigen.frontend.host_state import read_host_state, watched_paths
from cdigen.frontend.rundir import STATUS_FILE, save_status
from cdigen.kubelet.labels.keeper import LabelFile
from cdigen.kubelet.link import Link
from cdigen.kubelet.listing import listing_of
from cdigen.kubelet.news import News
from cdigen.kubelet.plugin_config import fixed, identities, refuse_emptied
from cdigen.kubelet.sockets import KUBELET, OURS, plugins_folder
from cdigen.model.errors import CdigenError, ConfigError
from cdigen.model.findings import Finding, errors
from cdigen.watch.debounce import Debounce
from cdigen.watch.files import FileSource
from cdigen.watch.triggers import Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from cdigen.frontend.host_state import HostState
    from cdigen.frontend.rundir import Logger
    from cdigen.frontend.sd_notify import Notifier
    from cdigen.frontend.signals import Signals
    from cdigen.kubelet.interface import Offering
    from cdigen.kubelet.listing import Listing, ResourceStatus
    from cdigen.kubelet.plugin_config import PluginConfig
    from cdigen.kubelet.pods import PodList
    from cdigen.kubelet.resources.model import Resource
    from cdigen.kubelet.wire.server import Answers

# The release of the CDI library by which devices count: the oldest in a containerd that Kubernetes supports.
LIBRARY = "1.0.1"
# The daemon replaces several files after a change; the kubelet has the list within a second.
QUIET = Debounce(debounce_s=0.05, max_delay_s=0.3)
# For what makes no event: another driver runs, the daemon has ended.
RESYNC_S = 30.0
# What containers have is asked again after each answer; this is for what has ended.
PODS_S = 60.0
# How long the rest of the start waits for the registration, which it would slow down.
REGISTER_FIRST_S = 0.5
# The kubelet tells of a container's devices when it has stored our answer; others follow within a second, and
# a busy kubelet may take longer.
_ASK_AFTER_S = 0.7
_ASK_AGAIN_S = 5.0
# Status is written at most so often.
_SAVE_S = 0.25
# A full disk says nothing when it has room again.
_SAVE_AGAIN_S = 5.0
# A reading so soon after a change that file times cannot show the next one is repeated.
_UNSETTLED_S = 1.0
# The interpreter gives the link's thread its turn so soon, where the main thread computes.
_SWITCH_S = 0.0005
_SILENT_S = 30.0


class Plugin:
    """Offers to the kubelet what is made of the host, until it is told to stop.

    LOAD reads configuration and command line, or raises a CdigenError; it is told whether this is the first
    time. OFFERING begins, by a configuration, what makes resources of the host; only who serves the kubelet
    calls it.
    """

    def __init__(
        self,
        load: Callable[[bool], PluginConfig],
        offering: Callable[[PluginConfig], Offering],
        *,
        notifier: Notifier,
        logger: Logger,
        signals: Signals,
    ) -> None:
        self._load = load
        self._config = config = load(True)  # noqa: FBT003 - its own signature
        self._watched = config.watched
        self._files_read = identities(self._watched)
        self._make_offering = offering
        self._offering: Offering
        self._log = logger
        self._news = News(logger)
        self._labels = LabelFile(self._news.labels)
        self._chassis = Chassis(config.run_dir, notifier=notifier, logger=logger, signals=signals)
        self._chassis.alive = self._alive
        self._link = Link(
            plugins_folder(config.kubelet_dir),
            f"{config.kubelet_dir}/pod-resources/{KUBELET}",
            notify=lambda: self._wake("link"),
            log=lambda resource, message: logger.error("answer", resource=resource, message=message),
        )
        self._files = FileSource()
        self._host: HostState | None = None
        self._listings: dict[str, Listing] = {}
        self._problems: dict[str, str] = {}
        self._misconfigured: tuple[Finding, ...] = ()
        self._look_s = self._pods_s = self._save_s = self._shown_s = 0.0
        self._saved: Mapping[str, Any] = {}
        # Whether the main thread knows of an answer about which it has not asked yet.
        self._is_noted = False

    def run(self, *, stands_by: bool = False) -> None:
        """Run until SIGTERM or SIGINT. ``LockHeld``: another instance runs.

        STANDS_BY: where another runs, wait until that ends.
        """
        sys.setswitchinterval(_SWITCH_S)
        with self._chassis.running(stand_by=self._prepare if stands_by else None):
            if not self._chassis.is_stopping:
                self._offering = self._make_offering(self._config)
                try:
                    self._serve()
                finally:
                    self._chassis.leave()
                    self._link.stop()
                    self._offering.stop()

    def _serve(self) -> None:
        self._offering.connect(self._link.pods, self._note_answer)
        self._log.info("started", version=__version__, kubelet_dir=self._config.kubelet_dir)
        self._link.start()
        if self._config.problem:
            self._misconfigure(f"nothing is offered: {self._config.problem}")
        self._take_config()
        if self._chassis.has_stood_by and identities(self._watched) != self._files_read:
            self._reload()
        self._read_host()
        self._report()
        self._await_registration()
        self._begin()
        self._loop()

    def _prepare(self) -> None:
        """Import what the registration needs, by a look at the host."""
        read_host_state(self._config.sources, library=LIBRARY)

    def _await_registration(self) -> None:
        until_s = time.monotonic() + REGISTER_FIRST_S
        while self._is_registering() and not self._chassis.is_stopping and time.monotonic() < until_s:
            if self._chassis.inbox.wait(until_s - time.monotonic()):
                self._chassis.inbox.take()

    def _is_registering(self) -> bool:
        """Return whether the registration of a resource is under way, and not waiting for anything."""
        states = {status.resource: status.state for status in self._link.statuses()}
        return any(states.get(name, "serving") in {"serving", "registering"} for name in self._listings)

    def _begin(self) -> None:
        """Begin what can wait until the kubelet is served: the sources of events, and HTTP."""
        from cdigen.frontend.http import SOCKET_FILE, Server, standard_routes  # noqa: PLC0415 - see the head

        routes = standard_routes(
            metrics=self._offering.metrics(), alive=self._alive, ready=self._offering.reason_unready
        )
        port = self._config.settings.http_port
        self._watch()
        self._chassis.start(self._files, Server(routes, f"{self._config.run_dir}/{SOCKET_FILE}", port=port))
        # What has changed since the host was read made no event; for the kubelet the link looks by itself.
        self._link.look()
        # All that is there now stays: the collector need not go through it again, which takes milliseconds.
        gc.collect()
        gc.freeze()

    # The loop.

    def _loop(self) -> None:
        is_woken = True
        while not self._chassis.is_stopping:
            due_s = min(self._look_s, self._pods_s, self._save_s)
            # The chassis looks after the sources more often than there is anything to do here.
            if is_woken or time.monotonic() >= due_s:
                self._turn()
                due_s = min(self._look_s, self._pods_s, self._save_s)
            is_woken = self._chassis.wait(due_s)
            if is_woken:
                self._take_triggers()

    def _turn(self) -> None:
        is_reload = self._chassis.take_reload()
        is_other = is_reload or identities(self._watched) != self._files_read
        if is_other:
            self._reload()
        if is_other or self._host is None or self._host.has_changed() or self._offering.has_changed():
            self._watch()
            self._read_host()
        now = time.monotonic()
        if now >= self._look_s:
            self._look_s = now + RESYNC_S
        if self._is_noted:
            self._pods_s = min(self._pods_s, now + _ASK_AFTER_S)
        if now >= self._pods_s:
            self._pods_s = now + (_ASK_AGAIN_S if self._is_noted else PODS_S)
            self._is_noted = False
            self._link.ask_pods(self._take_pods)
        self._keep_labels()
        self._report()

    def _keep_labels(self) -> None:
        path = self._config.labels
        self._offering.set_labels(self._labels.keep(path, self._offering.labels() if path else None))

    def _wake(self, source: str) -> None:
        self._chassis.inbox.put(Trigger(source=source, reason="the kubelet"))

    def _note_answer(self) -> None:
        """Wake the main thread for the first of several answers: it would only be in their way."""
        if not self._is_noted:
            self._is_noted = True
            self._wake("answer")

    def _take_triggers(self) -> None:
        """Let the link look at once if files have changed; where they are the host's, wait for the others."""
        inbox = self._chassis.inbox
        if "files" in {trigger.source for trigger in inbox.peek().triggers}:
            self._link.look()
            is_other = identities(self._watched) != self._files_read
            if is_other or self._host is None or self._host.has_changed():
                self._chassis.gather(QUIET)
                # What came while it was quiet may have been the kubelet.
                self._link.look()
                return
        inbox.take()

    def _take_pods(self, found: PodList | str) -> None:
        """Take what containers have, or why the kubelet does not tell; in the link's thread."""
        self._offering.set_pods(None if isinstance(found, str) else found)
        self._wake("pods")

    def _watch(self) -> None:
        sources, folder = self._config.sources, self._link.folder
        ours = (f"{folder}/{KUBELET}", f"{folder}/{OURS}", *filter(None, (self._config.labels,)))
        roots = tuple({sources.specs, sources.runs} - {"/"})
        self._files.rearm(
            (*watched_paths(sources), *self._watched, *ours, self._chassis.run_directory.lock),
            roots=roots,
        )

    def _read_host(self) -> None:
        """Offer what the host has now; where that cannot be told, what was offered before."""
        self._host = read_host_state(self._config.sources, library=LIBRARY, before=self._host)
        self._look_s = time.monotonic() + (RESYNC_S if self._host.is_settled else _UNSETTLED_S)
        try:
            found = self._offering.resources(self._host)
            found = None if found is None else tuple(found)
        except Exception as error:  # noqa: BLE001 - what is offered goes on
            self._log.error("resources", message=f"{type(error).__name__}: {error}")
            return
        if found is not None:
            self._offer(found)
        self._news.host(self._offering.findings(), self._offering.stale())

    def _offer(self, found: tuple[tuple[Resource, Answers], ...]) -> None:
        listings, problems = {}, {}
        for resource, answers in found:
            try:
                listings[resource.name] = listing_of(resource, answers)
            except MessageError as error:
                problems[resource.name] = str(error)
                if problems[resource.name] != self._problems.get(resource.name):
                    self._log.error("resource", resource=resource.name, message=str(error))
                if resource.name in self._listings:
                    listings[resource.name] = self._listings[resource.name]
        self._listings, self._problems = listings, problems
        self._link.offer(tuple(listings.values()))

    # The configuration.

    def _reload(self) -> None:
        """Read the configuration again; one that is wrong changes nothing, and is reported."""
        before, self._files_read = self._config, identities(self._watched)
        try:
            config = self._load(False)  # noqa: FBT003 - its own signature
            if config.watched != self._watched:
                # Also those of a configuration that does not count as long as one of them is wrong.
                self._watched, self._files_read = config.watched, identities(config.watched)
            if wrong := errors(config.findings):
                raise ConfigError(wrong[0].message, hint=wrong[0].hint)
            refuse_emptied(before, config)
        except CdigenError as error:
            counts = "nothing is offered" if before.problem else "the last good one does"
            self._misconfigure(f"the configuration does not count, {counts}: {error.message}", error.hint)
            self._offering.configure(before, (*self._misconfigured, *before.findings))
            return
        if (changed := fixed(config)) != fixed(before):
            self._log.warning("configuration", message="takes effect at the next start", fixed=changed)
        self._config, self._misconfigured = config, ()
        self._take_config()

    def _take_config(self) -> None:
        self._offering.configure(self._config, (*self._misconfigured, *self._config.findings))
        self._news.configuration(self._config.findings)

    def _misconfigure(self, message: str, hint: str = "") -> None:
        path = self._config.watched[0]
        problems = (Finding(severity="error", rule=RULE, path=path, message=message, hint=hint),)
        if problems != self._misconfigured:
            self._log.error("configuration", message=message, hint=hint)
        self._misconfigured = problems

    # What others are told.

    def _report(self) -> None:
        statuses = self._link.statuses()
        self._news.registrations(statuses)
        self._news.answers(self._offering.answers())
        self._offering.set_statuses(statuses, self._problems)
        self._save()
        self._chassis.report(summary(statuses))

    def _save(self) -> None:
        now = time.monotonic()
        if now - self._shown_s < _SAVE_S:
            self._save_s = self._shown_s + _SAVE_S
            return
        self._shown_s, self._save_s = now, now + RESYNC_S
        found = self._offering.document(self._chassis.process)
        ours = self._chassis.run_directory
        path = f"{os.path.dirname(ours.lock)}/{STATUS_FILE}"
        # Others may have removed it meanwhile.
        if found != self._saved or not ours.is_ours() or not os.path.lexists(path):
            is_saved = self._chassis.save(lambda run_dir: save_status(run_dir, found))
            self._saved = found if is_saved else {}
            self._save_s = now + (RESYNC_S if is_saved else _SAVE_AGAIN_S)

    def _alive(self) -> str:
        """Return why this process is of no use: without its link the service manager starts another."""
        if not self._link.is_running():
            return "the thread that serves the kubelet has ended"
        silent_s = time.monotonic() - self._link.alive_s
        return f"the kubelet has not been served for {silent_s:.0f} s" if silent_s > _SILENT_S else ""


def summary(statuses: Iterable[ResourceStatus]) -> str:
    """Return how the resources are, in one line."""
    parts = [
        f"{status.resource}: {status.healthy} of {status.count}"
        if status.state == "registered"
        else f"{status.resource}: {status.state}{status.reason and f' ({status.reason})'}"
        for status in statuses
    ]
    return ", ".join(parts) or "nothing to offer"
