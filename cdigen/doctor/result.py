"""What a check returns: ``CheckResult``, made by the ``Topic`` of its family.

``because`` names the checks that, if they have failed too, are the cause of this failure: fixing those
fixes it.
"""

from __future__ import annotations

from cdigen.doctor.remedy import command_line
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cdigen.doctor.remedy import Remedy
    from cdigen.model.errors import HostError
    from cdigen.model.findings import Finding, Severity


@frozen
class CheckResult:
    """What one check found.

    ``severity``: where not ``ok``, ``error`` stops containers of those who were asked for, ``warning`` will
    or may; ``info`` otherwise. ``is_checked`` False: it could not be examined here, and counts as good.
    ``topic`` is the family: driver, nodes, specs, podman, docker, containerd, crio, security, user, others.
    ``remedies`` are commands, to be run in their order; what a person has to do stands in ``detail``.
    """

    check: str
    ok: bool
    detail: str
    topic: str
    remedies: tuple[Remedy, ...] = ()
    severity: Severity = "info"
    because: tuple[str, ...] = ()
    is_checked: bool = True

    @property
    def remedy(self) -> str:
        """The remedies as one line for a shell, empty without any."""
        return command_line(self.remedies)

    def row(self) -> dict[str, Any]:
        """Return the result as JSON shows it."""
        return {
            "check": self.check,
            "ok": self.ok,
            "detail": self.detail,
            "remedy": self.remedy,
            "commands": [remedy.row() for remedy in self.remedies],
            "topic": self.topic,
            "severity": self.severity,
            "checked": self.is_checked,
            "because": list(self.because),
        }


@frozen
class Topic:
    """A family of checks, and how they report."""

    name: str

    def good(self, check: str, detail: str) -> CheckResult:
        """Report that CHECK found nothing wrong."""
        return CheckResult(check=check, ok=True, detail=detail, topic=self.name)

    def unchecked(self, check: str, detail: str) -> CheckResult:
        """Report that CHECK could not be made, and why."""
        text = f"not checked: {detail}"
        return CheckResult(check=check, ok=True, detail=text, topic=self.name, is_checked=False)

    def error(
        self, check: str, detail: str, remedies: tuple[Remedy, ...] = (), because: tuple[str, ...] = ()
    ) -> CheckResult:
        """Report that CHECK found what stops containers."""
        return self.failed(check, detail, remedies, because, is_error=True)

    def warning(
        self, check: str, detail: str, remedies: tuple[Remedy, ...] = (), because: tuple[str, ...] = ()
    ) -> CheckResult:
        """Report that CHECK found what will stop containers one day, or some of them."""
        return self.failed(check, detail, remedies, because, is_error=False)

    def finding(self, check: str, finding: Finding, remedies: tuple[Remedy, ...] = ()) -> CheckResult:
        """Report what discovery found as a failure of CHECK."""
        return self.failed(check, with_hint(finding), remedies, is_error=finding.severity == "error")

    def failed(
        self,
        check: str,
        detail: str,
        remedies: tuple[Remedy, ...] = (),
        because: tuple[str, ...] = (),
        *,
        is_error: bool,
    ) -> CheckResult:
        """Report that CHECK failed, as an error or as a warning."""
        return CheckResult(
            check=check,
            ok=False,
            detail=detail,
            topic=self.name,
            remedies=remedies,
            severity="error" if is_error else "warning",
            because=because,
        )


def with_hint(problem: Finding | HostError) -> str:
    """Return the message of PROBLEM and what a person may do about it."""
    return f"{problem.message}; {problem.hint}" if problem.hint else problem.message


def listed(texts: Iterable[str], *, most: int = 4, separator: str = ", ") -> str:
    """Return the first of TEXTS, MOST of them, and how many more there are."""
    found = list(texts)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return separator.join(found[:most]) + more
