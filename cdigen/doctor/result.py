"""The result of a check: ``CheckResult``, made by the ``Topic`` of its family, with its ``Remedy`` values.

No remedy makes root run or change what another user controls: ``authority`` is asked before one is made.
"""

from __future__ import annotations

import shlex

from cdigen.host.root import is_plain
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cdigen.model.errors import HostError
    from cdigen.model.findings import Finding, Severity


# Programs that change only files, and only those named as arguments.
_OF_FILES = frozenset({"chmod", "chown", "cp", "df", "ln", "mkdir", "mknod", "mv", "rm", "rmdir"})


@frozen
class Remedy:
    """One command that fixes what a check found, or a step of several.

    ``argv``: the program and its arguments, with paths of this machine. ``why``: what it does, for people.
    ``as_root``: it needs root's rights.
    """

    argv: tuple[str, ...]
    why: str
    as_root: bool = True

    def row(self) -> dict[str, Any]:
        """Return the remedy as JSON shows it."""
        return {"argv": list(self.argv), "as_root": self.as_root, "why": self.why}


@frozen
class CheckResult:
    """What one check found.

    ``severity``: where not ``ok``, ``error`` stops containers of those who were asked for, ``warning`` will
    or may; ``info`` otherwise. ``is_checked`` False: it could not be examined here, and counts as good.
    ``topic`` is the family: driver, health, nodes, kubelet, specs, podman, docker, containerd, crio,
    security, user, others.
    ``remedies`` are commands, to be run in their order; what a person has to do stands in ``detail``.
    ``because`` names the checks that, if they have failed too, are the cause: fixing those fixes this one.
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
        """Report that CHECK found a fault that stops containers."""
        return self.failed(check, detail, remedies, because, is_error=True)

    def warning(
        self, check: str, detail: str, remedies: tuple[Remedy, ...] = (), because: tuple[str, ...] = ()
    ) -> CheckResult:
        """Report that CHECK found a fault that will stop containers later, or stops some."""
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
    """Return the message of PROBLEM and its hint."""
    return f"{problem.message}; {problem.hint}" if problem.hint else problem.message


def listed(texts: Iterable[str], *, most: int = 4, separator: str = ", ") -> str:
    """Return the first of TEXTS, MOST of them, and how many more there are."""
    found = list(texts)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return separator.join(found[:most]) + more


def command_line(remedies: tuple[Remedy, ...]) -> str:
    """Return REMEDIES as one line for a shell, each run only if the one before has succeeded."""
    return " && ".join(" ".join(map(quoted, remedy.argv)) for remedy in remedies)


def quoted(text: str) -> str:
    r"""Return TEXT as one printable word of a shell.

    What holds control characters or stray bytes, which a terminal would take as its own, becomes ``$'...'``
    (POSIX.1-2024, "Dollar-Single-Quotes") with three octal digits for each byte: no quote is left in it, so
    that a shell that does not know it executes nothing either.
    """
    if is_plain(text):
        return shlex.quote(text)
    return f"$'{''.join(_escaped(character) for character in text)}'"


def _escaped(character: str) -> str:
    if character.isprintable() and character not in "'\\":
        return character
    stray = 0xDC80 <= ord(character) <= 0xDCFF
    data = character.encode("utf-8", "surrogateescape" if stray else "surrogatepass")
    return "".join(f"\\{byte:03o}" for byte in data)


def filter_remedies(result: CheckResult, folder: str) -> CheckResult:
    """Return RESULT with only the remedies that change nothing outside FOLDER, the host of ``--root``.

    Run on this machine, the others would change this machine: the detail tells them instead.
    """
    there = tuple(remedy for remedy in result.remedies if not _is_within(remedy, folder))
    if not there:
        return result
    told = tuple(
        replace(remedy, argv=tuple(_inner(word, folder) for word in remedy.argv)) for remedy in there
    )
    return replace(
        result,
        remedies=tuple(remedy for remedy in result.remedies if remedy not in there),
        detail=f"{result.detail}; on that host: {command_line(told)}",
    )


def _is_within(remedy: Remedy, folder: str) -> bool:
    if remedy.argv[0] == "cdigen":
        return "--root" in remedy.argv
    paths = [word for word in remedy.argv if word.startswith("/")]
    return (
        remedy.argv[0] in _OF_FILES
        and bool(paths)
        and all(path.startswith(f"{folder}/") and ".." not in path.split("/") for path in paths)
    )


def _inner(word: str, folder: str) -> str:
    return word[len(folder) :] if word.startswith(f"{folder}/") else word
