"""``Reporter`` logs the events of the link and keeps the plugin's status up to date."""

from __future__ import annotations

import os

from cdigen.nri import events
from cdigen.nri.decision import existing_devices
from cdigen.nri.decision.audit import audit
from cdigen.nri.pods import shorten
from cdigen.nri.status import CONNECTING, MAX_MISSED, REGISTERED, REGISTERING
from cdigen.nri.wire.session import InvalidCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.frontend.earlylog import EarlyLog
    from cdigen.nri.decision.audit import AuditResult
    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.events import Event
    from cdigen.nri.plugin_config import PluginConfig
    from cdigen.nri.status import PluginStatus

_MAX_PLUGINS = 100
_NO_DRIVER = (
    "its GPU nodes came without the driver: 'nri: nodes_without_driver: files' gives it, "
    "and so does a device plugin that asks for CDI devices (DEVICE_LIST_STRATEGY=cdi-cri)"
)

_NOT_WITHDRAWN = "the runtime may still refuse the next container, whatever it asks for, once"


class Reporter:
    """Takes the events of the link into STATUS and LOG; CONFIG returns the plugin's configuration."""

    def __init__(self, status: PluginStatus, log: EarlyLog, config: Callable[[], PluginConfig]) -> None:
        self._status = status
        self._log = log
        self._config = config
        self._last_loss = ""
        # Other plugins of which a warning was logged since the runtime was configured.
        self._warned: set[str] = set()

    def take(self, event: Event, context: DecisionContext | None) -> bool:
        """Take EVENT, judged by CONTEXT; returns whether a connection was made or lost."""
        match event:
            case events.ContainerDecided():
                self._status.add_container(event)
                self._log_answer(event)
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
            case events.Validated() | events.NotWithdrawn() | InvalidCall():
                self._warn(event)
        return isinstance(event, events.PluginActive | events.ConnectionLost)

    def _warn(self, event: events.Validated | events.NotWithdrawn | InvalidCall) -> None:
        match event:
            case events.Validated():
                by = {"plugin": event.plugin} if event.plugin else {}
                self._log.warning("rejected", **event.name.row(), **by, reason=event.reason)
            case events.NotWithdrawn():
                self._log.warning("not withdrawn", message=_NOT_WITHDRAWN, reason=event.reason)
            case InvalidCall():
                self._log.warning("call refused", method=event.method, message=event.message)

    def _log_answer(self, event: events.ContainerDecided) -> None:
        answer = event.answer
        facts: dict[str, object] = {**event.name.row(), "ms": round(event.duration_s * 1000, 2)}
        if answer.devices:
            facts["devices"] = ",".join(answer.devices[:16])
        if answer.notes:
            facts["notes"] = [note.text for note in answer.notes]
        if answer.outcome == "refuse":
            self._log.warning("refused", **facts, cause=answer.cause, reason=answer.reason)
        elif any(note.cause == "nodes_without_driver" for note in answer.notes):
            self._log.warning("no driver", **facts, hint=_NO_DRIVER)
        elif answer.outcome == "inject":
            self._log.info("injected", **facts)
        elif any(note.cause == "overruled" for note in answer.notes):
            self._log.info("overruled", **facts)
        else:
            self._log.debug(answer.outcome, **facts)

    def _configure(self, event: events.RuntimeConfigured) -> None:
        able = event.abilities
        self._status.abilities = able
        self._status.set_state(REGISTERING)
        if event.runtime.config:
            self._log.warning(
                "configuration",
                message="what the runtime gives as configuration (/etc/nri/conf.d) is not read",
                hint="write it into /etc/cdigen/config.yaml",
            )
        if able.cdi != "injects":
            self._log.warning(
                "runtime",
                message=f"{self._status.runtime} does not inject CDI devices of NRI plugins ({able.cdi})",
                hint=able.remedy,
                policy=self._config().settings.nri.unsupported_cdi,
            )
        self._warned = set()
        self._warn_of(_names_in(self._config().plugin_dir), f"lies in {self._config().plugin_dir}")

    def _note_plugins(self, plugins: tuple[str, ...]) -> None:
        self._log.info("plugins", names=[shorten(name) for name in plugins[:_MAX_PLUGINS]])
        self._warn_of(plugins, "is registered as well")

    def _warn_of(self, plugins: tuple[str, ...], where: str) -> None:
        """Warn of those of PLUGINS that give what we give, once while the runtime is there."""
        for name, reader in existing_devices.other_injectors(
            plugins, self._config().settings.nri.annotations
        ):
            if name in self._warned:
                continue
            self._warned.add(name)
            self._log.warning(
                "other injector",
                message=f"the plugin {name}, which {where}, reads the annotations of {reader} as well: a "
                "device that both give stops the container",
                hint=f"take {reader} out of 'nri: annotations', or end the other plugin (docs/nri.md)",
            )

    def _report_audit(self, found: AuditResult) -> None:
        self._status.book.add(found.given)
        self._status.set_audit(found)
        for one in found.missed[:MAX_MISSED]:
            self._log.warning(
                "missed",
                **one.name.row(),
                devices=",".join(one.devices),
                reason=one.reason,
                hint="delete the pod, so that its containers are created anew",
            )
        if len(found.missed) > MAX_MISSED:
            self._log.warning("missed", more=len(found.missed) - MAX_MISSED)
        if not found.is_complete:
            self._log.warning("missed", message="not all containers could be looked at")
        for name in found.foreign:
            self._log.warning(
                "other injector",
                message=f"another plugin has served the annotation {name}",
                hint="take whose annotation it is out of 'nri: annotations', or end the other plugin",
            )

    def _disconnect(self, event: events.ConnectionLost) -> None:
        self._status.set_state(CONNECTING, event.reason)
        if event.reason != self._last_loss:
            say = self._log.warning if event.was_active or not self._last_loss else self._log.info
            say("not registered", reason=event.reason)
        self._last_loss = event.reason


def _names_in(folder: str) -> tuple[str, ...]:
    try:
        return tuple(os.listdir(folder))
    except OSError:
        return ()
