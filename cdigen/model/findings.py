"""Findings: problems that a stage reports without stopping, one ``Finding`` per problem."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from cdigen.model.errors import CdigenError

    Severity = Literal["error", "warning", "info"]


@frozen
class Finding:
    """One problem: its severity, rule, place, message and hint.

    ``path`` is a JSON path (``$.devices[0].name``) for documents, and a host path or a device name for hosts.
    ``hint`` is the next step, or empty if no step is necessary. ``place`` is the line and the column in a
    text, both counted from 1, or None if the place is unknown.
    """

    severity: Severity
    rule: str
    path: str
    message: str
    hint: str = ""
    place: tuple[int, int] | None = None

    def row(self) -> dict[str, str]:
        """Return the finding as a JSON object."""
        return {
            "severity": self.severity,
            "rule": self.rule,
            "path": self.path,
            "message": self.message,
            "hint": self.hint,
        }

    def line(self) -> str:
        """Return the finding as one line of text for a terminal."""
        # Paths in messages are escaped to fit one line of plain text.
        has_path = self.path in self.message or ascii(self.path)[1:-1] in self.message
        where = "" if has_path else f"{self.path}: "
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.severity}: {where}{self.message}{hint} [{self.rule}]"


class FindingCollector:
    """A collector for the findings of all readers of one host, in order."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def add(self, severity: Severity, rule: str, path: str, message: str, hint: str = "") -> None:
        """Add a finding."""
        self.findings.append(Finding(severity=severity, rule=rule, path=path, message=message, hint=hint))


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that are errors, in their order."""
    return tuple(finding for finding in findings if finding.severity == "error")


def finding_of(error: CdigenError, path: str) -> Finding:
    """Return ERROR, which concerns only PATH, as a finding whose rule is the kind of the error."""
    return Finding(severity="error", rule=error.kind, path=path, message=error.message, hint=error.hint)
