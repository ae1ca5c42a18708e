"""Remedies that rename: what is moved never takes the place of anything."""

from __future__ import annotations

from itertools import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.doctor.context import Context


def free_path(context: Context, stem: str, ending: str) -> str:
    """Return the path STEM with ENDING, or STEM-1, STEM-2 and so on with it: the first that nothing has."""
    folder, _, name = stem.rpartition("/")
    taken = set(context.host.names(folder or "/"))
    names = (f"{name}-{number}{ending}" if number else f"{name}{ending}" for number in count())
    return f"{folder}/{next(each for each in names if each not in taken)}"


def move_aside(context: Context, path: str) -> str:
    """Return the command that renames PATH to what no runtime loads."""
    return f"mv {context.outer(path)} {context.outer(free_path(context, path, '.disabled'))}"
