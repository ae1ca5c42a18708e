"""``BufferedLogger``: keeps log lines until the logger is imported, then passes the lines to the logger."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from structlog.typing import FilteringBoundLogger


class BufferedLogger:
    """Keeps log lines until ``hand_over`` is called, and passes later lines to the logger immediately."""

    def __init__(self) -> None:
        self._logger: FilteringBoundLogger | None = None
        self._kept: list[tuple[str, str, dict[str, Any]]] = []

    def hand_over(self, logger: FilteringBoundLogger) -> None:
        """Pass the kept lines and all later lines to LOGGER."""
        self._logger = logger
        for level, event, facts in self._kept:
            getattr(logger, level)(event, **facts)
        self._kept = []

    def debug(self, event: str, **facts: Any) -> None:
        """Log EVENT at level debug."""
        self._log("debug", event, facts)

    def info(self, event: str, **facts: Any) -> None:
        """Log EVENT at level info."""
        self._log("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Log EVENT at level warning."""
        self._log("warning", event, facts)

    def error(self, event: str, **facts: Any) -> None:
        """Log EVENT at level error."""
        self._log("error", event, facts)

    def _log(self, level: str, event: str, facts: dict[str, Any]) -> None:
        if self._logger is None:
            self._kept.append((level, event, facts))
        else:
            getattr(self._logger, level)(event, **facts)
