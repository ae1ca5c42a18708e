"""``InjectionRefusal``: the cause and the reason of the refusal of a container."""

from __future__ import annotations

from cdigen.host.root import shown

# Values of the metric label ``cause`` (docs/reference/nri.md, "Causes").
REFUSAL_CAUSES = (
    "annotation", "default_action", "not_permitted", "too_much", "malformed", "unknown_capability",
    "no_kind", "unknown_device", "requirement", "requirement_malformed", "no_inventory", "runtime",
    "configuration", "late", "defect", "raw_spec", "raw_node", "nodes_without_driver",
)  # fmt: skip
_MOST = 80


class InjectionRefusal(Exception):
    """The error for a container that must not start.

    ``cause`` is a value of REFUSAL_CAUSES. ``reason`` is a text of one line.
    """

    def __init__(self, cause: str, reason: str) -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason


def quote(text: str) -> str:
    """Return TEXT from an untrusted source in quotes, shortened and with escaped control characters."""
    return f"'{shown(text if len(text) <= _MOST else f'{text[:_MOST]}...')}'"
