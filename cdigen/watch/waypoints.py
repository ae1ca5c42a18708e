"""``interests``: find the folders and names that a path's resolution depends on, those of links included.

``/var/run/cdi`` depends on ``var`` in ``/``, on ``run`` in ``/var``, if that is a link to ``/run`` on
``run`` in ``/``, on ``cdi`` in ``/run``, and on everything in that. A way ends at the first component that
does not exist: it will appear in the folder reached so far.
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

    ``ways``: names whose creation, removal or replacement may change which folders matter. ``patterns``:
    names that matter only in themselves, ``*`` standing for any text. ``content``: one of these names is the
    end of a path, so that writes and chmod matter too.
    """

    __slots__ = ("content", "patterns", "ways")

    def __init__(self) -> None:
        self.ways: set[str] = set()
        self.patterns: set[str] = set()
        self.content = False


def interests(paths: Iterable[str], roots: Iterable[str] = ()) -> dict[str, Interest]:
    """Return which existing folders matter for PATHS, and what in them, as the file system is now.

    PATHS are absolute; they name files, or folders of which every entry matters, or end in a name with
    ``*``. An absolute link, or a ``..``, leads no further up than the deepest of the ROOTS that contains it:
    these are the roots of host trees. The folders' paths are free of links.
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
        """Add the way to PATH, whose content matters; returns where it ends: see ``_follow``."""
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
        """Add the WAY from the folder HERE on; returns the folder at its end, or None."""
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
                # It does not exist, or we have no access; ValueError: a NUL byte, which no name contains.
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
    """Return the deepest of TOPS that contains FOLDER."""
    while folder not in tops:
        folder = os.path.dirname(folder)
    return folder
