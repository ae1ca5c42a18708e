"""The result of a check, its topic and its remedies.

No remedy makes root run or change a file that another user controls. Checks use ``remedy_safety`` before they
propose a remedy.
"""

from __future__ import annotations

import shlex

from cdigen.host.root import is_plain
from cdigen.value import frozen, replace
from cdigen.vendors.kernel.nodes import RUN_DOCTOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cdigen.model.errors import HostError
    from cdigen.model.findings import Finding, Severity


# Programs that change only the files in their arguments.
_OF_FILES = frozenset({"chmod", "chown", "cp", "df", "ln", "mkdir", "mknod", "mv", "rm", "rmdir", "setfacl"})


@frozen
class Remedy:
    """A command that fixes a failure, or one step of the fix.

    ``argv`` is the program and its arguments, with paths of this machine. ``why`` is the purpose of the
    command. ``as_root`` is true if the command needs root privileges.
    """

    argv: tuple[str, ...]
    why: str
    as_root: bool = True

    def row(self) -> dict[str, Any]:
        """Return the JSON object of the remedy."""
        return {"argv": list(self.argv), "as_root": self.as_root, "why": self.why}


@frozen
class CheckResult:
    """The result of a check.

    ``severity`` is the effect of a failure. ``error`` means that requested containers cannot start.
    ``warning`` means that some containers cannot start, or may fail later. A check without a failure has
    ``info``.

    ``is_checked`` is false if the check was skipped, which is not a failure. ``topic`` is configuration,
    driver, health, nodes, kubelet, specs, podman, docker, containerd, crio, runtimes, daemon, security, user
    or others.

    ``remedies`` are commands in order. ``detail`` has the steps without a command. ``because`` names checks
    that can cause this failure. If one of these checks has failed too, its fix also fixes this failure.
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
        """The remedies as one line for a shell; empty if there are no remedies."""
        return command_line(self.remedies)

    def row(self) -> dict[str, Any]:
        """Return the JSON object of the result."""
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
    """A topic of checks, such as ``driver``; its methods return the results of these checks."""

    name: str

    def passed(self, check: str, detail: str) -> CheckResult:
        """Return the result of CHECK if the check passed."""
        return CheckResult(check=check, ok=True, detail=detail, topic=self.name)

    def skipped(self, check: str, reason: str) -> CheckResult:
        """Return the result of CHECK if the check is impossible here; REASON is the reason."""
        return self._skipped(check, f"skipped: {reason}")

    def needs_system(self, check: str) -> CheckResult:
        """Return the result of CHECK for a host of ``--root``, where no process runs."""
        return self._skipped(check, "skipped with --root: needs a running system")

    def _skipped(self, check: str, detail: str) -> CheckResult:
        return CheckResult(check=check, ok=True, detail=detail, topic=self.name, is_checked=False)

    def error(
        self, check: str, detail: str, remedies: tuple[Remedy, ...] = (), because: tuple[str, ...] = ()
    ) -> CheckResult:
        """Return the failure of CHECK that prevents containers from starting."""
        return self.failed(check, detail, remedies, because, is_error=True)

    def warning(
        self, check: str, detail: str, remedies: tuple[Remedy, ...] = (), because: tuple[str, ...] = ()
    ) -> CheckResult:
        """Return the failure of CHECK that prevents some containers from starting, now or later."""
        return self.failed(check, detail, remedies, because, is_error=False)

    def finding(self, check: str, finding: Finding, remedies: tuple[Remedy, ...] = ()) -> CheckResult:
        """Return FINDING of the discovery as a failure of CHECK."""
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
        """Return the failure of CHECK, as an error or as a warning."""
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
    """Return the message of PROBLEM with its hint; a hint to run the doctor is omitted."""
    return f"{problem.message}; {problem.hint}" if problem.hint not in {"", RUN_DOCTOR} else problem.message


def listed(texts: Iterable[str], *, most: int = 4, separator: str = ", ") -> str:
    """Return the first MOST of TEXTS, and the number of the remaining texts."""
    found = list(texts)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return separator.join(found[:most]) + more


def command_line(remedies: tuple[Remedy, ...]) -> str:
    """Return REMEDIES as one line for a shell, joined by ``&&``."""
    return " && ".join(" ".join(map(quoted, remedy.argv)) for remedy in remedies)


def quoted(text: str) -> str:
    r"""Return TEXT as one printable shell word.

    A terminal would interpret control characters and invalid bytes. Text with such characters becomes
    ``$'...'`` (POSIX.1-2024, "Dollar-Single-Quotes"), with three octal digits for each byte. The word
    contains no other quotes, so that a shell without this syntax executes nothing.
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
    """Return RESULT without the remedies that change files outside FOLDER, the host of ``--root``.

    If these remedies ran on this machine, they would change this machine. ``detail`` contains these
    remedies instead.
    """
    outside = tuple(remedy for remedy in result.remedies if not _is_within(remedy, folder))
    if not outside:
        return result
    on_host = tuple(
        replace(remedy, argv=tuple(_inner(word, folder) for word in remedy.argv)) for remedy in outside
    )
    return replace(
        result,
        remedies=tuple(remedy for remedy in result.remedies if remedy not in outside),
        detail=f"{result.detail}; on that host: {command_line(on_host)}",
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
