"""Which of the loaded files defines each device: ``SpecIndex``, made of the one before and what changed.

Where a DRA driver writes a file for each claim there are thousands of names, and one file changes before each
container. So a changed file costs its own names, and a kind of which no file has changed keeps its value.
"""

from __future__ import annotations

from types import MappingProxyType

from cdigen.model.names import NameSet, natural_key
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cdigen.runtimes.spec_cache import SpecFile

    # The files that define a device, in the order in which they are read.
    Holders = tuple[SpecFile, ...]

# A dict of 8,000 names takes a millisecond to copy, a 64th of it none.
_PARTS = 64
# So many names are copied in no time and found faster: a node's GPUs are asked for again and again.
_FEW = 1_000


class HoldersByName:
    """The files that define each device of a kind, by its name; a value: ``changed`` gives another one."""

    def __init__(self, parts: tuple[dict[str, Holders], ...] = ({},) * _PARTS, size: int = 0) -> None:
        self._parts = parts
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __contains__(self, name: object) -> bool:
        return name in self._parts[hash(name) % _PARTS]

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from part

    def of(self, name: str) -> Holders:
        """Return the files that define NAME; none: there is no such device."""
        return self._parts[hash(name) % _PARTS].get(name, ())

    def changed(self, changes: Mapping[str, Holders]) -> HoldersByName:
        """Return the same but for CHANGES; a name that is left without a file is gone."""
        parts, size = list(self._parts), self._size
        copied = set()
        for name, holders in changes.items():
            place = hash(name) % _PARTS
            if place not in copied:
                parts[place] = dict(parts[place])
                copied.add(place)
            size -= parts[place].pop(name, None) is not None
            if holders:
                parts[place][name] = holders
                size += 1
        return HoldersByName(tuple(parts), size)


@frozen
class KindIndex:
    """The devices of one kind: the loaded files that define each, and the ``conflicts`` among them.

    ``names``: those that resolve.
    """

    holders: HoldersByName
    conflicts: Mapping[str, Holders]
    names: NameSet

    def file(self, name: str) -> SpecFile | None:
        """Return the file whose definition of the device NAME is used; None where it does not resolve."""
        having = self.holders.of(name)
        return having[-1] if having and name not in self.conflicts else None

    def updated(self, gone: Iterable[SpecFile], new: Iterable[SpecFile], order: Iterable[int]) -> KindIndex:
        """Return the kind without the files GONE and with the NEW ones; ORDER has the ids of all files."""
        changes: dict[str, Holders] = {}
        # One value for all names that no other file has, which is nearly all.
        alone = {id(file): (file,) for file in new}
        for file in gone:
            for name in file.devices:
                having = changes[name] if name in changes else self.holders.of(name)
                changes[name] = tuple([other for other in having if other is not file])
        for file in new:
            for name in file.devices:
                having = changes[name] if name in changes else self.holders.of(name)
                changes[name] = (*having, file) if having else alone[id(file)]
        conflicts = {name: files for name, files in self.conflicts.items() if name not in changes}
        if shared := [name for name, having in changes.items() if len(having) > 1]:
            places = {one: place for place, one in enumerate(order)}
            for name in shared:
                changes[name] = tuple(sorted(changes[name], key=lambda file: places[id(file)]))
                if conflict := conflict_of(changes[name]):
                    conflicts[name] = tuple(conflict)
        holders = self.holders.changed(changes)
        is_copied = conflicts or len(holders) <= _FEW
        names = NameSet({name for name in holders if name not in conflicts} if is_copied else holders)
        return KindIndex(holders=holders, conflicts=conflicts, names=names)


_NO_FILES: Mapping[int, SpecFile] = MappingProxyType({})
_NO_KINDS: Mapping[str, KindIndex] = MappingProxyType({})
_NO_KIND = KindIndex(holders=HoldersByName(), conflicts={}, names=NameSet(()))


class SpecIndex:
    """The loaded FILES by the devices that they define; ``kinds`` has each kind with a loaded file."""

    def __init__(
        self, files: Mapping[int, SpecFile] = _NO_FILES, kinds: Mapping[str, KindIndex] = _NO_KINDS
    ) -> None:
        self.kinds = kinds
        # By id, in the order in which they are read.
        self._files = files
        self._devices: tuple[tuple[str, str], ...] | None = None

    @property
    def devices(self) -> tuple[tuple[str, str], ...]:
        """Pairs of each qualified name that resolves and the path of its file, sorted as people expect."""
        if self._devices is None:
            found = {
                f"{kind}={name}": index.holders.of(name)[-1].path
                for kind, index in self.kinds.items()
                for name in index.holders
                if name not in index.conflicts
            }
            self._devices = tuple(sorted(found.items(), key=lambda pair: natural_key(pair[0])))
        return self._devices

    def file(self, device: str) -> SpecFile | None:
        """Return the file whose definition of DEVICE (``vendor/class=name``) is used; None: there is none."""
        kind, _, name = device.partition("=")
        return self.kinds.get(kind, _NO_KIND).file(name)

    def conflicts(self) -> dict[tuple[str, ...], list[str]]:
        """Return the qualified names that do not resolve, by the paths of the files that both define them."""
        names: dict[tuple[str, ...], list[str]] = {}
        for kind, index in self.kinds.items():
            for name, files in index.conflicts.items():
                names.setdefault(tuple([file.path for file in files]), []).append(f"{kind}={name}")
        return names

    def updated(self, files: Sequence[SpecFile]) -> SpecIndex:
        """Return the index of the loaded FILES, which are in the order in which they are read."""
        before, now = self._files, dict(zip(map(id, files), files, strict=True))
        gone = _by_kind([before[one] for one in before.keys() - now.keys()])
        new = _by_kind([now[one] for one in now.keys() - before.keys()])
        if not gone and not new:
            return self
        kinds = dict(self.kinds)
        for kind in gone.keys() | new.keys():
            index = kinds.get(kind, _NO_KIND).updated(gone.get(kind, ()), new.get(kind, ()), now)
            if index.holders:
                kinds[kind] = index
            else:
                kinds.pop(kind, None)
        return SpecIndex(now, kinds)


def conflict_of(loaded: Sequence[SpecFile]) -> list[SpecFile]:
    """Return those files of LOADED, which all define one device, that are in one directory; else nothing."""
    if len(loaded) < 2:
        return []
    by_directory: dict[str, list[SpecFile]] = {}
    for file in loaded:
        by_directory.setdefault(file.directory, []).append(file)
    return next((files for files in by_directory.values() if len(files) > 1), [])


def _by_kind(files: Iterable[SpecFile]) -> dict[str, list[SpecFile]]:
    found: dict[str, list[SpecFile]] = {}
    for file in files:
        found.setdefault(file.kind, []).append(file)
    return found
