"""Read the files of spec directories as one release of the CDI library does, for one reader: ``SpecCache``.

The rules are those of pkg/cdi, scanSpecDirs (docs/cdi.md, "Directories"). Files that the library does not
load are read too, to report why. A file is parsed once, and again only after it has changed: with thousands
of files, one of which changes before each container, the reader has to look at the others' status alone.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from cdigen.cdi.library import NEWEST_RELEASE
from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.reader import MAX_SIZE, parse_document
from cdigen.host.filetimes import shows_changes
from cdigen.host.root import reason, shown
from cdigen.model.findings import errors
from cdigen.model.names import SPEC_SUFFIXES, is_yaml
from cdigen.runtimes.spec_directories import opened_directory, spec_directories
from cdigen.runtimes.spec_index import SpecIndex
from cdigen.runtimes.users import may_read
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.runtimes.spec_directories import SpecDirectory
    from cdigen.runtimes.users import Reader

    K = TypeVar("K")
    V = TypeVar("V")
    # Device, inode, time of the last change in nanoseconds, size.
    Identity = tuple[int, int, int, int]
    Prepare = Callable[[dict[str, Any]], object]

LOADED = "loaded"

# What is kept: files of each directory, of some thousand bytes each; directories, each for every library; and
# indexes. A host has some tens of files, with a DRA driver one more for each claim.
_MOST_FILES = 4_000
_MOST_DIRECTORIES = _MOST_INDEXES = 32
# Bytes of files that were read so soon after a change that another one might not show: they are compared at
# the next look.
_MOST_UNSETTLED = 1 << 20


@frozen
class SpecFile:
    """A spec file: its path, whether it is loaded, and what it defines.

    ``state``: LOADED, or the rule (docs/rules.md) by which it is not, and ``reason`` in words. ``directory``
    is the one to which it is counted. ``is_known``: its kind and devices are known, loaded or not.
    ``prepared``: what the reader makes of the document where it is loaded (``SpecCache``).
    """

    path: str
    directory: str
    state: str
    reason: str = ""
    kind: str = ""
    devices: tuple[str, ...] = ()
    is_known: bool = False
    prepared: object = None


@frozen
class _Kept:
    """A file as it was read with that identity, None where it has to be read again in any case.

    ``is_seen``: it is loaded, if its directory is and whoever asks may read it. ``unsettled``: its content,
    where it had changed right before: after two changes within one step of the clock it has the identity that
    it had after the first.
    """

    identity: Identity | None
    file: SpecFile
    is_seen: bool
    unsettled: bytes | None = None


class SpecCache:
    """The content of spec files, cached: a file is parsed anew only after it has changed.

    Files that are gone are forgotten, and documents are not kept: PREPARE returns what the reader needs of
    each loaded one, as the library decodes it (``SpecFile.prepared``). SHOWS_CHANGES returns whether a
    file's time of change, read at another time, is old enough to show the next change.
    """

    def __init__(
        self,
        prepare: Prepare | None = None,
        *,
        shows_changes: Callable[[int, int], bool] = shows_changes,
    ) -> None:
        self._prepare = prepare
        self._shows_changes = shows_changes
        # By tree, directory and library: the files by their names.
        self._kept: dict[tuple[str, str, str], dict[str, _Kept]] = {}
        self._indexes: dict[tuple[str, tuple[str, ...], str, Reader], SpecIndex] = {}

    def read(
        self, host: Root, spec_dirs: tuple[str, ...], *, library: str, reader: Reader
    ) -> tuple[tuple[SpecDirectory, ...], tuple[SpecFile, ...], SpecIndex]:
        """Return the directories and files of HOST in the order in which LIBRARY reads them for READER.

        The index is of those files that LIBRARY loads.
        """
        directories = spec_directories(host, spec_dirs, library=library, reader=reader)
        reading = _Reading(host, library, self._prepare, self._shows_changes)
        files = [file for each in directories for file in self._files_in(each, reading, reader)]
        loaded = [file for file in files if file.state == LOADED]
        key = (host.outer, spec_dirs, library, reader)
        index = self._indexes.pop(key, SpecIndex()).updated(loaded)
        _keep_last(self._indexes, key, index, most=_MOST_INDEXES)
        return tuple(directories), tuple(files), index

    def _files_in(self, directory: SpecDirectory, reading: _Reading, reader: Reader) -> list[SpecFile]:
        key = (reading.host.outer, directory.path, reading.library)
        known = self._kept.pop(key, {})
        if not directory.names:
            return []
        kept: dict[str, _Kept] = {}
        _keep_last(self._kept, key, kept, most=_MOST_DIRECTORIES)
        is_seen_by_all = reader.uid == 0 and not directory.problem
        files: list[SpecFile] = []
        with opened_directory(reading.host, directory) as folder:
            for name in directory.names if folder is not None else ():
                try:
                    # A third less than by the path, which the kernel would walk each time.
                    now = os.stat(name, dir_fd=folder, follow_symlinks=False)
                except OSError:
                    continue  # it was removed
                one = known.get(name)
                # With thousands of files each microsecond counts, and most are of this sort.
                if (
                    one is None
                    or one.identity != (now.st_dev, now.st_ino, now.st_ctime_ns, now.st_size)
                    or one.unsettled is not None
                ):
                    one = reading.file(directory.path, name, now, one)
                    if one is None:
                        continue
                if one.identity is not None and len(kept) < _MOST_FILES:
                    kept[name] = one
                if is_seen_by_all and one.is_seen:
                    files.append(one.file)
                else:
                    files += _as_seen(reading.host, one.file, directory, reader)
        return files


class _Reading:
    """One reading of files of HOST as root's runtime with LIBRARY reads them; see ``SpecCache``."""

    def __init__(
        self, host: Root, library: str, prepare: Prepare | None, shows_changes: Callable[[int, int], bool]
    ) -> None:
        self.host = host
        self._shows_changes = shows_changes
        self.library = library
        self._prepare = prepare
        self._room = _MOST_UNSETTLED

    def file(self, directory: str, name: str, status: os.stat_result, known: _Kept | None) -> _Kept | None:
        """Return the file NAME, whose STATUS was just read, KNOWN from before; None: there is none."""
        if stat.S_ISDIR(status.st_mode):
            return None
        path = f"{directory.rstrip('/')}/{name}"
        try:
            if stat.S_ISLNK(status.st_mode):
                status = self.host.stat(path)
            if known is not None and known.unsettled is None and known.identity == _identity(status):
                return known
            if stat.S_ISFIFO(status.st_mode):
                text = f"{shown(path)} is a FIFO: every runtime that looks for devices waits for it for ever"
                return _kept(
                    None, SpecFile(path=path, directory=directory, state="runtime-hangs", reason=text)
                )
            if status.st_size > MAX_SIZE:
                raise OSError(errno.EFBIG, "")
            return self._read(path, directory, known)
        except FileNotFoundError:
            if not stat.S_ISLNK(status.st_mode):
                return None
            text = f"{shown(path)} is a dangling link"
            return _kept(None, SpecFile(path=path, directory=directory, state="file-unreadable", reason=text))
        except OSError as error:
            return _kept(None, _unreadable(path, directory, error))

    def _read(self, path: str, directory: str, known: _Kept | None) -> _Kept:
        with self.host.open(path) as opened:
            # Both before the reading: a change during it, or while DATA is parsed, is then noticed.
            read_ns, identity = time.time_ns(), _identity(os.fstat(opened.descriptor))
            data = opened.read_all(MAX_SIZE)
        if known is not None and known.unsettled == data:
            file = known.file
        else:
            file = _parsed(path, directory, data, self.library, self._prepare)
        if self._shows_changes(identity[2], read_ns):
            return _kept(identity, file)
        self._room -= len(data)
        return _kept(identity, file, data) if self._room >= 0 else _kept(None, file)


def _kept(identity: Identity | None, file: SpecFile, unsettled: bytes | None = None) -> _Kept:
    is_seen = file.state == LOADED and file.path.endswith(SPEC_SUFFIXES)
    return _Kept(identity=identity, file=file, is_seen=is_seen, unsettled=unsettled)


def _keep_last(kept: dict[K, V], key: K, value: V, *, most: int) -> None:
    """Put VALUE last into KEPT, and remove the first beyond MOST."""
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]


def _as_seen(host: Root, file: SpecFile, directory: SpecDirectory, reader: Reader) -> list[SpecFile]:
    """Return FILE as READER finds it in DIRECTORY; nothing if only its name is like a spec's."""
    if not file.path.endswith(SPEC_SUFFIXES):
        text = f"{shown(file.path)} is not read by any runtime: its name must end in .json or .yaml"
        return [replace(file, state="file-name-ignored", reason=text)] if file.is_known else []
    if directory.problem:
        return [replace(file, state=directory.problem, reason=directory.reason)]
    if not may_read(host, file.path, reader):
        text = f"{shown(file.path)} cannot be read by the user with the id {reader.uid}"
        return [replace(file, state="file-unreadable", reason=text)]
    return [file]


_STATES = {
    "accept": LOADED,
    "reject": "file-refused",
    "panic": "runtime-crashes",
    "unknown": "file-uncertain",
}
_REASONS = {
    "reject": "{0} is refused by the CDI library {1}: see 'cdigen validate {0}'",
    "panic": "{0} makes the CDI library {1}, and so the runtime, crash",
    "unknown": "whether the CDI library {1} loads {0} is not known",
}
# The newest release stands for all: it loads what older ones load, except documents of version 0.1.0 or
# 0.2.0, empty lists of devices, and fields that 1.1.0 removed (docs/cdi.md).
_REASONS_OF_NEWEST = {
    "reject": "{0}: no runtime loads this file: {2}",
    "panic": "{0}: runtimes crash on this file: {2}",
    "unknown": "{0}: runtimes may refuse this file: {2}",
}


def _parsed(path: str, directory: str, data: bytes, library: str, prepare: Prepare | None) -> SpecFile:
    """Return the file PATH with the content DATA as LIBRARY reads it, and what PREPARE makes of it."""
    verdict, fault, document = _judged(data, library, is_yaml=is_yaml(path), is_shortened=prepare is None)
    kind, devices = names_in(document) if document else ("", ())
    reasons = _REASONS_OF_NEWEST if library == NEWEST_RELEASE else _REASONS
    prepared = prepare(document) if prepare and document is not None and verdict == "accept" else None
    return SpecFile(
        path=path,
        directory=directory,
        state=_STATES[verdict],
        reason=reasons.get(verdict, "").format(shown(path), library, fault),
        kind=kind,
        devices=devices,
        is_known=document is not None,
        prepared=prepared,
    )


def _judged(
    data: bytes, library: str, *, is_yaml: bool, is_shortened: bool
) -> tuple[str, str, dict[str, Any] | None]:
    """Return the verdict of LIBRARY on DATA, why it is not *accept*, and the document as LIBRARY reads it.

    IS_SHORTENED: fields that are not given need not be in it.
    """
    faults: tuple[Finding, ...] = ()
    if library == NEWEST_RELEASE and is_shortened:
        # The newest release loads every file that breaks no rule. Most break none, and need no emulation.
        checked = parse_and_check(data, yaml=is_yaml)
        faults = errors(checked.findings)
        if not faults:
            return "accept", "", checked.document
    # Imported here: it may need PyYAML (19 ms).
    from cdigen.cdi.loaders.emulation import loaded_document  # noqa: PLC0415

    parsed = parse_document(data, yaml=is_yaml)
    judged, document = loaded_document(data, library, parsed)
    # What is refused is at least known by its names.
    found = parsed.document if document is None else document
    return judged.verdict, _summary(faults) if faults else judged.reason, found


def names_in(document: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    """Return the kind and the devices of DOCUMENT, as far as they are valid."""
    kind, devices = document.get("kind"), document.get("devices")
    entries = devices if isinstance(devices, list) else []
    names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
    texts = dict.fromkeys(name for name in names if isinstance(name, str))
    return kind if isinstance(kind, str) else "", tuple(texts)


def _summary(faults: tuple[Finding, ...]) -> str:
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0].path}: {faults[0].message}{more}"


def _unreadable(path: str, directory: str, error: OSError) -> SpecFile:
    if error.errno == errno.EFBIG:
        text = f"{shown(path)} has more than {MAX_SIZE >> 20} MiB: what a runtime does with it is not known"
        return SpecFile(path=path, directory=directory, state="file-uncertain", reason=text)
    text = f"{shown(path)}: {reason(error)}"
    return SpecFile(path=path, directory=directory, state="file-unreadable", reason=text)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size
