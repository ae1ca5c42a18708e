"""What a check found: ``CheckResult``, and the few ways to say it.

A remedy is a command that a shell takes as it is printed, or empty where there is none to be run: what to do
then stands in the detail. ``because`` names the checks of which, where they have failed too, this failure is
a mere consequence: fixing those fixes it.
"""

from __future__ import annotations

import re

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.model.findings import Severity

_QUOTED = re.compile(r"'([^']+)'")


@frozen
class CheckResult:
    """A check's result.

    ``severity``: where not ``ok``, ``error`` stops containers of those who were asked for, ``warning`` will
    or may; ``info`` otherwise. ``is_checked`` False: it could not be looked at here, and counts as good.
    ``topic`` is the family: driver, nodes, specs, podman, docker, containerd, crio, security, user, others.
    """

    check: str
    ok: bool
    detail: str
    topic: str
    remedy: str = ""
    severity: Severity = "info"
    because: tuple[str, ...] = ()
    is_checked: bool = True

    def row(self) -> dict[str, Any]:
        """Return the result as JSON shows it."""
        return {
            "check": self.check,
            "ok": self.ok,
            "detail": self.detail,
            "remedy": self.remedy,
            "topic": self.topic,
            "severity": self.severity,
            "checked": self.is_checked,
            "because": list(self.because),
        }


@frozen
class Topic:
    """The voice of one family of checks."""

    name: str

    def good(self, check: str, detail: str) -> CheckResult:
        """Say that CHECK found nothing wrong."""
        return CheckResult(check=check, ok=True, detail=detail, topic=self.name)

    def unchecked(self, check: str, detail: str) -> CheckResult:
        """Say that CHECK could not be made, and why."""
        return CheckResult(
            check=check, ok=True, detail=f"not checked: {detail}", topic=self.name, is_checked=False
        )

    def error(self, check: str, detail: str, remedy: str = "", because: tuple[str, ...] = ()) -> CheckResult:
        """Say that CHECK found what stops containers."""
        return CheckResult(
            check=check,
            ok=False,
            detail=detail,
            topic=self.name,
            remedy=remedy,
            severity="error",
            because=because,
        )

    def warning(
        self, check: str, detail: str, remedy: str = "", because: tuple[str, ...] = ()
    ) -> CheckResult:
        """Say that CHECK found what will stop containers one day, or some of them."""
        return CheckResult(
            check=check,
            ok=False,
            detail=detail,
            topic=self.name,
            remedy=remedy,
            severity="warning",
            because=because,
        )


def command_in(hint: str) -> str:
    """Return the command that HINT names in quotes, if its first quoted words are one; else nothing."""
    found = _QUOTED.search(hint)
    words = found[1] if found else ""
    return words if words.partition(" ")[0] in _COMMANDS and "..." not in words else ""


# What hints of findings name and may be run as it is.
_COMMANDS = frozenset({"cdigen", "nvidia-modprobe", "modprobe", "rmmod", "nvidia-smi", "ldconfig", "udevadm"})
