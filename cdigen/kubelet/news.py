"""What the process logs: ``News``, which says each thing when it begins, and not again while it lasts."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.frontend.rundir import Logger
    from cdigen.kubelet.journal import Allocation
    from cdigen.kubelet.listing import ResourceStatus
    from cdigen.kubelet.registration import State
    from cdigen.model.findings import Finding

# States on the way of a try to register.
_STEPS = ("serving", "registering", "unproven")
_STALE = "devices are offered as they were last known; 'cdigen status' says how the daemon is"


class News:
    """Writes to LOGGER what is new."""

    def __init__(self, logger: Logger) -> None:
        self._log = logger
        self._configuration: tuple[Finding, ...] = ()
        self._host: frozenset[Finding] = frozenset()
        self._stale: tuple[str, ...] = ()
        self._registrations: dict[str, tuple[State | None, str]] = {}

    def configuration(self, findings: tuple[Finding, ...]) -> None:
        """Say FINDINGS on the files that are read beside the configuration."""
        for one in findings:
            if one not in self._configuration:
                getattr(self._log, one.severity)("configuration", message=one.message, hint=one.hint)
        self._configuration = findings

    def host(self, findings: Iterable[Finding], stale: tuple[str, ...]) -> None:
        """Say FINDINGS on devices and specs, and why it is their last known state that counts: STALE."""
        found = dict.fromkeys(findings)
        for one in found:
            if one not in self._host:
                say = getattr(self._log, one.severity)
                say("finding", rule=one.rule, path=one.path, message=one.message, hint=one.hint)
        self._host = frozenset(found)
        if stale and stale != self._stale:
            self._log.warning("stale", message="; ".join(stale), hint=_STALE)
        elif self._stale and not stale:
            self._log.info("stale", message="the inventory is current again")
        self._stale = stale

    def registrations(self, statuses: Iterable[ResourceStatus]) -> None:
        """Say how resources are now, by STATUSES; a try that fails as the one before did is no news."""
        said, self._registrations = self._registrations, {}
        for one in statuses:
            before, now = said.get(one.resource, (None, "")), (one.state, one.reason)
            is_news = now != before and (one.state not in _STEPS or one.reason != before[1])
            self._registrations[one.resource] = now if is_news else before
            if is_news:
                say = self._log.warning if one.state == "taken" else self._log.info
                say("registration", resource=one.resource, state=one.state, reason=one.reason)

    def labels(self, level: str, message: str, hint: str) -> None:
        """Say how the file of the node's labels stands."""
        getattr(self._log, level)("labels", message=message, hint=hint)

    def answers(self, answers: Iterable[Allocation]) -> None:
        """Say who was refused, and only in detail who was not."""
        for one in answers:
            if one.cause:
                self._log.warning(
                    "refused", resource=one.resource, devices=one.ids, cause=one.cause, reason=one.reason
                )
            else:
                self._log.debug("allocated", resource=one.resource, devices=one.ids, names=one.names)
