"""Which folders and names decide what a path means: each folder on the way, and each link.

``/var/run/cdi`` depends on ``var`` in ``/``, on ``run`` in ``/var``, if that is a link to ``/run`` on
``run`` in ``/``, on ``cdi`` in ``/run``, and on everything in that. A way ends at the first part that
does not exist: its folder is where it will appear.
"""

from __future__ import annotations

import os
import stat

from cdigen.host.root import MAX_LINKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ANY = "*"


class Interest:
    """What matters in one folder.

    ``ways``: names whose coming, going or replacement may change which folders matter. ``patterns``:
    names that matter only for what they are, ``*`` standing for any text. ``content`` says whether
    one of these names is what a path means, so that being written or chmod'ed matters too.
    """

    __slots__ = ("content", "patterns", "ways")

    def __init__(self) -> None:
        self.ways: set[str] = set()
        self.patterns: set[str] = set()
        self.content = False


def interests(paths: Iterable[str], roots: Iterable[str] = ()) -> dict[str, Interest]:
    """Return what matters in which existing folders for PATHS, as the file system is now.

    PATHS are absolute; they name files, or folders of which every entry matters, or end in a name with
    ``*``. An absolute link, or a ``..``, leads no further up than to the deepest of the ROOTS that
    holds it: trees that are hosts of their own. The folders are free of links.
    """
    found: dict[str, Interest] = {}
    tops = {os.path.realpath(root) for root in roots} | {"/"}
    for path in paths:
        head, _, name = path.rpartition("/")
        if ANY in name:
            _follow(head, name, tops, found)
        else:
            _follow(path, ANY, tops, found)
    return found


def _follow(path: str, pattern: str, tops: set[str], found: dict[str, Interest]) -> None:
    """Add the way to PATH to FOUND, and the names like PATTERN in it if it is a folder."""
    here, links_left = "/", MAX_LINKS
    pending = _parts(path)
    while pending:
        name = pending.pop()
        if name == "..":
            here = here if here in tops else os.path.dirname(here)
            continue
        interest = found.setdefault(here, Interest())
        interest.ways.add(name)
        interest.content = interest.content or not pending
        there = os.path.join(here, name)
        try:
            mode = os.lstat(there).st_mode
            target = os.readlink(there) if stat.S_ISLNK(mode) else None
        except (OSError, ValueError):
            # It is not there, or not for us; ValueError: a NUL byte, which no name holds.
            return
        if target is not None:
            links_left -= 1
            if links_left < 0:
                return
            pending += _parts(target)
            here = _top(here, tops) if target.startswith("/") else here
        elif stat.S_ISDIR(mode):
            here = there
        else:
            return
    interest = found.setdefault(here, Interest())
    interest.patterns.add(pattern)
    interest.content = True


def _parts(path: str) -> list[str]:
    """Return the names in PATH, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in {"", "."}]


def _top(folder: str, tops: set[str]) -> str:
    """Return the deepest of TOPS that holds FOLDER."""
    while folder not in tops:
        folder = os.path.dirname(folder)
    return folder
