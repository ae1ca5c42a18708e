"""``KubeletPlugin``: the main thread of the process.

The main thread does all slow work. After changes, the main thread reads the configuration, the specs and the
inventory, and computes the resources. The main thread also writes the log and the status, and starts the HTTP
server. The module ``link`` serves the kubelet in another thread. The modules for HTTP are imported after the
registration, because the import would delay the registration.
"""

from __future__ import annotations

import time

from cdigen import __version__
from cdigen.kubelet.allocation.kubelet_view import PodListTimer
from cdigen.kubelet.labels.label_file import LabelFile
from cdigen.kubelet.plugin_config import active_configuration
from cdigen.kubelet.registration.link import KubeletLink
from cdigen.kubelet.registration.listing import Listings
from cdigen.kubelet.registration.sockets import KUBELET, OURS, plugins_folder
from cdigen.service.host_state import read_host_state, watch_host
from cdigen.service.liveness import freeze_objects, prefer_link
from cdigen.service.runner import ServiceRunner
from cdigen.service.status import StatusWriter
from cdigen.watch.files import FileSource
from cdigen.watch.triggers import Debounce, Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cdigen.kubelet.advertised_resources import AdvertisedResources
    from cdigen.kubelet.allocation.journal import Allocation
    from cdigen.kubelet.plugin_config import KubeletPluginConfig
    from cdigen.kubelet.pods import PodList
    from cdigen.kubelet.registration.listing import ResourceStatus
    from cdigen.kubelet.registration.state_machine import State
    from cdigen.model.findings import Finding
    from cdigen.service.host_state import HostState
    from cdigen.service.process.buffered_log import Logger
    from cdigen.service.process.context import ProcessContext

# The release of the CDI library for which specs must be valid. This is the oldest release in a containerd
# version that Kubernetes supports.
LIBRARY = "1.0.1"
# The daemon replaces several files after a change, so cdigen waits for more changes. The kubelet has the new
# list within 1 s.
QUIET = Debounce(debounce_s=0.05, max_delay_s=0.3)
# Some changes cause no event, for example if another driver is loaded, or if the daemon has ended.
RESYNC_S = 30.0
# The longest time for which HTTP and the watch of files wait for the registration. Their start would delay
# the registration.
REGISTER_FIRST_S = 0.5
# The shortest interval between two writes of the status.
_SAVE_S = 0.25
# If files have changed recently, the host is read again after this time. File times may not show each change.
_UNSETTLED_S = 1.0
# The intermediate states of a registration attempt.
_STEPS = ("serving", "registering", "unconfirmed")
_STALE = "the last known devices stay advertised; 'cdigen status' shows the state of the daemon"


class KubeletPlugin:
    """Advertises the resources of the host to the kubelet until a signal stops the process.

    LOAD reads the configuration and the command line, or raises a CdigenError. The argument of LOAD is True
    at the first call. PROVIDER returns the provider of resources for a configuration. Only the instance with
    the lock calls PROVIDER.
    """

    def __init__(
        self,
        load: Callable[[bool], KubeletPluginConfig],
        provider: Callable[[KubeletPluginConfig], AdvertisedResources],
        context: ProcessContext,
    ) -> None:
        self._log = logger = context.log
        self._configuration = active_configuration(load, logger)
        config = self._config
        self._make_provider = provider
        self._provider: AdvertisedResources
        self._change_log = StatusChangeLogger(logger)
        self._labels = LabelFile(self._change_log.labels)
        self._link = KubeletLink(
            plugins_folder(config.kubelet_dir),
            f"{config.kubelet_dir}/pod-resources/{KUBELET}",
            notify=lambda: self._trigger("link"),
            log=lambda resource, message: logger.error("request_failed", resource=resource, message=message),
        )
        self._runner = ServiceRunner(config.run_dir, context, alive=self._link.problem)
        self._files = FileSource()
        self._host: HostState | None = None
        self._listings = Listings(logger)
        self._status = StatusWriter(
            self._runner.run_directory,
            lambda: self._provider.document(self._runner.process),
            least_s=_SAVE_S,
        )
        self._resync_s = 0.0
        self._pods = PodListTimer()

    def run(self, *, is_standby: bool = False) -> None:
        """Run until SIGTERM or SIGINT.

        If another instance runs and IS_STANDBY is set, wait until that instance ends. If another instance
        runs and IS_STANDBY is not set, raise ``LockHeld``.
        """
        prefer_link()
        with self._runner.running(on_standby=self._prepare if is_standby else None):
            if not self._runner.is_stopping:
                self._provider = self._make_provider(self._config)
                try:
                    self._serve()
                finally:
                    self._runner.leave()
                    self._link.stop()
                    self._provider.stop()

    def _serve(self) -> None:
        self._provider.connect(self._link.pods, self._note_allocation)
        self._log.info("started", version=__version__, kubelet_dir=self._config.kubelet_dir)
        self._link.start()
        # The first list is requested before the registration, because a list during an allocation can make
        # the kubelet lose the allocation.
        self._request_pods(time.monotonic())
        self._configuration.begin("no resource is advertised", self._config.problem)
        if self._runner.was_standby:
            self._configuration.refresh()
        self._apply_config()
        self._read_host()
        self._report()
        self._await_registration()
        self._begin()
        self._loop()

    def _prepare(self) -> None:
        """Read the host once, to import the modules that the registration needs."""
        read_host_state(self._config.sources, library=LIBRARY)

    def _await_registration(self) -> None:
        until_s = time.monotonic() + REGISTER_FIRST_S
        while self._is_registering() and not self._runner.is_stopping and time.monotonic() < until_s:
            if self._runner.triggers.wait(until_s - time.monotonic()):
                self._runner.triggers.take()

    def _is_registering(self) -> bool:
        """Return whether a resource has the state ``serving`` or ``registering``, or has no state yet."""
        states = {status.resource: status.state for status in self._link.statuses()}
        return any(
            states.get(name, "serving") in {"serving", "registering"} for name in self._listings.current
        )

    def _begin(self) -> None:
        """Start the watch of files and the HTTP server, which the registration does not need."""
        from cdigen.service.http.routes import standard_routes  # noqa: PLC0415 - see the module docstring
        from cdigen.service.http.server import local_server  # noqa: PLC0415 - likewise

        routes = standard_routes(
            metrics=self._provider.metrics(), alive=self._runner.alive, ready=self._provider.reason_unready
        )
        port = self._config.settings.http_port
        self._watch()
        self._runner.start(self._files, local_server(routes, self._config.run_dir, port))
        # Changes before the start of the watch caused no event, so the link reads the folder again.
        self._link.check_folder()
        freeze_objects()

    # The loop.

    def _loop(self) -> None:
        is_woken = True
        while not self._runner.is_stopping:
            # The runner also returns if this loop has nothing to do.
            if is_woken or time.monotonic() >= self._due_s():
                self._turn()
            is_woken = self._runner.wait(self._due_s())
            if is_woken:
                self._take_triggers()

    def _due_s(self) -> float:
        return min(self._resync_s, self._pods.due_s, self._status.due_s)

    def _turn(self) -> None:
        is_read = self._configuration.refresh(is_reload=self._runner.take_reload())
        if is_read:
            self._apply_config()
        if is_read or self._host is None or self._host.has_changed() or self._provider.has_changed():
            self._watch()
            self._read_host()
        now = time.monotonic()
        if now >= self._resync_s:
            self._resync_s = now + RESYNC_S
        self._request_pods(now)
        self._update_labels()
        self._report()

    def _request_pods(self, now: float) -> None:
        view = self._provider.kubelet
        if self._pods.is_due(now, view.requested_s, has_claims=bool(view.last_known_claims)):
            self._link.request_pods(self._set_pods)

    def _update_labels(self) -> None:
        path = self._config.labels
        self._provider.set_labels(self._labels.update(path, self._provider.labels() if path else None))

    def _trigger(self, source: str) -> None:
        self._runner.triggers.put(Trigger(source=source, reason="the kubelet"))

    def _note_allocation(self) -> None:
        """Wake the main thread once for several allocations, because a wake-up delays later allocations."""
        if self._pods.allocated():
            self._trigger("allocation")

    def _take_triggers(self) -> None:
        """If files have changed, let the link read its folder, and wait for more changes of the host."""
        triggers = self._runner.triggers
        if "files" in {trigger.source for trigger in triggers.peek().triggers}:
            self._link.check_folder()
            if self._configuration.has_changed() or self._host is None or self._host.has_changed():
                self._runner.gather(QUIET)
                # The kubelet may have changed its folder during the wait.
                self._link.check_folder()
                return
        triggers.take()

    def _set_pods(self, found: PodList | str) -> None:
        """Pass the list of pods to the provider, or None after an error; runs in the link's thread."""
        self._provider.kubelet.set_pods(None if isinstance(found, str) else found)
        self._trigger("pods")

    def _watch(self) -> None:
        folder = self._link.folder
        ours = (f"{folder}/{KUBELET}", f"{folder}/{OURS}", *filter(None, (self._config.labels,)))
        watched = (*self._configuration.watched, *ours, self._runner.run_directory.lock)
        watch_host(self._files, self._config.sources, *watched)

    def _read_host(self) -> None:
        """Advertise the present resources of the host; if they are unknown, keep the former resources."""
        self._host = read_host_state(self._config.sources, library=LIBRARY, before=self._host)
        self._resync_s = time.monotonic() + (RESYNC_S if self._host.is_settled else _UNSETTLED_S)
        try:
            found = self._provider.resources(self._host)
        except Exception as error:  # noqa: BLE001 - the former resources stay advertised
            self._log.error("resources", message=f"{type(error).__name__}: {error}")
            return
        if found is not None:
            self._link.advertise(self._listings.update(found))
        self._change_log.host(self._provider.findings(), self._provider.stale())

    # The configuration.

    @property
    def _config(self) -> KubeletPluginConfig:
        return self._configuration.current

    def _apply_config(self) -> None:
        self._provider.configure(self._config, self._configuration.findings)

    # Status and log.

    def _report(self) -> None:
        statuses = self._link.statuses()
        self._change_log.registrations(statuses)
        self._change_log.allocations(self._provider.journal.new_allocations())
        self._provider.set_statuses(statuses, self._listings.problems)
        self._status.update()
        self._runner.report(summary(statuses))


class StatusChangeLogger:
    """Logs each change of the status once, by LOGGER."""

    def __init__(self, logger: Logger) -> None:
        self._log = logger
        self._host: frozenset[Finding] = frozenset()
        self._stale: tuple[str, ...] = ()
        self._registrations: dict[str, tuple[State | None, str]] = {}

    def host(self, findings: Iterable[Finding], stale: tuple[str, ...]) -> None:
        """Log new FINDINGS on devices and specs, and changes of STALE.

        STALE are the reasons why the last known state of the host is used instead of the present state.
        """
        found = dict.fromkeys(findings)
        for one in found:
            if one not in self._host:
                log = getattr(self._log, one.severity)
                log("finding", rule=one.rule, path=one.path, message=one.message, hint=one.hint)
        self._host = frozenset(found)
        if stale and stale != self._stale:
            self._log.warning("stale", message="; ".join(stale), hint=_STALE)
        elif self._stale and not stale:
            self._log.info("stale", message="the inventory is current again")
        self._stale = stale

    def registrations(self, statuses: Iterable[ResourceStatus]) -> None:
        """Log changes of STATUSES; log repeated failures of a registration once."""
        logged, self._registrations = self._registrations, {}
        for one in statuses:
            before, now = logged.get(one.resource, (None, "")), (one.state, one.reason)
            is_new = now != before and (one.state not in _STEPS or one.reason != before[1])
            self._registrations[one.resource] = now if is_new else before
            if is_new:
                log = self._log.warning if one.state == "claimed-by-other" else self._log.info
                log("registration", resource=one.resource, state=one.state, reason=one.reason)

    def labels(self, level: str, message: str, hint: str) -> None:
        """Log the state of the file of node labels."""
        getattr(self._log, level)("labels", message=message, hint=hint)

    def allocations(self, answers: Iterable[Allocation]) -> None:
        """Log refusals as warnings, and allocations at the debug level."""
        for one in answers:
            if one.cause:
                self._log.warning(
                    "refused", resource=one.resource, devices=one.ids, cause=one.cause, reason=one.reason
                )
            else:
                self._log.debug("allocated", resource=one.resource, devices=one.ids, names=one.names)


def summary(statuses: Iterable[ResourceStatus]) -> str:
    """Return the states of the resources in one line."""
    parts = [
        f"{status.resource}: {status.healthy} of {status.count}"
        if status.state == "registered"
        else f"{status.resource}: {status.state}{status.reason and f' ({status.reason})'}"
        for status in statuses
    ]
    return ", ".join(parts) or "no resources"
