"""``ContextReader``: reads the state of the host for the decisions of the link."""

from __future__ import annotations

from cdigen.nri.decision.context import LIBRARY, cache_for, context_of, injects_raw
from cdigen.service.host_state import read_host_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config import Settings
    from cdigen.nri.decision.context import DecisionContext
    from cdigen.runtimes.spec_cache import SpecCache
    from cdigen.service.host_state import HostSources
    from cdigen.service.process.buffered_log import Logger


class ContextReader:
    """The last context, as ``context``. LOGGER gets the problems of specs."""

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
