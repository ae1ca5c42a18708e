"""``watched_folders``: finds the folders and names that the resolution of a path and its links depends on.

``/var/run/cdi`` depends on ``var`` in ``/`` and on ``run`` in ``/var``. If ``/var/run`` is a link to
``/run``, the path also depends on ``run`` in ``/``, on ``cdi`` in ``/run``, and on all names in ``/run/cdi``.
The resolution ends at the first component that does not exist. If this component is created, it appears in
the last existing folder.
"""

from __future__ import annotations

import os
import re
import stat

from cdigen.host.root import MAX_LINKS, parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ANY = "*"


class WatchedFolder:
    """The relevant names in one folder.

    ``path_names`` are components of a path or of a link target. If a file with such a name is created,
    removed or replaced, other folders may become relevant. ``patterns`` are patterns of other relevant names;
    ``*`` matches any text. ``content`` is true if a name is the end of a path, so that writes and chmod are
    relevant as well.
    """

    __slots__ = ("content", "path_names", "patterns")

    def __init__(self) -> None:
        self.path_names: set[str] = set()
        self.patterns: set[str] = set()
        self.content = False

    def pattern(self) -> re.Pattern[str]:
        """Return ``patterns`` as one regular expression for names."""
        expressions = (".*".join(map(re.escape, pattern.split(ANY))) for pattern in self.patterns)
        return re.compile("|".join(expressions) or "(?!)", re.DOTALL)


def watched_folders(paths: Iterable[str], roots: Iterable[str] = ()) -> dict[str, WatchedFolder]:
    """Return the existing folders that the resolution of PATHS uses now, with the relevant names in each.

    PATHS are absolute. A path is the path of a file, the path of a folder with all its entries, or a path
    with ``*`` in the last name. ROOTS are the roots of host trees. An absolute link or a ``..`` leads no
    further up than the deepest of ROOTS that contains it. The paths of the folders contain no links.
    """
    resolver = _PathResolver({os.path.realpath(root) for root in roots} | {"/"})
    # Hundreds of paths are in only a few folders. Each folder is resolved once.
    ends: dict[str, str | None] = {}
    for path in paths:
        head, _, name = path.rpartition("/")
        target, pattern = (head, name) if ANY in name else (path, ANY)
        if target not in ends:
            ends[target] = resolver.reach(target)
        if (end := ends[target]) is not None:
            resolver.found[end].patterns.add(pattern)
    return resolver.found


class _PathResolver:
    """Resolves paths, and collects the folders that the resolution uses, with the relevant names in them."""

    def __init__(self, tops: set[str]) -> None:
        self.found: dict[str, WatchedFolder] = {}
        self._tops = tops
        self._ends: dict[str, str | None] = {"": "/"}

    def reach(self, path: str) -> str | None:
        """Resolve PATH, whose content is relevant; return the folder at its end, or None."""
        head, _, name = path.rpartition("/")
        above = self._end(head)
        end = None if above is None else self._follow(above, name, is_end=True)
        if end is not None:
            self.found.setdefault(end, WatchedFolder()).content = True
        return end

    def _end(self, path: str) -> str | None:
        """Return the folder to which PATH leads, or None. Each folder on PATH is resolved only once."""
        new: list[tuple[str, str]] = []
        while path not in self._ends:
            head, _, name = path.rpartition("/")
            new.append((path, name))
            path = head
        end = self._ends[path]
        for below, name in reversed(new):
            end = None if end is None else self._follow(end, name)
            self._ends[below] = end
        return end

    def _follow(self, here: str, path: str, *, is_end: bool = False) -> str | None:
        """Resolve the relative PATH from the folder HERE; return the folder at its end, or None."""
        links_left = MAX_LINKS
        pending = parts(path)
        while pending:
            name = pending.pop()
            if name == "..":
                here = here if here in self._tops else os.path.dirname(here)
                continue
            folder = self.found.setdefault(here, WatchedFolder())
            folder.path_names.add(name)
            folder.content = folder.content or (is_end and not pending)
            there = f"{here}/{name}" if here != "/" else f"/{name}"
            try:
                mode = os.lstat(there).st_mode
                target = os.readlink(there) if stat.S_ISLNK(mode) else None
            except (OSError, ValueError):
                # The name does not exist or is not accessible. ValueError means a NUL byte in the name.
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
