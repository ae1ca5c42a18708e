"""``MountConflicts``: finds mounts of one kind that hide mounts of another kind in a container.

A runtime adds the mounts of all requested devices to a container. If two mounts have the same container path,
the later mount replaces the earlier mount (pkg/cdi, ContainerEdits.Apply). A mount below the path of another
mount hides a part of the outer mount. The runtime cannot create the inner mount if the outer mount is
read-only and does not contain the path.
"""

from __future__ import annotations

import posixpath
import re

from cdigen.cdi.rules.hostcheck import all_edits
from cdigen.cdi.rules.rulebook import finding
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator
    from typing import Any

    from cdigen.host.root import Root
    from cdigen.model.findings import Finding

# Limits of cdigen. Specs have about 100 mounts with at most 12 levels. Mounts above a limit are not compared.
MAX_MOUNTS = 10_000
MAX_LEVELS = 32
MAX_COMPARED = 100_000
# The path of a file in a view (store.views, cdi.layout). The file has the same name as its source.
_IN_VIEW = re.compile(r".*/views/[a-z0-9]+-[0-9a-f]{16}(?:-[0-9]+)?/(?:bin|fixed|lib|lib64)/.+", re.DOTALL)
_HINT = "change one container path, or do not request devices of both kinds in one container"


@frozen
class _Mount:
    # ``owner`` is the kind, or the device if the mount belongs to a device. ``path`` is the JSON path.
    kind: str
    owner: str
    path: str
    source: str
    target: str


class MountConflicts:
    """The mounts of several specs.

    Each new spec is compared with the specs of other kinds that were added before. If HOST is set, two paths
    of the same file on the host are the same source.
    """

    def __init__(self, host: Root | None = None) -> None:
        self._host = host
        self._at: dict[str, list[_Mount]] = {}
        self._below: dict[str, list[_Mount]] = {}
        self._mounts: dict[str, list[_Mount]] = {}
        self._known: set[tuple[str, str, str]] = set()

    def add(self, document: dict[str, Any]) -> tuple[Finding, ...]:
        """Add DOCUMENT; return a finding for each kind whose mounts conflict with mounts of DOCUMENT.

        DOCUMENT must break no rule.
        """
        mounts = list(_mounts(document))
        conflicts: dict[str, list[tuple[_Mount, _Mount]]] = {}
        compared = 0
        for new in mounts:
            for other in self._near(new.target):
                compared += 1
                if compared > MAX_COMPARED:
                    break
                if other.kind != new.kind and not self._shows_the_same(other, new):
                    conflicts.setdefault(other.kind, []).append((other, new))
        findings = [self._finding(pairs, mounts) for pairs in conflicts.values()]
        for mount in mounts:
            # Each mount is stored once, because a folder can have a thousand spec files with equal mounts.
            key = (mount.kind, mount.source, mount.target)
            if key in self._known:
                continue
            self._known.add(key)
            self._at.setdefault(mount.target, []).append(mount)
            self._mounts.setdefault(mount.kind, []).append(mount)
            for folder in _above(mount.target):
                self._below.setdefault(folder, []).append(mount)
        return tuple(each for each in findings if each is not None)

    def _near(self, target: str) -> Iterator[_Mount]:
        """Yield the mounts at TARGET, above TARGET and below TARGET."""
        yield from self._at.get(target, ())
        for folder in _above(target):
            yield from self._at.get(folder, ())
        yield from self._below.get(target, ())

    def _shows_the_same(self, one: _Mount, other: _Mount) -> bool:
        """Return whether both mounts have the same file at the longer container path (no conflict)."""
        outer, inner = (one, other) if len(one.target) <= len(other.target) else (other, one)
        covered = f"{outer.source.rstrip('/')}{inner.target[len(outer.target.rstrip('/')) :]}"
        return covered == inner.source or self._is_one_file(covered, inner.source)

    def _is_one_file(self, one: str, other: str) -> bool:
        """Return whether two host paths are the same file, or a file and its copy in a view.

        If one of the paths is in a view, the function compares the names of the files, and the sizes if both
        sizes are known. A file in a view has the same name as its source.
        """
        first, second = self._status(one), self._status(other)
        if first and second and (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino):
            return True
        is_named_alike = posixpath.basename(one) == posixpath.basename(other)
        is_like = is_named_alike and bool(_IN_VIEW.fullmatch(one) or _IN_VIEW.fullmatch(other))
        return is_like and (not first or not second or first.st_size == second.st_size)

    def _status(self, path: str) -> os.stat_result | None:
        if self._host is None or not path.startswith("/"):
            return None
        try:
            return self._host.stat(path)
        except OSError:
            return None

    def _finding(self, pairs: list[tuple[_Mount, _Mount]], mounts: list[_Mount]) -> Finding | None:
        """Return the finding for PAIRS, or None if a container still has the files of both mounts.

        Each pair has a mount of another kind, and a mount from MOUNTS (the mounts of the new kind). The first
        mounts of all pairs have the same kind.
        """
        places = {mount.target for pair in pairs for mount in pair}
        other_sources = _sources_elsewhere(self._mounts[pairs[0][0].kind], places)
        new_sources = _sources_elsewhere(mounts, places)
        hidden = [
            (other, new)
            for other, new in pairs
            if other.target != new.target
            or not (_is_among(other, other_sources) and _is_among(new, new_sources))
        ]
        if not hidden:
            return None
        other, new = hidden[0]
        if other.target == new.target:
            text = (
                f"{other.owner} and {new.owner} both mount {new.target}, from {other.source} and "
                f"{new.source}: a container with both devices has only one of the mounts"
            )
        else:
            outer, inner = (other, new) if len(other.target) < len(new.target) else (new, other)
            text = (
                f"{inner.owner} mounts {inner.target} inside the mount {outer.target} of {outer.owner}: a "
                "container with both devices lacks files of the outer mount, or does not start"
            )
        count = len({new.target for _, new in hidden}) - 1
        more = f" (and {count} more paths)" if count else ""
        return finding("mounts-covered", new.path, f"{text}{more}", _HINT)


def _mounts(document: dict[str, Any]) -> Iterator[_Mount]:
    """Yield the mounts of DOCUMENT without repetitions."""
    kind = document["kind"]
    yielded: set[tuple[str, str]] = set()
    for owner, where, edits in all_edits(document):
        for position, mount in enumerate(edits.get("mounts") or ()):
            target = posixpath.normpath(mount["containerPath"])
            source = posixpath.normpath(mount["hostPath"])
            if mount.get("type", "bind") not in {"", "bind"}:
                source = f"{mount['type']}:{source}"
            if (source, target) in yielded or target.count("/") > MAX_LEVELS:
                continue
            if len(yielded) >= MAX_MOUNTS:
                return
            yielded.add((source, target))
            yield _Mount(
                kind=kind, owner=owner, path=f"{where}.mounts[{position}]", source=source, target=target
            )


def _above(path: str) -> Iterator[str]:
    while (folder := posixpath.dirname(path)) != path:
        path = folder
        yield path


def _sources_elsewhere(mounts: Iterable[_Mount], places: set[str]) -> set[str]:
    """Return the sources of the MOUNTS whose target is not in PLACES."""
    return {mount.source for mount in mounts if mount.target not in places}


def _is_among(mount: _Mount, sources: set[str]) -> bool:
    """Return whether SOURCES contain the source of MOUNT or a folder above this source."""
    return mount.source in sources or any(folder in sources for folder in _above(mount.source))
