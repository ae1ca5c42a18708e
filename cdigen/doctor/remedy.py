"""What fixes a failed check: ``Remedy``, one command as a value; ``command_line`` prints several in a row.

No remedy makes root run or change what another user controls: ``authority`` is asked before one is made.
"""

from __future__ import annotations

import shlex

from cdigen.host.root import is_plain
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.doctor.result import CheckResult

# Programs that change files alone, and only those that they name.
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
