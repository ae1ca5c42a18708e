"""``BufferedLogger``: the log of a process, which keeps lines until the slow import of the logger."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from structlog.typing import FilteringBoundLogger


class BufferedLogger:
    """Keeps log lines until ``open`` is called, and writes later lines immediately."""

    def __init__(self) -> None:
        self._logger: FilteringBoundLogger | None = None
        self._kept: list[tuple[str, str, dict[str, Any]]] = []

    def open(self, *, verbose: bool) -> None:
        """Write the kept lines and all later lines to stderr, also those of libraries; see ``log``."""
        from cdigen.service.process.log import capture_libraries, make_logger  # noqa: PLC0415 - takes 50 ms

        logger = make_logger(verbose=verbose)
        capture_libraries(logger)
        self.hand_over(logger)

    def hand_over(self, logger: FilteringBoundLogger) -> None:
        """Pass the kept lines and all later lines to LOGGER."""
        self._logger = logger
        for level, event, facts in self._kept:
            self._log(level, event, facts)
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


if TYPE_CHECKING:
    Logger = BufferedLogger | FilteringBoundLogger
