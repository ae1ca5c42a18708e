"""``StatusChangeLogger`` logs each change of the status once."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.kubelet.allocation.journal import Allocation
    from cdigen.kubelet.registration.listing import ResourceStatus
    from cdigen.kubelet.registration.state_machine import State
    from cdigen.model.findings import Finding
    from cdigen.service.process.buffered_log import Logger

# The intermediate states of a registration attempt.
_STEPS = ("serving", "registering", "unconfirmed")
_STALE = "the last known devices stay advertised; 'cdigen status' shows the state of the daemon"


class StatusChangeLogger:
    """Writes changes to LOGGER."""

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
