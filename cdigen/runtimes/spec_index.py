"""The index of the loaded spec files by the devices that they define.

A DRA driver can write a file for each claim. There are then thousands of names, and a file changes before
each start of a container. Therefore an update takes time only for the names of changed files. The index of a
kind without changed files stays the same object.
"""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType

from cdigen.model.names import NameSet, natural_key
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cdigen.runtimes.spec_cache import SpecFile

    # The files that define a device, in the order in which they are read.
    Specs = tuple[SpecFile, ...]

# A copy of a dict with 8,000 names takes a millisecond. A copy of one 64th of the dict takes almost no time.
_PARTS = 64
# A copy of up to this number of names takes almost no time, and lookups in the copy are faster. Programs
# often look up the GPUs of a node.
_FEW = 1_000


class SpecsByName:
    """The files that define each device of a kind, by name.

    The object is immutable. ``changed`` returns a new object.
    """

    def __init__(self, parts: tuple[dict[str, Specs], ...] = ({},) * _PARTS, size: int = 0) -> None:
        self._parts = parts
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __contains__(self, name: object) -> bool:
        return name in self._parts[hash(name) % _PARTS]

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from part

    def of(self, name: str) -> Specs:
        """Return the files that define NAME; empty if the device does not exist."""
        return self._parts[hash(name) % _PARTS].get(name, ())

    def changed(self, changes: Mapping[str, Specs]) -> SpecsByName:
        """Return a copy with CHANGES; a name without files is removed."""
        parts, size = list(self._parts), self._size
        copied = set()
        for name, specs in changes.items():
            number = hash(name) % _PARTS
            if number not in copied:
                parts[number] = dict(parts[number])
                copied.add(number)
            size -= parts[number].pop(name, None) is not None
            if specs:
                parts[number][name] = specs
                size += 1
        return SpecsByName(tuple(parts), size)


@frozen
class KindIndex:
    """The devices of one kind: the loaded files that define each device, and the conflicts of these files.

    ``names`` are the names of the devices that resolve.
    """

    specs: SpecsByName
    conflicts: Mapping[str, Specs]
    names: NameSet

    def file(self, name: str) -> SpecFile | None:
        """Return the file whose definition of the device NAME is used; None if NAME does not resolve."""
        defining = self.specs.of(name)
        return defining[-1] if defining and name not in self.conflicts else None

    def updated(self, gone: Iterable[SpecFile], new: Iterable[SpecFile], order: Iterable[int]) -> KindIndex:
        """Return the index of the kind without the files GONE and with the files NEW.

        ORDER has the Python id() of all files, in the order in which the files are read.
        """
        changes: dict[str, Specs] = {}
        # Most names are defined by one file. All these names of a file share one tuple.
        alone = {id(file): (file,) for file in new}
        for file in gone:
            for name in file.devices:
                defining = changes[name] if name in changes else self.specs.of(name)
                changes[name] = tuple([other for other in defining if other is not file])
        for file in new:
            for name in file.devices:
                defining = changes[name] if name in changes else self.specs.of(name)
                changes[name] = (*defining, file) if defining else alone[id(file)]
        conflicts = {name: files for name, files in self.conflicts.items() if name not in changes}
        if shared := [name for name, defining in changes.items() if len(defining) > 1]:
            positions = {file_id: number for number, file_id in enumerate(order)}
            for name in shared:
                changes[name] = tuple(sorted(changes[name], key=lambda file: positions[id(file)]))
                if conflict := conflict_of(changes[name]):
                    conflicts[name] = tuple(conflict)
        specs = self.specs.changed(changes)
        is_copied = conflicts or len(specs) <= _FEW
        names = NameSet({name for name in specs if name not in conflicts} if is_copied else specs)
        return KindIndex(specs=specs, conflicts=conflicts, names=names)


_NO_FILES: Mapping[int, SpecFile] = MappingProxyType({})
_NO_KINDS: Mapping[str, KindIndex] = MappingProxyType({})
_NO_KIND = KindIndex(specs=SpecsByName(), conflicts={}, names=NameSet(()))


class SpecIndex:
    """The loaded FILES by the devices that they define; ``kinds`` has every kind with a loaded file."""

    def __init__(
        self, files: Mapping[int, SpecFile] = _NO_FILES, kinds: Mapping[str, KindIndex] = _NO_KINDS
    ) -> None:
        self.kinds = kinds
        # The files by their id(), in the order in which they are read.
        self._files = files

    @cached_property
    def devices(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a qualified name that resolves and the path of its file, in natural order."""
        found = {
            f"{kind}={name}": index.specs.of(name)[-1].path
            for kind, index in self.kinds.items()
            for name in index.specs
            if name not in index.conflicts
        }
        return tuple(sorted(found.items(), key=lambda pair: natural_key(pair[0])))

    def file(self, device: str) -> SpecFile | None:
        """Return the file whose definition of DEVICE is used; None if DEVICE does not resolve.

        DEVICE has the form ``vendor/class=name``.
        """
        kind, _, name = device.partition("=")
        return self.kinds.get(kind, _NO_KIND).file(name)

    def conflicts(self) -> dict[tuple[str, ...], list[str]]:
        """Return the qualified names that do not resolve, by the paths of the files that define them."""
        names: dict[tuple[str, ...], list[str]] = {}
        for kind, index in self.kinds.items():
            for name, files in index.conflicts.items():
                names.setdefault(tuple([file.path for file in files]), []).append(f"{kind}={name}")
        return names

    def updated(self, files: Sequence[SpecFile]) -> SpecIndex:
        """Return the index of the loaded FILES, which are in the order in which the library reads them."""
        before, now = self._files, dict(zip(map(id, files), files, strict=True))
        gone = _by_kind([before[file_id] for file_id in before.keys() - now.keys()])
        new = _by_kind([now[file_id] for file_id in now.keys() - before.keys()])
        if not gone and not new:
            return self
        kinds = dict(self.kinds)
        for kind in gone.keys() | new.keys():
            index = kinds.get(kind, _NO_KIND).updated(gone.get(kind, ()), new.get(kind, ()), now)
            if index.specs:
                kinds[kind] = index
            else:
                kinds.pop(kind, None)
        return SpecIndex(now, kinds)


def conflict_of(loaded: Sequence[SpecFile]) -> list[SpecFile]:
    """Return the files of LOADED that are in the same directory; all files of LOADED define one device."""
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
