"""What the readers of one look at a host have to say, gathered in their order."""

from __future__ import annotations

from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Severity


class FindingCollector:
    """Gathers the findings of one look at the host."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def say(self, severity: Severity, rule: str, path: str, message: str, hint: str = "") -> None:
        """Add a finding."""
        self.findings.append(Finding(severity=severity, rule=rule, path=path, message=message, hint=hint))
