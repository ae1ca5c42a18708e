"""Read the files of spec directories as a release of the CDI library does, for one reader.

The rules are the rules of pkg/cdi, scanSpecDirs (docs/reference/cdi-loaders.md, "Directories"). The cache
also reads files that the library does not load, to report the reason. A file is parsed again only after it
has changed. A host can have thousands of files, and a new file before each container. From each unchanged
file, the cache reads only the status.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from cdigen.cdi.library import NEWEST_RELEASE, RELEASES, newest_version, release_of
from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.reader import MAX_SIZE, parse_document
from cdigen.cdi.version import is_newer, minimum_version
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
    # (device, inode, time of the last change in nanoseconds, size) of a file.
    Identity = tuple[int, int, int, int]
    Prepare = Callable[[dict[str, Any]], object]

LOADED = "loaded"

# The limits of the cache: files in a directory, directories, and indexes. A directory that is read for two
# libraries has two entries. An entry for a file has about a thousand bytes. A host has tens of files, and a
# DRA driver adds a file for each claim.
_MOST_FILES = 4_000
_MOST_DIRECTORIES = _MOST_INDEXES = 32
# The limit in bytes for the content of unsettled files. An unsettled file was read so soon after a change
# that its time may not show the next change. The next read compares its content.
_MOST_UNSETTLED = 1 << 20


@frozen
class SpecFile:
    """A spec file: its path, its state, its kind and its devices.

    ``state`` is LOADED, or the rule (docs/reference/findings.md) that prevents the load of the file.
    ``reason`` is a text about this problem. ``directory`` is the spec directory of the file. ``is_known`` is
    true if the kind and the devices are known, even if the file is not loaded. ``prepared`` is the result of
    PREPARE for the document of a loaded file (``SpecCache``).
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
    """A parsed file in the cache, with the identity that the file had when it was read.

    If ``identity`` is None, the file must be read again in any case. ``is_loadable`` is true if a runtime
    with read permission for the directory and the file loads the file. ``unsettled`` is the content of a file
    that changed immediately before the read. Two changes within one step of the clock give the same identity.
    """

    identity: Identity | None
    file: SpecFile
    is_loadable: bool
    unsettled: bytes | None = None


class SpecCache:
    """A cache of parsed spec files; a file is parsed again only after it has changed.

    The cache drops removed files, and does not keep documents. PREPARE converts each loaded document, as the
    library decodes it, to the value that the caller needs (``SpecFile.prepared``). SHOWS_CHANGES receives a
    file's time of change and the time of the read. SHOWS_CHANGES returns whether a later change would get
    another time of change.
    """

    def __init__(
        self,
        prepare: Prepare | None = None,
        *,
        shows_changes: Callable[[int, int], bool] = shows_changes,
    ) -> None:
        self._prepare = prepare
        self._shows_changes = shows_changes
        # (tree, directory, library) -> files by name.
        self._kept: dict[tuple[str, str, str], dict[str, _Kept]] = {}
        self._indexes: dict[tuple[str, tuple[str, ...], str, Reader], SpecIndex] = {}

    def read(
        self, host: Root, spec_dirs: tuple[str, ...], *, library: str, reader: Reader
    ) -> tuple[tuple[SpecDirectory, ...], tuple[SpecFile, ...], SpecIndex]:
        """Return the directories and files of HOST in the order in which LIBRARY reads them for READER.

        The third part of the result is the index of the files that LIBRARY loads.
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
        is_readable = reader.uid == 0 and not directory.problem
        files: list[SpecFile] = []
        with opened_directory(reading.host, directory) as folder:
            for name in directory.names if folder is not None else ():
                try:
                    # A descriptor takes a third less time than a path, because the kernel would resolve the
                    # path each time.
                    now = os.stat(name, dir_fd=folder, follow_symlinks=False)
                except OSError:
                    continue  # the file was removed
                entry = known.get(name)
                # This code is inline, because with thousands of files each function call takes time.
                if (
                    entry is None
                    or entry.identity != (now.st_dev, now.st_ino, now.st_ctime_ns, now.st_size)
                    or entry.unsettled is not None
                ):
                    entry = reading.file(directory.path, name, now, entry)
                    if entry is None:
                        continue
                if entry.identity is not None and len(kept) < _MOST_FILES:
                    kept[name] = entry
                if is_readable and entry.is_loadable:
                    files.append(entry.file)
                else:
                    files += _for_reader(reading.host, entry.file, directory, reader)
        return files


class _Reading:
    """One read of the files of HOST, as a runtime of root with LIBRARY reads them (see ``SpecCache``)."""

    def __init__(
        self, host: Root, library: str, prepare: Prepare | None, shows_changes: Callable[[int, int], bool]
    ) -> None:
        self.host = host
        self._shows_changes = shows_changes
        self.library = library
        self._prepare = prepare
        self._unsettled_left = _MOST_UNSETTLED

    def file(self, directory: str, name: str, status: os.stat_result, known: _Kept | None) -> _Kept | None:
        """Return the file NAME with STATUS; None if the file does not exist.

        KNOWN is the entry of the file in the cache, or None.
        """
        if stat.S_ISDIR(status.st_mode):
            return None
        path = f"{directory.rstrip('/')}/{name}"
        try:
            if stat.S_ISLNK(status.st_mode):
                status = self.host.stat(path)
            if known is not None and known.unsettled is None and known.identity == _identity(status):
                return known
            if stat.S_ISFIFO(status.st_mode):
                text = f"{shown(path)} is a FIFO: every runtime that searches for devices hangs"
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
            # Time and identity are read before the content, so that a change during the read or the parse is
            # detected.
            read_ns, identity = time.time_ns(), _identity(os.fstat(opened.descriptor))
            data = opened.read_all(MAX_SIZE)
        if known is not None and known.unsettled == data:
            file = known.file
        else:
            file = _parsed(path, directory, data, self.library, self._prepare)
        if self._shows_changes(identity[2], read_ns):
            return _kept(identity, file)
        self._unsettled_left -= len(data)
        return _kept(identity, file, data) if self._unsettled_left >= 0 else _kept(None, file)


def _kept(identity: Identity | None, file: SpecFile, unsettled: bytes | None = None) -> _Kept:
    is_loadable = file.state == LOADED and file.path.endswith(SPEC_SUFFIXES)
    return _Kept(identity=identity, file=file, is_loadable=is_loadable, unsettled=unsettled)


def _keep_last(kept: dict[K, V], key: K, value: V, *, most: int) -> None:
    """Append VALUE to KEPT, and remove the first value if KEPT has more than MOST values."""
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]


def _for_reader(host: Root, file: SpecFile, directory: SpecDirectory, reader: Reader) -> list[SpecFile]:
    """Return FILE with its state for READER in DIRECTORY.

    The result is empty if no runtime reads files with this suffix and the file contains no spec.
    """
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
    "reject": "{0}: the CDI library {1} refuses this file: see 'cdigen validate {0}'",
    "panic": "{0}: the CDI library {1}, and so the runtime, crashes on this file",
    "unknown": "{0}: it is unknown whether the CDI library {1} loads this file",
}
# The newest release represents all releases, because it loads the files that older releases load. The
# exceptions are documents of version 0.1.0 or 0.2.0, empty lists of devices, and fields that 1.1.0 removed
# (docs/reference/cdi-loaders.md).
_REASONS_OF_NEWEST = {
    "reject": "{0}: no runtime loads this file: {2}",
    "panic": "{0}: runtimes crash on this file: {2}",
    "unknown": "{0}: runtimes may refuse this file: {2}",
}


def _parsed(path: str, directory: str, data: bytes, library: str, prepare: Prepare | None) -> SpecFile:
    """Return the file PATH with the content DATA as LIBRARY reads it, with the result of PREPARE."""
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
    """Return the verdict of LIBRARY on DATA, the reason of a verdict other than accept, and the document.

    If IS_SHORTENED is true, the document may lack fields that DATA does not set.
    """
    faults: tuple[Finding, ...] = ()
    if library == NEWEST_RELEASE and is_shortened:
        # The newest release loads every file that violates no rule. Most files need no emulation.
        checked = parse_and_check(data, yaml=is_yaml)
        faults = errors(checked.findings)
        if not faults:
            return "accept", "", checked.document
    # The import is here because it may import PyYAML (19 ms).
    from cdigen.cdi.loaders.emulation import loaded_document  # noqa: PLC0415

    parsed = parse_document(data, yaml=is_yaml)
    if library and release_of(library) is None and _is_for_older(data, library, is_yaml=is_yaml):
        # Podman 4.1 and CRI-O 1.24 have libraries that are older than the first observed library. Such a
        # library reads spec versions up to its own version like the first observed library. It rejects later
        # spec versions (pkg/cdi, validSpecVersions).
        library = RELEASES[0]
    judged, document = loaded_document(data, library, parsed)
    # For a rejected file, the document is used only for the names.
    found = parsed.document if document is None else document
    return judged.verdict, _summary(faults) if faults else judged.reason, found


def _is_for_older(data: bytes, library: str, *, is_yaml: bool) -> bool:
    """Return whether DATA violates no rule of CDI and needs no later version than LIBRARY supports."""
    reading = parse_and_check(data, yaml=is_yaml)
    if reading.document is None or errors(reading.findings):
        return False
    newest = newest_version(library)
    return not any(
        is_newer(version, newest)
        for version in (reading.document["cdiVersion"], minimum_version(reading.document))
    )


def names_in(document: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    """Return the kind and the devices of DOCUMENT; parts with a wrong type are omitted."""
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
        text = f"{shown(path)} has more than {MAX_SIZE >> 20} MiB: it is unknown whether runtimes load it"
        return SpecFile(path=path, directory=directory, state="file-uncertain", reason=text)
    text = f"{shown(path)}: {reason(error)}"
    return SpecFile(path=path, directory=directory, state="file-unreadable", reason=text)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size
