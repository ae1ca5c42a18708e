"""Why a container must not start, and the cause under which that is counted: ``Refusal``."""

from __future__ import annotations

from cdigen.host.root import shown

# Labels of a metric; what each means is in docs/nri.md, "Metrics, status, log".
CAUSES = (
    "annotation", "default_action", "not_permitted", "too_much", "malformed", "unknown_capability",
    "no_kind", "unknown_device", "requirement", "requirement_malformed", "no_inventory", "runtime",
    "configuration", "late", "defect", "raw_spec", "raw_node", "nodes_without_driver",
)  # fmt: skip
_MOST = 80


class Refusal(Exception):
    """Say why a container is refused: ``cause`` is one of CAUSES, ``reason`` one line for people."""

    def __init__(self, cause: str, reason: str) -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason


def quote(text: str) -> str:
    """Return TEXT, which anybody may have written, in quotes, cut and fit for a line."""
    return f"'{shown(text if len(text) <= _MOST else f'{text[:_MOST]}...')}'"
