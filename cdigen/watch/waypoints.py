"""``interests``: find the folders and names that decide what a path means: each on the way, and each link.

``/var/run/cdi`` depends on ``var`` in ``/``, on ``run`` in ``/var``, if that is a link to ``/run`` on
``run`` in ``/``, on ``cdi`` in ``/run``, and on everything in that. A way ends at the first part that
does not exist: its folder is where it will appear.
"""

from __future__ import annotations

import os
import stat

from cdigen.host.root import MAX_LINKS, parts

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
    ways = _Ways({os.path.realpath(root) for root in roots} | {"/"})
    # Hundreds of names are looked for in a few folders.
    ends: dict[str, str | None] = {}
    for path in paths:
        head, _, name = path.rpartition("/")
        target, pattern = (head, name) if ANY in name else (path, ANY)
        if target not in ends:
            ends[target] = ways.reach(target)
        if (end := ends[target]) is not None:
            ways.found[end].patterns.add(pattern)
    return ways.found


class _Ways:
    """The ways that were followed, and what matters on them."""

    def __init__(self, tops: set[str]) -> None:
        self.found: dict[str, Interest] = {}
        self._tops = tops
        self._ends: dict[str, str | None] = {"": "/"}

    def reach(self, path: str) -> str | None:
        """Add the way to PATH, and that its content matters; returns where it ends: see ``_follow``."""
        head, _, name = path.rpartition("/")
        above = self._end(head)
        end = None if above is None else self._follow(above, name, is_meant=True)
        if end is not None:
            self.found.setdefault(end, Interest()).content = True
        return end

    def _end(self, path: str) -> str | None:
        """Add the way to the folder PATH once; returns where it ends: see ``_follow``."""
        new: list[tuple[str, str]] = []
        while path not in self._ends:
            head, _, name = path.rpartition("/")
            new.append((path, name))
            path = head
        end = self._ends[path]
        for way, name in reversed(new):
            end = None if end is None else self._follow(end, name)
            self._ends[way] = end
        return end

    def _follow(self, here: str, way: str, *, is_meant: bool = False) -> str | None:
        """Add the WAY on from the folder HERE; returns the folder at its end, None where there is none."""
        links_left = MAX_LINKS
        pending = parts(way)
        while pending:
            name = pending.pop()
            if name == "..":
                here = here if here in self._tops else os.path.dirname(here)
                continue
            interest = self.found.setdefault(here, Interest())
            interest.ways.add(name)
            interest.content = interest.content or (is_meant and not pending)
            there = f"{here}/{name}" if here != "/" else f"/{name}"
            try:
                mode = os.lstat(there).st_mode
                target = os.readlink(there) if stat.S_ISLNK(mode) else None
            except (OSError, ValueError):
                # It is not there, or not for us; ValueError: a NUL byte, which no name holds.
                return None
            if target is not None:
                links_left -= 1
                if links_left < 0:
                    return None
                pending += parts(target)
                here = _top(here, self._tops) if target.startswith("/") else here
            elif stat.S_ISDIR(mode):
                here = there
            else:
                return None
        return here


def _top(folder: str, tops: set[str]) -> str:
    """Return the deepest of TOPS that holds FOLDER."""
    while folder not in tops:
        folder = os.path.dirname(folder)
    return folder
