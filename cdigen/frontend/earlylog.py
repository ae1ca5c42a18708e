"""``EarlyLog``: log before there is time to import the logger, which later gets the lines."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from structlog.typing import FilteringBoundLogger


class EarlyLog:
    """Keeps lines until there is a logger (``hand_over``), and passes later ones on at once."""

    def __init__(self) -> None:
        self._logger: FilteringBoundLogger | None = None
        self._kept: list[tuple[str, str, dict[str, Any]]] = []

    def hand_over(self, logger: FilteringBoundLogger) -> None:
        """Let LOGGER write the kept lines and all later ones."""
        self._logger = logger
        for level, event, facts in self._kept:
            getattr(logger, level)(event, **facts)
        self._kept = []

    def debug(self, event: str, **facts: Any) -> None:
        """Log EVENT at level debug."""
        self._say("debug", event, facts)

    def info(self, event: str, **facts: Any) -> None:
        """Log EVENT at level info."""
        self._say("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Log EVENT at level warning."""
        self._say("warning", event, facts)

    def error(self, event: str, **facts: Any) -> None:
        """Log EVENT at level error."""
        self._say("error", event, facts)

    def _say(self, level: str, event: str, facts: dict[str, Any]) -> None:
        if self._logger is None:
            self._kept.append((level, event, facts))
        else:
            getattr(self._logger, level)(event, **facts)
