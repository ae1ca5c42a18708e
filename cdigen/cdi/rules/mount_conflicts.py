"""Find mounts of one kind that hide those of another in a container with both: ``MountConflicts``.

Runtimes give a container the mounts of all devices that it asks for. Of two at one path the later replaces
the earlier (pkg/cdi, ContainerEdits.Apply); one below another hides a part of it, or cannot be made where the
outer one is read-only and has nothing of that name.
"""

from __future__ import annotations

import posixpath
import re

from cdigen.cdi.rules.rulebook import finding
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator
    from typing import Any

    from cdigen.host.root import Root
    from cdigen.model.findings import Finding

# Bounds of ours: specs have some 100 mounts, 12 levels deep at most; what is beyond is not compared.
MAX_MOUNTS = 10_000
MAX_LEVELS = 32
MAX_COMPARED = 100_000
# A file of a view (store.views, cdi.layout), which bears the name of its source.
_IN_VIEW = re.compile(r".*/views/[a-z0-9]+-[0-9a-f]{16}(?:-[0-9]+)?/(?:bin|fixed|lib|lib64)/.+", re.DOTALL)
_HINT = "give one of them another container path, or do not ask for both in one container"


@frozen
class _Mount:
    # OWNER is the kind, or the device that alone has it; PATH where it stands in the document.
    kind: str
    owner: str
    path: str
    source: str
    target: str


class MountConflicts:
    """The mounts of specs, each compared with those of the kinds added before.

    With HOST, two paths of it that are one file count as one source.
    """

    def __init__(self, host: Root | None = None) -> None:
        self._host = host
        self._at: dict[str, list[_Mount]] = {}
        self._below: dict[str, list[_Mount]] = {}
        self._mounts: dict[str, list[_Mount]] = {}
        self._known: set[tuple[str, str, str]] = set()

    def add(self, document: dict[str, Any]) -> tuple[Finding, ...]:
        """Add DOCUMENT, which breaks no rule; return a finding for each kind it conflicts with."""
        mounts = list(_mounts(document))
        met: dict[str, list[tuple[_Mount, _Mount]]] = {}
        compared = 0
        for mine in mounts:
            for other in self._near(mine.target):
                compared += 1
                if compared > MAX_COMPARED:
                    break
                if other.kind != mine.kind and not self._shows_the_same(other, mine):
                    met.setdefault(other.kind, []).append((other, mine))
        findings = [self._finding(pairs, mounts) for pairs in met.values()]
        for mount in mounts:
            # A folder may hold a thousand files with the same driver's mounts: each is kept once.
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
        """Yield the mounts at TARGET, above and below it."""
        yield from self._at.get(target, ())
        for folder in _above(target):
            yield from self._at.get(folder, ())
        yield from self._below.get(target, ())

    def _shows_the_same(self, one: _Mount, other: _Mount) -> bool:
        """Return whether both lead to the same thing where they meet, so that either may be seen."""
        outer, inner = (one, other) if len(one.target) <= len(other.target) else (other, one)
        seen = f"{outer.source.rstrip('/')}{inner.target[len(outer.target.rstrip('/')) :]}"
        return seen == inner.source or self._is_one_file(seen, inner.source)

    def _is_one_file(self, one: str, other: str) -> bool:
        """Return whether two paths of the host are one file, or a view's copy of it.

        Without a host, or of a copy, names have to do: what a view holds it calls as its source is called.
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
        """Return the finding on PAIRS of mounts of one other kind and of ours, which are among MOUNTS."""
        places = {mount.target for pair in pairs for mount in pair}
        theirs = _sources_elsewhere(self._mounts[pairs[0][0].kind], places)
        ours = _sources_elsewhere(mounts, places)
        lost = [
            (other, mine)
            for other, mine in pairs
            if other.target != mine.target or not (_is_among(other, theirs) and _is_among(mine, ours))
        ]
        if not lost:
            return None
        other, mine = lost[0]
        if other.target == mine.target:
            text = (
                f"{other.owner} and {mine.owner} both mount {mine.target}, from {other.source} and "
                f"{mine.source}: a container with both has one of them only"
            )
        else:
            outer, inner = (other, mine) if len(other.target) < len(mine.target) else (mine, other)
            text = (
                f"{inner.owner} mounts {inner.target} within {outer.target} of {outer.owner}: a container "
                "with both lacks a part of the latter, or does not start"
            )
        count = len({mine.target for _, mine in lost}) - 1
        more = f" (and {count} more such places)" if count else ""
        return finding("mounts-covered", mine.path, f"{text}{more}", _HINT)


def _mounts(document: dict[str, Any]) -> Iterator[_Mount]:
    """Yield the mounts of DOCUMENT, those that several devices have once."""
    kind = document["kind"]
    seen: set[tuple[str, str]] = set()
    for owner, where, edits in _edits(document):
        for position, mount in enumerate(edits.get("mounts") or ()):
            target = posixpath.normpath(mount["containerPath"])
            source = posixpath.normpath(mount["hostPath"])
            if mount.get("type", "bind") not in {"", "bind"}:
                source = f"{mount['type']}:{source}"
            if (source, target) in seen or target.count("/") > MAX_LEVELS:
                continue
            if len(seen) >= MAX_MOUNTS:
                return
            seen.add((source, target))
            yield _Mount(
                kind=kind, owner=owner, path=f"{where}.mounts[{position}]", source=source, target=target
            )


def _edits(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield document["kind"], "$.containerEdits", document.get("containerEdits") or {}
    for position, device in enumerate(document["devices"]):
        owner = f"{document['kind']}={device['name']}"
        yield owner, f"$.devices[{position}].containerEdits", device["containerEdits"]


def _above(path: str) -> Iterator[str]:
    while (folder := posixpath.dirname(path)) != path:
        path = folder
        yield path


def _sources_elsewhere(mounts: Iterable[_Mount], places: set[str]) -> set[str]:
    """Return what of MOUNTS is to be had at other paths than PLACES."""
    return {mount.source for mount in mounts if mount.target not in places}


def _is_among(mount: _Mount, sources: set[str]) -> bool:
    """Return whether what MOUNT gives, or a folder that it is in, is one of SOURCES."""
    return mount.source in sources or any(folder in sources for folder in _above(mount.source))
