"""Spec directories as one release of the CDI library reads them, file by file: ``SpecReader``.

The rules are those of pkg/cdi, scanSpecDirs (docs/cdi.md, "Directories"). Beside what is loaded it keeps what
is passed over, and why.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat

from cdigen.cdi.reader import MAX_SIZE, parse_document
from cdigen.host.root import reason, shown
from cdigen.runtimes.access import may_list, may_read
from cdigen.runtimes.specfile import EXTENSIONS, as_loaded, names_in
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.runtimes.users import Reader

LOADED = "loaded"
# What people mean for specs, but no library reads: .yml and .JSON above all. Not what lies aside on purpose.
_NEARLY = (".yml", ".yaml", ".json")
# Content that is kept for the next library; larger files are read anew.
_KEPT = 1 << 20
_MAX_FILES = 10_000


@frozen
class SpecFile:
    """A spec file: where it lies, whether it is loaded, and what it defines.

    ``state``: LOADED, or the rule of resolve.RULES by which it is not, and ``reason`` in words. ``folder`` is
    the directory that counts as its own. ``is_known``: its kind and devices are known, loaded or not.
    """

    path: str
    folder: str
    state: str
    reason: str = ""
    kind: str = ""
    devices: tuple[str, ...] = ()
    is_known: bool = False


@frozen
class SpecDirectory:
    """A spec directory: ``problem`` is the rule by which it gives nothing, empty where it is read or missing.

    ``is_known``: what is in it could be read all the same.
    """

    path: str
    problem: str = ""
    reason: str = ""
    is_known: bool = False
    identity: tuple[int, int] | None = None
    names: tuple[str, ...] = ()


class SpecReader:
    """The spec directories of HOST, for one look at it: content and verdicts are remembered."""

    def __init__(self, host: Root) -> None:
        self._host = host
        self._contents: dict[str, bytes] = {}
        self._spec_files: dict[tuple[str, str], SpecFile] = {}

    def read(
        self, spec_dirs: tuple[str, ...], *, library: str, reader: Reader, follows_links: bool
    ) -> tuple[tuple[SpecDirectory, ...], tuple[SpecFile, ...]]:
        """Return the directories and files in the order in which LIBRARY reads them for READER."""
        follows_links = follows_links or library == "main"
        folders = [self._folder(path, reader, follows_links=follows_links) for path in _listed(spec_dirs)]
        # One directory under two names is read twice, and the later name wins: as if it were read once.
        last = {folder.identity: folder.path for folder in folders if folder.identity}
        folders = [
            folder for folder in folders if not folder.identity or last[folder.identity] == folder.path
        ]
        folders = _stopped(folders) if library == "main" else folders
        spec_files: list[SpecFile] = []
        for folder in folders:
            spec_files += self._files_in(folder, library, reader)
        return tuple(folders), tuple(spec_files)

    def _folder(self, path: str, reader: Reader, *, follows_links: bool) -> SpecDirectory:
        if not path.startswith("/"):
            text = f"{shown(path)} is no absolute path"
            return SpecDirectory(path=path, problem="not-a-directory", reason=text, is_known=True)
        try:
            real, status = self._host.located(path)
        except FileNotFoundError:
            return SpecDirectory(path=path)
        except OSError as error:
            return SpecDirectory(
                path=path, problem="directory-unreadable", reason=f"{shown(path)}: {reason(error)}"
            )
        if not stat.S_ISDIR(status.st_mode):
            text = f"{shown(path)} is not a directory"
            return SpecDirectory(path=path, problem="not-a-directory", reason=text, is_known=True)
        try:
            names = tuple(sorted(self._host.listdir(path), key=os.fsencode)[:_MAX_FILES])
        except OSError as error:
            return SpecDirectory(
                path=path, problem="directory-unreadable", reason=f"{shown(path)}: {reason(error)}"
            )
        if not follows_links and self._is_link(path):
            text = (
                f"{shown(path)} is a link to {shown(real)}, and this release follows no link in the place of "
                "a spec directory"
            )
            return SpecDirectory(
                path=path, problem="directory-symlink", reason=text, is_known=True, names=names
            )
        if not may_list(self._host, path, reader):
            text = f"{shown(path)} cannot be read by the user with the id {reader.uid}"
            return SpecDirectory(
                path=path, problem="directory-unreadable", reason=text, is_known=True, names=names
            )
        return SpecDirectory(path=path, identity=(status.st_dev, status.st_ino), names=names)

    def _is_link(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        try:
            parent = self._host.directory(folder or "/").rstrip("/")
            return stat.S_ISLNK(os.lstat(self._host.outer_path(f"{parent}/{name}")).st_mode)
        except OSError:
            return False

    def _files_in(self, folder: SpecDirectory, library: str, reader: Reader) -> list[SpecFile]:
        spec_files: list[SpecFile] = []
        for name in folder.names:
            path = posixpath.join(folder.path, name)
            is_read = name.endswith(EXTENSIONS)
            if not (is_read or name.lower().endswith(_NEARLY)) or self._is_plain_folder(path):
                continue
            spec_file = self._read_file(path, library)
            if spec_file is None:
                continue
            spec_file = replace(spec_file, folder=folder.path)
            if not is_read:
                if spec_file.is_known:
                    spec_files.append(
                        replace(spec_file, state="file-name-ignored", reason=_MISNAMED.format(shown(path)))
                    )
                continue
            spec_files.append(self._as_seen(spec_file, folder, reader))
        return spec_files

    def _as_seen(self, spec_file: SpecFile, folder: SpecDirectory, reader: Reader) -> SpecFile:
        """Return BOOK as READER finds it in FOLDER."""
        if folder.problem:
            return replace(spec_file, state=folder.problem, reason=folder.reason)
        if not may_read(self._host, spec_file.path, reader):
            text = f"{shown(spec_file.path)} cannot be read by the user with the id {reader.uid}"
            return replace(spec_file, state="file-unreadable", reason=text)
        return spec_file

    def _is_plain_folder(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(self._host.stat(path).st_mode) and not self._is_link(path)
        except OSError:
            return False

    def _read_file(self, path: str, library: str) -> SpecFile | None:
        """Return the file PATH as root's runtime with LIBRARY reads it; None where it is gone."""
        if (path, library) not in self._spec_files:
            try:
                spec_file = self._waiting(path) or self._judged(path, self._content(path), library)
            except FileNotFoundError:
                if not self._is_link(path):
                    return None
                text = f"{shown(path)} is a link that leads nowhere"
                spec_file = SpecFile(path=path, folder="", state="file-unreadable", reason=text)
            except OSError as error:
                spec_file = _unreadable(path, error)
            self._spec_files[path, library] = spec_file
        return self._spec_files[path, library]

    def _waiting(self, path: str) -> SpecFile | None:
        """Return PATH where it is a FIFO, at which every library waits for somebody to write to it."""
        if not stat.S_ISFIFO(self._host.stat(path).st_mode):
            return None
        text = f"{shown(path)} is a FIFO: every runtime that looks for devices waits at it for ever"
        return SpecFile(path=path, folder="", state="runtime-hangs", reason=text)

    def _content(self, path: str) -> bytes:
        if path in self._contents:
            return self._contents[path]
        content = self._host.read(path, limit=MAX_SIZE)
        if len(content) <= _KEPT:
            self._contents[path] = content
        return content

    def _judged(self, path: str, data: bytes, library: str) -> SpecFile:
        from cdigen.cdi.loaders.emulation import verdicts  # noqa: PLC0415 - it may need PyYAML (19 ms)

        is_yaml = not path.lower().endswith(".json")
        verdict = verdicts(data, yaml=is_yaml, versions=(library,))[library]
        document = as_loaded(data, parse_document(data, yaml=is_yaml).document, library)
        kind, devices = names_in(document) if document else ("", ())
        state, text = _STATES[verdict]
        return SpecFile(
            path=path,
            folder="",
            state=state,
            reason=text.format(shown(path), library),
            kind=kind,
            devices=devices,
            is_known=document is not None,
        )


_STATES = {
    "accept": (LOADED, ""),
    "reject": ("file-refused", "{0} is refused by the CDI library {1}: see 'cdigen validate {0}'"),
    "panic": ("runtime-crashes", "{0} makes the CDI library {1}, and so the runtime, crash"),
    "unknown": ("file-uncertain", "whether the CDI library {1} loads {0} is not known"),
}
_MISNAMED = "{} is not read by any runtime: its name must end in .json or .yaml"


def _unreadable(path: str, error: OSError) -> SpecFile:
    if error.errno == errno.EFBIG:
        text = f"{shown(path)} has more than {MAX_SIZE >> 20} MiB: what a runtime does with it is not known"
        return SpecFile(path=path, folder="", state="file-uncertain", reason=text)
    return SpecFile(path=path, folder="", state="file-unreadable", reason=f"{shown(path)}: {reason(error)}")


def _listed(spec_dirs: tuple[str, ...]) -> list[str]:
    """Return the directories without repetitions, of which the last counts, each in its shortest form."""
    cleaned = [posixpath.normpath(path) for path in spec_dirs]
    return [path for place, path in enumerate(cleaned) if path not in cleaned[place + 1 :]]


def _stopped(folders: list[SpecDirectory]) -> list[SpecDirectory]:
    """Return FOLDERS as the library's main has them: the first that it cannot read ends the scan."""
    stop = next((place for place, folder in enumerate(folders) if folder.problem), None)
    if stop is None:
        return folders
    text = f"the scan ends at {shown(folders[stop].path)}: {folders[stop].reason}"
    after = [
        replace(folder, problem="scan-stops", reason=text, is_known=True) for folder in folders[stop + 1 :]
    ]
    return [*folders[: stop + 1], *after]
