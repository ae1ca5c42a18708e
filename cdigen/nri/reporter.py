"""``Reporter``: logs the events of the link and updates the status of the plugin."""

from __future__ import annotations

import os

from cdigen import page_url
from cdigen.nri import events
from cdigen.nri.decision.audit import audit
from cdigen.nri.decision.limits import existing_devices
from cdigen.nri.pods import shorten
from cdigen.nri.status import CONNECTING, MAX_UNINJECTED, REGISTERED, REGISTERING
from cdigen.nri.wire.session import InvalidCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.decision.audit import AuditResult
    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.events import Event
    from cdigen.nri.plugin_config import NriPluginConfig
    from cdigen.nri.status import PluginStatus
    from cdigen.service.process.buffered_log import BufferedLogger

_MAX_PLUGINS = 100
_DRIVER_HINT = (
    "set 'nri: nodes_without_driver: files', or let the device plugin request CDI devices "
    "(DEVICE_LIST_STRATEGY=cdi-cri)"
)
_DEREGISTRATION_FAILED = (
    "the runtime may refuse to create the next container, even if the container requests no device"
)


class Reporter:
    """Writes the events of the link to STATUS and LOG; CONFIG returns the plugin's configuration."""

    def __init__(
        self, status: PluginStatus, log: BufferedLogger, config: Callable[[], NriPluginConfig]
    ) -> None:
        self._status = status
        self._log = log
        self._config = config
        self._last_loss = ""
        # The other plugins for which a warning was logged since the last Configure.
        self._warned: set[str] = set()

    def take(self, event: Event, context: DecisionContext | None) -> bool:
        """Process EVENT; return whether the plugin became active or lost the connection.

        CONTEXT is the state of the host for the audit of existing containers.
        """
        match event:
            case events.ContainerDecided():
                self._status.add_container(event)
                self._log_decided(event)
            case events.Synchronized():
                if context is not None:
                    self._report_audit(audit(event.parts, context, is_complete=event.is_complete))
            case events.RuntimeConfigured():
                self._configure(event)
            case events.PluginsChanged():
                self._note_plugins(event.plugins)
            case events.PluginActive():
                self._status.set_state(REGISTERED)
                self._last_loss = ""
                self._log.info("registered", runtime=self._status.runtime)
            case events.ConnectionLost():
                self._disconnect(event)
            case events.ContainerRejected() | events.DeregistrationFailed() | InvalidCall():
                self._warn(event)
        return isinstance(event, events.PluginActive | events.ConnectionLost)

    def _warn(self, event: events.ContainerRejected | events.DeregistrationFailed | InvalidCall) -> None:
        match event:
            case events.ContainerRejected():
                by = {"plugin": event.plugin} if event.plugin else {}
                self._log.warning("rejected", **event.name.row(), **by, reason=event.reason)
            case events.DeregistrationFailed():
                self._log.warning(
                    "deregistration_failed", message=_DEREGISTRATION_FAILED, reason=event.reason
                )
            case InvalidCall():
                self._log.warning("unsupported_call", method=event.method, message=event.message)

    def _log_decided(self, event: events.ContainerDecided) -> None:
        result = event.result
        facts: dict[str, object] = {**event.name.row(), "ms": round(event.duration_s * 1000, 2)}
        if result.devices:
            facts["devices"] = ",".join(result.devices[:16])
        if result.ignored_requests:
            facts["ignored_requests"] = [ignored.text for ignored in result.ignored_requests]
        if result.outcome == "refuse":
            self._log.warning("refused", **facts, cause=result.cause, reason=result.reason)
        elif any(ignored.cause == "nodes_without_driver" for ignored in result.ignored_requests):
            self._log.warning("driver_files_missing", **facts, hint=_DRIVER_HINT)
        elif result.outcome == "inject":
            self._log.info("injected", **facts)
        elif any(ignored.cause == "request_cancelled" for ignored in result.ignored_requests):
            self._log.info("request_cancelled", **facts)
        else:
            self._log.debug(result.outcome, **facts)

    def _configure(self, event: events.RuntimeConfigured) -> None:
        abilities = event.abilities
        self._status.abilities = abilities
        self._status.set_state(REGISTERING)
        if event.runtime.config:
            self._log.warning(
                "configuration",
                message="the plugin does not read the configuration of the runtime (/etc/nri/conf.d)",
                hint="write the settings into /etc/cdigen/config.yaml",
            )
        if abilities.cdi != "injects":
            self._log.warning(
                "runtime",
                message=f"{self._status.runtime} injects no CDI devices of NRI plugins "
                f"(behaviour: {abilities.cdi})",
                hint=abilities.remedy,
                policy=self._config().settings.nri.unsupported_cdi,
            )
        self._warned = set()
        folder = self._config().plugin_dir
        self._warn_of_conflicts(_names_in(folder), f"is in {folder}")

    def _note_plugins(self, plugins: tuple[str, ...]) -> None:
        self._log.info("plugins", names=[shorten(name) for name in plugins[:_MAX_PLUGINS]])
        self._warn_of_conflicts(plugins, "is registered as well")

    def _warn_of_conflicts(self, plugins: tuple[str, ...], where: str) -> None:
        """Log a warning for each of PLUGINS that reads the same annotations as cdigen, once per Configure.

        WHERE is a part of the message.
        """
        for name, reader in existing_devices.conflicting_plugins(
            plugins, self._config().settings.nri.annotations
        ):
            if name in self._warned:
                continue
            self._warned.add(name)
            self._log.warning(
                "plugin_conflict",
                message=f"the plugin {name}, which {where}, also reads the annotations of {reader}: "
                "a container does not start if both plugins inject the same device",
                hint=f"remove {reader} from 'nri: annotations', or stop the other plugin "
                f"({page_url('how-to/kubernetes/visible-devices')})",
            )

    def _report_audit(self, found: AuditResult) -> None:
        self._status.injected.add_existing(found.injected)
        self._status.set_audit(found)
        for container in found.uninjected[:MAX_UNINJECTED]:
            self._log.warning(
                "uninjected_container",
                **container.name.row(),
                devices=",".join(container.devices),
                reason=container.reason,
                hint="kubectl delete pod POD",
            )
        if len(found.uninjected) > MAX_UNINJECTED:
            self._log.warning("uninjected_container", more=len(found.uninjected) - MAX_UNINJECTED)
        if not found.is_complete:
            self._log.warning("uninjected_container", message="the audit did not read all containers")
        for name in found.foreign_annotations:
            self._log.warning(
                "plugin_conflict",
                message=f"another plugin has injected devices for the annotation {name}",
                hint="remove the entry for this annotation from 'nri: annotations', or stop the other plugin",
            )

    def _disconnect(self, event: events.ConnectionLost) -> None:
        self._status.set_state(CONNECTING, event.reason)
        if event.reason != self._last_loss:
            if event.was_active or not self._last_loss:
                self._log.warning("not_registered", reason=event.reason)
            else:
                self._log.info("not_registered", reason=event.reason)
        self._last_loss = event.reason


def _names_in(folder: str) -> tuple[str, ...]:
    try:
        return tuple(os.listdir(folder))
    except OSError:
        return ()
