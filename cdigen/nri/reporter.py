"""What is said and shown of what the link tells: ``Reporter``, which fills the board and writes the log."""

from __future__ import annotations

import os

from cdigen.nri import events, status
from cdigen.nri.decision import existing_devices
from cdigen.nri.decision.audit import Audit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.frontend.earlylog import EarlyLog
    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.events import Event
    from cdigen.nri.plugin_config import PluginConfig
    from cdigen.nri.shared_state import SharedState
    from cdigen.nri.status import PluginStatus


_MAX_PLUGINS = 100
_NO_DRIVER = (
    "who gave it nodes of GPUs gave no driver: let the device plugin give CDI devices "
    "(DEVICE_LIST_STRATEGY=cdi-cri)"
)


class Reporter:
    """Puts what the link leaves on DESK onto BOARD and into LOG; SETUP returns the plugin's setup."""

    def __init__(
        self, board: PluginStatus, desk: SharedState, log: EarlyLog, setup: Callable[[], PluginConfig]
    ) -> None:
        self._board = board
        self._desk = desk
        self._log = log
        self._setup = setup
        self._audit = Audit()
        self._last_loss = ""
        # Other plugins of which was warned since the runtime introduced itself.
        self._warned: set[str] = set()

    def take(self, told: Event, known: DecisionContext | None) -> bool:
        """Take what the link TOLD, judged by what is KNOWN of the host; returns whether the state is new."""
        match told:
            case events.ContainerDecided():
                self._board.decided(told)
                self._say(told)
            case events.Synchronized():
                self._survey(told, known)
            case events.RuntimeConfigured():
                self._introduce(told)
            case events.PluginsChanged():
                self._meet(told.plugins)
            case events.PluginActive():
                self._board.stand(status.REGISTERED)
                self._last_loss = ""
                self._log.info("registered", runtime=self._board.runtime)
            case events.ConnectionLost():
                self._lose(told)
            case events.Validated():
                self._log.warning("rejected", **_named(told), reason=told.reason)
            case events.CallRefused():
                self._log.warning("call refused", method=told.method, message=told.message)
        return isinstance(told, events.PluginActive | events.ConnectionLost)

    def _say(self, told: events.ContainerDecided) -> None:
        made = told.answer
        facts = {**_named(told), "ms": round(told.duration_s * 1000, 2)}
        if made.devices:
            facts["devices"] = ",".join(made.devices[:16])
        if made.notes:
            facts["notes"] = [note.text for note in made.notes]
        if made.outcome == "refuse":
            self._log.warning("refused", **facts, cause=made.cause, reason=made.reason)
        elif any(note.cause == "nodes_without_driver" for note in made.notes):
            self._log.warning("no driver", **facts, hint=_NO_DRIVER)
        elif made.outcome == "inject":
            self._log.info("injected", **facts)
        elif any(note.cause == "overruled" for note in made.notes):
            self._log.info("overruled", **facts)
        else:
            self._log.debug(made.outcome, **facts)

    def _introduce(self, told: events.RuntimeConfigured) -> None:
        able = told.abilities
        self._board.abilities = able
        self._board.stand(status.REGISTERING)
        if told.configuration.config:
            self._log.warning(
                "configuration",
                message="what the runtime gives as configuration (/etc/nri/conf.d) is not read",
                hint="write it into /etc/cdigen/config.yaml",
            )
        if able.cdi != "injects":
            self._log.warning(
                "runtime",
                message=f"{self._board.runtime} does not inject CDI devices of NRI plugins ({able.cdi})",
                hint=able.remedy,
                policy=self._setup().settings.nri.unsupported_cdi,
            )
        self._warned = set()
        self._warn_of(_names_in(self._setup().plugin_dir), f"lies in {self._setup().plugin_dir}")

    def _meet(self, plugins: tuple[str, ...]) -> None:
        self._log.info("plugins", names=[events.shorten(name) for name in plugins[:_MAX_PLUGINS]])
        self._warn_of(plugins, "is registered as well")

    def _warn_of(self, plugins: tuple[str, ...], where: str) -> None:
        """Warn of those of PLUGINS that give what we give, once while the runtime is there."""
        for name, reader in existing_devices.other_injectors(plugins, self._setup().settings.nri.annotations):
            if name in self._warned:
                continue
            self._warned.add(name)
            self._log.warning(
                "other injector",
                message=f"the plugin {name}, which {where}, reads the annotations of {reader} as well: a "
                "device that both give stops the container",
                hint=f"take {reader} out of 'nri: annotations', or end the other plugin (docs/nri.md)",
            )

    def _survey(self, told: events.Synchronized, known: DecisionContext | None) -> None:
        if told.is_first:
            self._audit = Audit()
        if known is not None:
            self._audit.add(told.part, known)
        self._desk.part_done(told)
        if told.is_last and known is not None:
            self._conclude()

    def _conclude(self) -> None:
        found = self._audit.findings()
        self._audit = Audit()
        self._board.audited(found)
        for one in found.missed[: status.MAX_MISSED]:
            self._log.warning(
                "missed",
                namespace=one.namespace,
                pod=one.pod,
                container=one.container,
                devices=",".join(one.devices),
                reason=one.reason,
                hint="delete the pod, so that its containers are created anew",
            )
        if len(found.missed) > status.MAX_MISSED:
            self._log.warning("missed", more=len(found.missed) - status.MAX_MISSED)
        if not found.is_complete:
            self._log.warning("missed", message="not all containers could be looked at")
        for name in found.foreign:
            self._log.warning(
                "other injector",
                message=f"another plugin has served the annotation {name}",
                hint="take whose annotation it is out of 'nri: annotations', or end the other plugin",
            )

    def _lose(self, told: events.ConnectionLost) -> None:
        self._board.stand(status.CONNECTING, told.reason)
        if told.reason != self._last_loss:
            say = self._log.warning if told.was_accepted or not self._last_loss else self._log.info
            say("not registered", reason=told.reason)
        self._last_loss = told.reason


def _named(told: events.ContainerDecided | events.Validated) -> dict[str, object]:
    return {"namespace": told.who.namespace, "pod": told.who.pod, "container": told.who.container}


def _names_in(folder: str) -> tuple[str, ...]:
    try:
        return tuple(os.listdir(folder))
    except OSError:
        return ()
