"""Whether a runtime finds a device by its CDI name, and why not: ``resolve``, and ``SpecCache`` for many.

``lookup.scan`` looks for all runtimes alike; here one release of the library looks, for one reader. What is
passed over is read all the same, so that the answer can name the cause: a link, a wrong ending, a mode.
"""

from __future__ import annotations

import os

from cdigen.host.root import shown
from cdigen.model.findings import Finding
from cdigen.model.names import is_device_name, is_vendor_or_class, natural_key
from cdigen.runtimes.spec_cache import LOADED, SpecReader
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.host.root import Root
    from cdigen.model.findings import Severity
    from cdigen.runtimes.spec_cache import SpecDirectory, SpecFile
    from cdigen.runtimes.users import Reader


@frozen
class Resolution:
    """What became of one name.

    ``file``: where ``ok``, the file whose definition is used; else the file, or directory, that is the
    cause, empty where nothing defines the name at all. ``reason``: one line for people. ``rule``: empty
    where ``ok``, else the cause's stable name (``RULES``). ``files``: all files that define the name, in the
    order they are read, those that do not load too.
    """

    device: str
    ok: bool
    file: str
    reason: str
    rule: str
    files: tuple[str, ...] = ()


# The causes that Resolution.rule names, and what each says.
RULES: dict[str, str] = {
    "not-a-name": "the text is no CDI device name",
    "runtime-crashes": "a file makes this release crash, whatever is asked for",
    "runtime-hangs": "a FIFO makes this release wait for ever, whatever is asked for",
    "scan-stops": "a directory makes this release stop looking (main of the library only)",
    "conflict": "two files of one directory define the device",
    "file-refused": "only files that this release refuses define the device",
    "file-unreadable": "a file that cannot be read, by this reader or by anybody, may define the device",
    "directory-unreadable": "the device may be in a directory that cannot be read, by this reader or anybody",
    "directory-symlink": "the device is in a directory that is a link, which this release passes over",
    "not-a-directory": "a spec directory is no directory, and nothing else defines the device",
    "file-name-ignored": "the device is defined in a file whose name does not end in .json or .yaml",
    "file-uncertain": "only files of which nobody knows whether this release loads them define the device",
    "unknown-device": "the kind is there, the device is not",
    "unknown-kind": "no file defines the kind",
    "no-specs": "the directories hold no spec at all, or do not exist",
}
# A runtime that has met one of these starts no container.
_ENDS = ("runtime-crashes", "runtime-hangs")
_SHOWN_NAMES = 6


@frozen
class SpecScan:
    """What one release of the library makes of the directories, for one reader.

    ``devices``: pairs of each qualified name that resolves and its file, sorted as people expect.
    ``problems``: what is wrong with single files and directories, also where no device is lost to it.
    ``spec_files`` and ``folders``: what was read, in the order in which the library reads it.
    """

    devices: tuple[tuple[str, str], ...]
    problems: tuple[Finding, ...]
    spec_files: tuple[SpecFile, ...]
    folders: tuple[SpecDirectory, ...]

    def resolve(self, name: str) -> Resolution:
        """Return what becomes of NAME (``vendor/class=device``)."""
        kind, _, device = name.partition("=")
        vendor, _, class_ = kind.partition("/")
        # Names of one letter make the libraries crash on the request itself, up to 1.1.0 (issue 320).
        if not (is_vendor_or_class(vendor) and is_vendor_or_class(class_) and is_device_name(device)):
            text = f"{shown(name)!r} is no name of the form vendor/class=device"
            return _failed(name, "not-a-name", "", text)
        having = [
            spec_file
            for spec_file in self.spec_files
            if spec_file.kind == kind and device in spec_file.devices
        ]
        files = tuple(spec_file.path for spec_file in having)
        crashing = next((spec_file for spec_file in self.spec_files if spec_file.state in _ENDS), None)
        if crashing:
            return _failed(name, crashing.state, crashing.path, crashing.reason, files)
        loaded = [spec_file for spec_file in having if spec_file.state == LOADED]
        if conflict := conflict_of(loaded):
            paths = " and ".join(shown(spec_file.path) for spec_file in conflict)
            text = f"{paths} both define it, which makes it unresolvable whatever else defines it"
            return _failed(name, "conflict", conflict[0].path, text, files)
        if loaded:
            return Resolution(device=name, ok=True, file=loaded[-1].path, reason="", rule="", files=files)
        if having:
            # What a runtime looks at says more than a file that it never opens.
            cause = ([spec_file for spec_file in having if spec_file.state != "file-name-ignored"] or having)[
                -1
            ]
            return _failed(name, cause.state, cause.path, cause.reason, files)
        return self._nowhere(name, kind)

    def _nowhere(self, name: str, kind: str) -> Resolution:
        """Return why NAME is not found, of which nothing that could be read speaks."""
        loaded = [spec_file for spec_file in self.spec_files if spec_file.state == LOADED]
        unknown = [
            spec_file for spec_file in self.spec_files if spec_file.state != LOADED and not spec_file.is_known
        ]
        may = f"; {unknown[-1].reason}, and may define it" if unknown else ""
        if of_kind := {
            device for spec_file in loaded if spec_file.kind == kind for device in spec_file.devices
        }:
            return _failed(name, "unknown-device", "", f"{kind} has {_some(of_kind)}{may}")
        if unknown:
            cause = unknown[-1]
            return _failed(name, cause.state, cause.path, f"{cause.reason}, and may define the device")
        for folder in reversed(self.folders):
            if folder.problem and not (folder.is_known and loaded):
                return _failed(name, folder.problem, folder.path, folder.reason)
        if loaded:
            kinds = {spec_file.kind for spec_file in loaded}
            return _failed(name, "unknown-kind", "", f"there are specs of {_some(kinds)} alone")
        places = " and ".join(shown(folder.path) for folder in self.folders)
        return _failed(name, "no-specs", "", f"there are no specs in {places or 'any directory'}")


class SpecCache:
    """Spec directories of HOST for one look at it, each file read once however many views are made."""

    def __init__(self, host: Root) -> None:
        self._cache = SpecReader(host)

    def view(
        self, spec_dirs: tuple[str, ...], *, library: str, reader: Reader, follows_links: bool = False
    ) -> SpecScan:
        """Return what LIBRARY (``1.0.1``, ``main``) makes of SPEC_DIRS, priority rising, for READER."""
        folders, spec_files = self._cache.read(
            spec_dirs, library=library, reader=reader, follows_links=follows_links
        )
        holders: dict[str, list[SpecFile]] = {}
        for spec_file in spec_files:
            if spec_file.state == LOADED:
                for device in spec_file.devices:
                    holders.setdefault(f"{spec_file.kind}={device}", []).append(spec_file)
        crashes = any(spec_file.state in _ENDS for spec_file in spec_files)
        found = {
            name: having[-1].path
            for name, having in holders.items()
            if not crashes and not conflict_of(having)
        }
        return SpecScan(
            devices=tuple(sorted(found.items(), key=lambda pair: natural_key(pair[0]))),
            problems=(*_folder_problems(folders), *_file_problems(spec_files), *_conflicts(holders)),
            spec_files=spec_files,
            folders=folders,
        )


def resolve(name: str, spec_dirs: tuple[str, ...], *, host: Root, library: str, reader: Reader) -> Resolution:
    """Return what becomes of NAME alone; see ``SpecCache`` for several."""
    return SpecCache(host).view(spec_dirs, library=library, reader=reader).resolve(name)


def conflict_of(loaded: Iterable[SpecFile]) -> list[SpecFile]:
    """Return the files of LOADED, which all define one device, that lie in one directory; else nothing."""
    by_folder: dict[str, list[SpecFile]] = {}
    for spec_file in loaded:
        by_folder.setdefault(spec_file.folder, []).append(spec_file)
    return next((spec_files for spec_files in by_folder.values() if len(spec_files) > 1), [])


def _failed(name: str, rule: str, file: str, reason: str, files: tuple[str, ...] = ()) -> Resolution:
    return Resolution(device=name, ok=False, file=file, reason=reason, rule=rule, files=files)


def _folder_problems(folders: tuple[SpecDirectory, ...]) -> list[Finding]:
    return [_problem(folder.problem, folder.path, folder.reason) for folder in folders if folder.problem]


def _file_problems(spec_files: tuple[SpecFile, ...]) -> list[Finding]:
    # What lies in a directory that is passed over has its one problem there.
    own = [spec_file for spec_file in spec_files if spec_file.state not in {LOADED, *_OF_FOLDERS}]
    return [_problem(spec_file.state, spec_file.path, spec_file.reason) for spec_file in own]


_OF_FOLDERS = ("directory-unreadable", "directory-symlink", "scan-stops")


def _conflicts(holders: dict[str, list[SpecFile]]) -> list[Finding]:
    names: dict[tuple[str, ...], list[str]] = {}
    for name, having in holders.items():
        if conflict := conflict_of(having):
            names.setdefault(tuple(spec_file.path for spec_file in conflict), []).append(name)
    return [
        _problem(
            "conflict",
            paths[0],
            f"{' and '.join(map(shown, paths))} both define {_some(lost)}",
        )
        for paths, lost in sorted(names.items(), key=lambda item: [os.fsencode(path) for path in item[0]])
    ]


def _problem(rule: str, path: str, text: str) -> Finding:
    severity: Severity = "warning" if rule in {"file-name-ignored", "file-uncertain"} else "error"
    return Finding(severity=severity, rule=rule, path=path, message=text)


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names, key=natural_key)
    more = len(ordered) - _SHOWN_NAMES
    return ", ".join(map(shown, ordered[:_SHOWN_NAMES])) + (f" and {more} more" if more > 0 else "")
