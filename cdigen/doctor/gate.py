"""Which remedies may be printed as commands for this machine: ``filter_remedy``."""

from __future__ import annotations

from cdigen.doctor.words import commands
from cdigen.host.root import is_plain
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

# What changes files alone, and those that it names.
_OF_FILES = frozenset({"chmod", "chown", "cp", "df", "ln", "mkdir", "mknod", "mv", "rm", "rmdir"})


def filter_remedy(context: Context, result: CheckResult) -> CheckResult:
    """Return VERDICT with what of its remedy may be run on this machine as it is printed.

    What is meant for a host that is a folder here is said in the detail instead: run here, it would change
    this machine. A terminal takes control characters as its own: a line with any is no remedy.
    """
    if not result.remedy:
        return result
    if not is_plain(result.remedy):
        return replace(result, remedy="")
    if context.is_live:
        return result
    listed = commands(result.remedy)
    here = [text for text, words in listed if _is_of_tree(context, words)]
    if listed and len(here) == len(listed):
        return result
    there = [text for text, words in listed if not _is_of_tree(context, words)]
    told = (" && ".join(there) if here else result.remedy).replace(f"{context.host.outer}/", "/")
    detail = f"{result.detail}; on that host: {told}"
    return replace(result, remedy=" && ".join(here), detail=detail)


def _is_of_tree(context: Context, words: list[str]) -> bool:
    """Return whether the command WORDS is about the folder that is the host, and nothing else."""
    if words[0] == "cdigen":
        return "--root" in words
    # $'...' of words.quoted is taken apart as a dollar and what is quoted.
    paths = [word.removeprefix("$") for word in words if word.startswith(("/", "$/"))]
    inside = f"{context.host.outer}/"
    return (
        words[0] in _OF_FILES
        and bool(paths)
        and all(path.startswith(inside) and ".." not in path.split("/") for path in paths)
    )
