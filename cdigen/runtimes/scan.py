"""Find the devices that a runtime finds in its spec directories, and the reasons for lost devices.

Only this module searches spec directories. It behaves like a release of the CDI library for one reader
(``users.Reader``). The defaults are the newest release and root. The module also reads files that the library
ignores. So the result can name the cause of a lost device, such as a link, a wrong suffix or a mode.
"""

from __future__ import annotations

import os

from cdigen.cdi.library import NEWEST_RELEASE
from cdigen.host.root import Root, shown
from cdigen.model.findings import Finding
from cdigen.model.names import is_device_name, is_vendor_or_class, natural_key
from cdigen.runtimes.spec_cache import LOADED, SpecCache
from cdigen.runtimes.spec_index import conflict_of
from cdigen.runtimes.users import ROOT
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cdigen.model.findings import Severity
    from cdigen.model.names import NameSet
    from cdigen.runtimes.spec_cache import SpecFile
    from cdigen.runtimes.spec_directories import SpecDirectory
    from cdigen.runtimes.spec_index import SpecIndex
    from cdigen.runtimes.users import Reader

# A runtime starts no container if a file is in one of these states.
_FATAL = ("runtime-crashes", "runtime-hangs")
# The rules that a file inherits from its directory.
_OF_DIRECTORIES = ("directory-unreadable", "directory-symlink", "scan-stops")
_WARNINGS = ("file-name-ignored", "file-uncertain")
_SHOWN_NAMES, _MANY_NAMES = 6, 1_000


@frozen
class Resolution:
    """The resolution of a name.

    If ``ok`` is true, ``file`` is the file whose definition is used, and ``rule`` is empty. Otherwise
    ``file`` is the file or directory that causes the failure. ``file`` is empty if no file defines the name.
    ``reason`` is one line of text. ``files`` are all files that define the name, in the order in which they
    are read. Some of these files may not be loaded.

    ``rule`` is the rule that the cause violates (docs/reference/findings.md), or one of these values:

    - ``scan-stops``: the library's main branch stops at a directory.
    - ``unknown-device``: the kind exists, but not the device.
    - ``unknown-kind``: no spec has the kind.
    - ``no-specs``: there are no specs.
    - ``not-a-name``: the name has the wrong form.
    """

    device: str
    ok: bool
    file: str
    reason: str
    rule: str
    files: tuple[str, ...] = ()


@frozen
class Definition:
    """A device as a file defines it; ``reason`` is the reason if the definition is not used."""

    device: str
    kind: str
    name: str
    file: str
    usable: bool
    reason: str


@frozen
class SpecScan:
    """The result of a scan of the spec directories by a release of the library, for one reader.

    ``problems`` are the faults of files and directories, also of files that define no device, and the
    conflicts of files. ``files`` and ``directories`` have all files and directories that were read, in the
    order of the library. ``fatal`` is a file on which the runtime crashes or hangs, so that the runtime
    starts no container. ``index`` has the loaded files by their devices.
    """

    problems: tuple[Finding, ...]
    files: tuple[SpecFile, ...]
    directories: tuple[SpecDirectory, ...]
    fatal: SpecFile | None
    index: SpecIndex

    @property
    def devices(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a qualified name that resolves and its file, in natural order."""
        return () if self.fatal else self.index.devices

    @property
    def names(self) -> dict[str, NameSet]:
        """The names of the devices that resolve, by kind."""
        return {} if self.fatal else {kind: index.names for kind, index in self.index.kinds.items()}

    def file(self, device: str) -> SpecFile | None:
        """Return the file that defines DEVICE (``vendor/class=device``) if it resolves, else None."""
        return None if self.fatal else self.index.file(device)

    @property
    def defining(self) -> tuple[SpecFile, ...]:
        """The files with known devices that the runtime opens; some of the files may not be loaded."""
        ignored = ("file-name-ignored", *_OF_DIRECTORIES)
        return tuple(file for file in self.files if file.is_known and file.state not in ignored)

    def resolve(self, name: str) -> Resolution:
        """Return the resolution of NAME (``vendor/class=device``)."""
        kind, _, device = name.partition("=")
        vendor, _, class_ = kind.partition("/")
        # Up to 1.1.0, the libraries crash on a request for a name with one letter (issue 320).
        if not (is_vendor_or_class(vendor) and is_vendor_or_class(class_) and is_device_name(device)):
            text = f"{shown(name)!r} is not a name of the form vendor/class=device"
            return _failed(name, "not-a-name", "", text)
        defining = [file for file in self.files if file.kind == kind and device in file.devices]
        paths = tuple(file.path for file in defining)
        if fatal := self.fatal:
            return _failed(name, fatal.state, fatal.path, fatal.reason, paths)
        loaded = [file for file in defining if file.state == LOADED]
        if conflict := conflict_of(loaded):
            both = " and ".join(shown(file.path) for file in conflict)
            text = f"{both} both define the device, so no runtime resolves the device from any file"
            return _failed(name, "conflict", conflict[0].path, text, paths)
        if loaded:
            return Resolution(device=name, ok=True, file=loaded[-1].path, reason="", rule="", files=paths)
        if defining:
            # A file that a runtime opens is more likely to be the cause than a file with an ignored name.
            cause = ([file for file in defining if file.state != "file-name-ignored"] or defining)[-1]
            return _failed(name, cause.state, cause.path, cause.reason, paths)
        return self._not_found(name, kind)

    def _not_found(self, name: str, kind: str) -> Resolution:
        """Return the failed resolution of NAME, which no readable file defines."""
        loaded = [file for file in self.files if file.state == LOADED]
        unknown = [file for file in self.files if file.state != LOADED and not file.is_known]
        may = f"; {unknown[-1].reason}; this file may define the device" if unknown else ""
        if of_kind := self.index.kinds.get(kind):
            return _failed(name, "unknown-device", "", f"{kind} has {some(of_kind.specs)}{may}")
        if unknown:
            cause = unknown[-1]
            return _failed(name, cause.state, cause.path, f"{cause.reason}; this file may define the device")
        for directory in reversed(self.directories):
            if directory.problem and not (directory.is_known and loaded):
                return _failed(name, directory.problem, directory.path, directory.reason)
        if loaded:
            kinds = {file.kind for file in loaded}
            return _failed(name, "unknown-kind", "", f"all specs are of {some(kinds)}")
        places = " and ".join(shown(directory.path) for directory in self.directories)
        return _failed(name, "no-specs", "", f"there are no specs in {places or 'any directory'}")

    def definitions(self) -> tuple[Definition, ...]:
        """Return every definition of a device in the files that the runtime opens, in natural order."""
        by_name: dict[tuple[str, str], list[SpecFile]] = {}
        for file in self.defining:
            for name in file.devices:
                by_name.setdefault((file.kind, name), []).append(file)
        fatal = self.fatal
        rows = []
        for kind, name in sorted(by_name, key=lambda key: natural_key("=".join(key))):
            defining = by_name[kind, name]
            loaded = [file for file in defining if file.state == LOADED]
            for file in defining:
                reason = refusal(file) or (fatal.reason if fatal else _unused(file, loaded))
                row = Definition(
                    device=f"{kind}={name}",
                    kind=kind,
                    name=name,
                    file=file.path,
                    usable=not reason,
                    reason=reason,
                )
                rows.append(row)
        return tuple(rows)


def scan(
    spec_dirs: tuple[str, ...],
    host: Root | None = None,
    *,
    library: str = NEWEST_RELEASE,
    reader: Reader = ROOT,
    cache: SpecCache | None = None,
) -> SpecScan:
    """Return the result of a scan of SPEC_DIRS of HOST by LIBRARY for READER.

    SPEC_DIRS are in rising priority. HOST is this machine by default. LIBRARY is a release such as ``1.0.1``,
    or ``main``. CACHE keeps parsed files for later scans, also for other directories, libraries or readers.
    """
    directories, files, index = (cache or SpecCache()).read(
        host or Root(), spec_dirs, library=library, reader=reader
    )
    # An ignored directory has one problem for all its files.
    faulty = [file for file in files if file.state != LOADED and file.state not in _OF_DIRECTORIES]
    problems = [
        *(_problem(each.problem, each.path, each.reason) for each in directories if each.problem),
        *(_problem(file.state, file.path, file.reason) for file in faulty),
        *_conflicts(index.conflicts()),
    ]
    return SpecScan(
        problems=tuple(problems),
        files=files,
        directories=directories,
        fatal=next((file for file in faulty if file.state in _FATAL), None),
        index=index,
    )


def unresolved(found: SpecScan, names: Iterable[str]) -> tuple[Finding, ...]:
    """Return an error for each reason why a runtime does not find devices of NAMES in the scan FOUND."""
    if fatal := found.fatal:
        return (_unresolved(fatal.state, fatal.path, fatal.reason),) if any(names) else ()
    lost: dict[tuple[str, str, str], list[str]] = {}
    for name in names:
        if found.file(name) is None:
            why = found.resolve(name)
            lost.setdefault((why.rule, why.file, why.reason), []).append(name)
    return tuple(
        _unresolved(rule, path, f"no runtime finds {some(devices)}: {text}")
        for (rule, path, text), devices in lost.items()
    )


def _unresolved(rule: str, path: str, text: str) -> Finding:
    hint = "'cdigen doctor' prints the command that corrects the problem"
    return Finding(severity="error", rule=rule, path=path, message=text, hint=hint)


def refusal(file: SpecFile) -> str:
    """Return the reason why the runtime does not load FILE, without the path; empty for a loaded FILE."""
    return file.reason.removeprefix(f"{shown(file.path)}: ")


def _unused(file: SpecFile, loaded: list[SpecFile]) -> str:
    """Return the reason why FILE is not used; empty if it is used.

    All files in LOADED define the same device.
    """
    if conflict := conflict_of(loaded):
        others = " and ".join(shown(other.path) for other in conflict if other is not file)
        if file in conflict:
            return f"{others} in the same directory defines the device too, so no runtime resolves the device"
        return f"two files of one directory define the device ({others}), so no runtime resolves the device"
    return "" if loaded[-1] is file else f"{shown(loaded[-1].path)} has priority"


def _failed(name: str, rule: str, file: str, reason: str, files: tuple[str, ...] = ()) -> Resolution:
    return Resolution(device=name, ok=False, file=file, reason=reason, rule=rule, files=files)


def _conflicts(names: dict[tuple[str, ...], list[str]]) -> list[Finding]:
    return [
        _problem("conflict", paths[0], f"{' and '.join(map(shown, paths))} both define {some(lost)}")
        for paths, lost in sorted(names.items(), key=lambda item: [os.fsencode(path) for path in item[0]])
    ]


def _problem(rule: str, path: str, text: str) -> Finding:
    severity: Severity = "warning" if rule in _WARNINGS else "error"
    return Finding(severity=severity, rule=rule, path=path, message=text)


def some(names: Collection[str]) -> str:
    """Return the first of NAMES in natural order, and the number of the remaining names."""
    few: Iterable[str] = names
    if len(names) > _MANY_NAMES:
        from heapq import nsmallest  # noqa: PLC0415 - few hosts have so many names

        # The natural order takes 4 us for each name, and the start of containers waits for the result.
        few = nsmallest(_SHOWN_NAMES, names)
    ordered = sorted(few, key=natural_key)[:_SHOWN_NAMES]
    more = len(names) - len(ordered)
    return ", ".join(map(shown, ordered)) + (f" and {more} more" if more > 0 else "")
