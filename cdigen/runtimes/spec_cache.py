"""Read the files of spec directories as one release of the CDI library does, for one reader: ``SpecCache``.

The rules are those of pkg/cdi, scanSpecDirs (docs/cdi.md, "Directories"). Files that the library does not
load are read too, to report why. A file that has not changed is parsed once.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import time

from cdigen.cdi.library import NEWEST_RELEASE
from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.reader import MAX_SIZE, parse_document
from cdigen.host.root import reason, shown
from cdigen.model.findings import errors
from cdigen.model.names import SPEC_SUFFIXES, is_yaml
from cdigen.runtimes.users import may_list, may_read
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.runtimes.users import Reader

    # Device, inode, time of the last change in nanoseconds, size.
    Identity = tuple[int, int, int, int]

LOADED = "loaded"

# Wrong endings of specs, which no library reads; not those of backups, which are not meant to be read.
_SIMILAR = (".yml", ".yaml", ".json")
# How many files are kept, of some thousand bytes each; a host has some tens.
_MOST_KEPT = 4_000
# The kernel's clock for files advances in steps of up to 10 ms (CONFIG_HZ, before Linux 6.13 on every file
# system): a file that changes again within one step keeps its time.
_TICK_NS = 20_000_000


@frozen
class SpecFile:
    """A spec file: its path, whether it is loaded, and what it defines.

    ``state``: LOADED, or the rule (docs/rules.md) by which it is not, and ``reason`` in words. ``directory``
    is the one to which it is counted. ``is_known``: its kind and devices are known, loaded or not.
    """

    path: str
    directory: str
    state: str
    reason: str = ""
    kind: str = ""
    devices: tuple[str, ...] = ()
    is_known: bool = False


@frozen
class SpecDirectory:
    """A spec directory: ``problem`` is the rule by which it is not read, empty if it is read or missing.

    ``is_known``: its content could be read anyway. ``aliases``: other names under which it was listed before,
    which are ignored.
    """

    path: str
    problem: str = ""
    reason: str = ""
    is_known: bool = False
    identity: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


class SpecCache:
    """The content of spec files, cached: a file is read anew only after it has changed."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, str], tuple[Identity, SpecFile]] = {}

    def read(
        self, host: Root, spec_dirs: tuple[str, ...], *, library: str, reader: Reader
    ) -> tuple[tuple[SpecDirectory, ...], tuple[SpecFile, ...]]:
        """Return the directories and files of HOST in the order in which LIBRARY reads them for READER."""
        is_main = library == "main"
        follows_links = is_main or reader.follows_links
        directories = _without_aliases(
            [_directory(host, path, reader, follows_links=follows_links) for path in _listed(spec_dirs)]
        )
        directories = _stopped(directories) if is_main else directories
        files = [file for each in directories for file in self._files_in(host, each, library, reader)]
        return tuple(directories), tuple(files)

    def _files_in(self, host: Root, directory: SpecDirectory, library: str, reader: Reader) -> list[SpecFile]:
        if not directory.names:
            return []
        outer = host.outer_path(host.directory(directory.path)).rstrip("/")
        inner = directory.path.rstrip("/")
        files: list[SpecFile] = []
        for name in directory.names:
            path = f"{inner}/{name}"
            try:
                status = os.lstat(f"{outer}/{name}")
            except OSError:
                continue  # it was removed
            if stat.S_ISDIR(status.st_mode):
                continue
            file = self._file(host, path, directory.path, library, status)
            if file is not None:
                files += _as_seen(host, file, directory, reader)
        return files

    def _file(
        self, host: Root, path: str, directory: str, library: str, status: os.stat_result
    ) -> SpecFile | None:
        """Return the file PATH as root's runtime with LIBRARY reads it; None if it is gone."""
        try:
            if stat.S_ISLNK(status.st_mode):
                status = host.stat(path)
            key, identity = (host.outer, path, library), _identity(status)
            kept = self._kept.get(key)
            if kept is not None and kept[0] == identity:
                return kept[1]
            if stat.S_ISFIFO(status.st_mode):
                text = f"{shown(path)} is a FIFO: every runtime that looks for devices waits for it for ever"
                return SpecFile(path=path, directory=directory, state="runtime-hangs", reason=text)
            if status.st_size > MAX_SIZE:
                raise OSError(errno.EFBIG, "")
            with host.open(path) as opened:
                # Both before the reading: a change during it, or while DATA is parsed, is then noticed.
                read_ns, identity = time.time_ns(), _identity(os.fstat(opened.descriptor))
                data = opened.read_all(MAX_SIZE)
        except FileNotFoundError:
            if not stat.S_ISLNK(status.st_mode):
                return None
            text = f"{shown(path)} is a dangling link"
            return SpecFile(path=path, directory=directory, state="file-unreadable", reason=text)
        except OSError as error:
            return _unreadable(path, directory, error)
        file = _parsed(path, directory, data, library)
        # A file read so soon after its last change may change again and keep its time.
        if abs(read_ns - identity[2]) >= _TICK_NS:
            self._kept[key] = identity, file
            if len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return file


def spec_names(names: list[str]) -> tuple[str, ...]:
    """Return those of NAMES that a library reads from a spec directory, in its order."""
    return tuple(sorted((name for name in names if name.endswith(SPEC_SUFFIXES)), key=os.fsencode))


def _directory(host: Root, path: str, reader: Reader, *, follows_links: bool) -> SpecDirectory:
    if not path.startswith("/"):
        text = f"{shown(path)} is not an absolute path"
        return SpecDirectory(path=path, problem="not-a-directory", reason=text, is_known=True)
    try:
        real, status = host.located(path)
        if not stat.S_ISDIR(status.st_mode):
            text = f"{shown(path)} is not a directory"
            return SpecDirectory(path=path, problem="not-a-directory", reason=text, is_known=True)
        listed = [name for name in host.listdir(path) if name.lower().endswith(_SIMILAR)]
    except FileNotFoundError:
        return SpecDirectory(path=path)
    except OSError as error:
        text = f"{shown(path)}: {reason(error)}"
        return SpecDirectory(path=path, problem="directory-unreadable", reason=text)
    names = tuple(sorted(listed, key=os.fsencode))
    if not follows_links and is_link(host, path):
        text = (
            f"{shown(path)} is a link to {shown(real)}, and this release follows no link instead of "
            "a spec directory"
        )
        return SpecDirectory(path=path, problem="directory-symlink", reason=text, is_known=True, names=names)
    if not may_list(host, path, reader):
        text = f"{shown(path)} cannot be read by the user with the id {reader.uid}"
        return SpecDirectory(
            path=path, problem="directory-unreadable", reason=text, is_known=True, names=names
        )
    return SpecDirectory(path=path, identity=(status.st_dev, status.st_ino), names=names)


def is_link(host: Root, path: str) -> bool:
    """Return whether PATH of HOST itself is a link, whatever its target."""
    folder, _, name = path.rpartition("/")
    try:
        return os.path.islink(f"{host.outer_path(host.directory(folder or '/')).rstrip('/')}/{name}")
    except OSError:
        return False


def _listed(spec_dirs: tuple[str, ...]) -> list[str]:
    """Return the directories without repetitions, keeping the last, each in its shortest form."""
    cleaned = ["/" * path.startswith("/") + posixpath.normpath(path).lstrip("/") for path in spec_dirs]
    return [path for place, path in enumerate(cleaned) if path not in cleaned[place + 1 :]]


def _without_aliases(directories: list[SpecDirectory]) -> list[SpecDirectory]:
    """Return DIRECTORIES; of one that is listed under several names only the last, as if read once."""
    last = {each.identity: each.path for each in directories if each.identity}
    aliases: dict[str, list[str]] = {}
    for each in directories:
        if each.identity and last[each.identity] != each.path:
            aliases.setdefault(last[each.identity], []).append(each.path)
    return [
        replace(each, aliases=tuple(aliases.get(each.path, ())))
        for each in directories
        if not each.identity or last[each.identity] == each.path
    ]


def _stopped(directories: list[SpecDirectory]) -> list[SpecDirectory]:
    """Return DIRECTORIES as the library's main branch reads them: the first unreadable one ends the scan."""
    stop = next((place for place, each in enumerate(directories) if each.problem), None)
    if stop is None:
        return directories
    text = f"the scan ends at {shown(directories[stop].path)}: {directories[stop].reason}"
    after = [
        replace(each, problem="scan-stops", reason=text, is_known=True) for each in directories[stop + 1 :]
    ]
    return [*directories[: stop + 1], *after]


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


def _parsed(path: str, directory: str, data: bytes, library: str) -> SpecFile:
    """Return the file PATH with the content DATA as LIBRARY reads it."""
    verdict, fault, document = _judged(data, library, is_yaml=is_yaml(path))
    kind, devices = names_in(document) if document else ("", ())
    reasons = _REASONS_OF_NEWEST if library == NEWEST_RELEASE else _REASONS
    return SpecFile(
        path=path,
        directory=directory,
        state=_STATES[verdict],
        reason=reasons.get(verdict, "").format(shown(path), library, fault),
        kind=kind,
        devices=devices,
        is_known=document is not None,
    )


def _judged(data: bytes, library: str, *, is_yaml: bool) -> tuple[str, str, Mapping[str, object] | None]:
    """Return the verdict of LIBRARY on DATA, why it is not *accept*, and the document as LIBRARY reads it."""
    faults: tuple[Finding, ...] = ()
    if library == NEWEST_RELEASE:
        # The newest release loads every file that breaks no rule. Most break none, and need no emulation.
        checked = parse_and_check(data, yaml=is_yaml)
        faults = errors(checked.findings)
        if not faults:
            return "accept", "", checked.document
    # Imported here: it may need PyYAML (19 ms).
    from cdigen.cdi.loaders.emulation import loaded_document, loader_verdicts  # noqa: PLC0415

    parsed = parse_document(data, yaml=is_yaml)
    judged = loader_verdicts(data, yaml=is_yaml, versions=(library,), parsed=parsed)[library]
    fault = _summary(faults) if faults else judged.reason
    return judged.verdict, fault, loaded_document(data, library, parsed)


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
