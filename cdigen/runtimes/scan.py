"""Find out which devices a runtime finds in its spec directories, and why others are not found: ``scan``.

Only this module searches spec directories. It does so as one release of the CDI library, for one reader: by
default the newest release and root. Files that the library ignores are read too, so that the answer can name
the cause: a link, a wrong ending, a mode.
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

# With one of these, a runtime starts no container.
_FATAL = ("runtime-crashes", "runtime-hangs")
# Rules that a file inherits from its directory.
_OF_DIRECTORIES = ("directory-unreadable", "directory-symlink", "scan-stops")
_WARNINGS = ("file-name-ignored", "file-uncertain")
_SHOWN_NAMES, _MANY_NAMES = 6, 1_000


@frozen
class Resolution:
    """The resolution of one name.

    ``file``: where ``ok``, the file whose definition is used; else the file, or directory, that is the
    cause, empty where nothing defines the name at all. ``reason``: one line for people. ``rule``: empty
    where ``ok``, else the rule that the cause breaks (docs/rules.md), ``scan-stops`` where the library's main
    stops at a directory, ``unknown-device`` where the kind is there, ``unknown-kind``, ``no-specs``, or
    ``not-a-name``. ``files``: all files that define the name, in the order they are read, those that do not
    load too.
    """

    device: str
    ok: bool
    file: str
    reason: str
    rule: str
    files: tuple[str, ...] = ()


@frozen
class Definition:
    """A device as one file defines it; ``reason`` says why that definition is not used."""

    device: str
    kind: str
    name: str
    file: str
    usable: bool
    reason: str


@frozen
class SpecScan:
    """What one release of the library finds in the directories, for one reader.

    ``problems``: faults of single files and directories, even if no device is lost by them.
    ``files`` and ``directories``: what was read, in the order in which the library reads it. ``fatal``: the
    file at which the runtime crashes or hangs, so that it starts no container, if there is one. ``index``:
    the loaded files by the devices that they define.
    """

    problems: tuple[Finding, ...]
    files: tuple[SpecFile, ...]
    directories: tuple[SpecDirectory, ...]
    fatal: SpecFile | None
    index: SpecIndex

    @property
    def devices(self) -> tuple[tuple[str, str], ...]:
        """Pairs of each qualified name that resolves and its file, sorted as people expect."""
        return () if self.fatal else self.index.devices

    @property
    def names(self) -> dict[str, NameSet]:
        """The names of the devices that resolve, by their kinds."""
        return {} if self.fatal else {kind: index.names for kind, index in self.index.kinds.items()}

    def file(self, device: str) -> SpecFile | None:
        """Return the file that defines DEVICE (``vendor/class=device``) where that resolves, else None."""
        return None if self.fatal else self.index.file(device)

    @property
    def defining(self) -> tuple[SpecFile, ...]:
        """The files that the runtime opens and whose devices are known, whether they load or not."""
        passed_over = ("file-name-ignored", *_OF_DIRECTORIES)
        return tuple(file for file in self.files if file.is_known and file.state not in passed_over)

    def resolve(self, name: str) -> Resolution:
        """Return the resolution of NAME (``vendor/class=device``)."""
        kind, _, device = name.partition("=")
        vendor, _, class_ = kind.partition("/")
        # Names of one letter make the libraries crash on the request itself, up to 1.1.0 (issue 320).
        if not (is_vendor_or_class(vendor) and is_vendor_or_class(class_) and is_device_name(device)):
            text = f"{shown(name)!r} is not a name of the form vendor/class=device"
            return _failed(name, "not-a-name", "", text)
        having = [file for file in self.files if file.kind == kind and device in file.devices]
        paths = tuple(file.path for file in having)
        if fatal := self.fatal:
            return _failed(name, fatal.state, fatal.path, fatal.reason, paths)
        loaded = [file for file in having if file.state == LOADED]
        if conflict := conflict_of(loaded):
            both = " and ".join(shown(file.path) for file in conflict)
            text = f"{both} both define it, which makes it unresolvable whatever else defines it"
            return _failed(name, "conflict", conflict[0].path, text, paths)
        if loaded:
            return Resolution(device=name, ok=True, file=loaded[-1].path, reason="", rule="", files=paths)
        if having:
            # Files that a runtime opens are better causes than others.
            cause = ([file for file in having if file.state != "file-name-ignored"] or having)[-1]
            return _failed(name, cause.state, cause.path, cause.reason, paths)
        return self._nowhere(name, kind)

    def _nowhere(self, name: str, kind: str) -> Resolution:
        """Return why NAME is not found, which no readable file defines."""
        loaded = [file for file in self.files if file.state == LOADED]
        unknown = [file for file in self.files if file.state != LOADED and not file.is_known]
        may = f"; {unknown[-1].reason}, and may define it" if unknown else ""
        if of_kind := self.index.kinds.get(kind):
            return _failed(name, "unknown-device", "", f"{kind} has {_some(of_kind.holders)}{may}")
        if unknown:
            cause = unknown[-1]
            return _failed(name, cause.state, cause.path, f"{cause.reason}, and may define the device")
        for directory in reversed(self.directories):
            if directory.problem and not (directory.is_known and loaded):
                return _failed(name, directory.problem, directory.path, directory.reason)
        if loaded:
            kinds = {file.kind for file in loaded}
            return _failed(name, "unknown-kind", "", f"there are only specs of {_some(kinds)}")
        places = " and ".join(shown(directory.path) for directory in self.directories)
        return _failed(name, "no-specs", "", f"there are no specs in {places or 'any directory'}")

    def definitions(self) -> tuple[Definition, ...]:
        """Return every device as each file that the runtime opens defines it, sorted as people expect."""
        holders: dict[tuple[str, str], list[SpecFile]] = {}
        for file in self.defining:
            for name in file.devices:
                holders.setdefault((file.kind, name), []).append(file)
        fatal = self.fatal
        rows = []
        for kind, name in sorted(holders, key=lambda key: natural_key("=".join(key))):
            having = holders[kind, name]
            loaded = [file for file in having if file.state == LOADED]
            for file in having:
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
    """Return what LIBRARY (``1.0.1``, ``main``) finds in SPEC_DIRS of HOST, priority rising, for READER.

    HOST is this machine by default. CACHE keeps parsed files for the next scan, of other directories, for
    another library or another reader as well.
    """
    directories, files, index = (cache or SpecCache()).read(
        host or Root(), spec_dirs, library=library, reader=reader
    )
    # The files of an ignored directory share its one problem.
    ill = [file for file in files if file.state != LOADED and file.state not in _OF_DIRECTORIES]
    problems = [
        *(_problem(each.problem, each.path, each.reason) for each in directories if each.problem),
        *(_problem(file.state, file.path, file.reason) for file in ill),
        *_conflicts(index.conflicts()),
    ]
    return SpecScan(
        problems=tuple(problems),
        files=files,
        directories=directories,
        fatal=next((file for file in ill if file.state in _FATAL), None),
        index=index,
    )


def refusal(file: SpecFile) -> str:
    """Return why the runtime does not load FILE, without its path; nothing if it does."""
    return file.reason.removeprefix(f"{shown(file.path)}: ")


def _unused(file: SpecFile, loaded: list[SpecFile]) -> str:
    """Return why FILE, one of LOADED, which all define one device, is not used; nothing if it is."""
    if conflict := conflict_of(loaded):
        others = " and ".join(shown(other.path) for other in conflict if other is not file)
        if file in conflict:
            return f"{others} in the same directory defines it too, so no runtime resolves it"
        return f"two files of one directory define it ({others}), which makes it unresolvable everywhere"
    return "" if loaded[-1] is file else f"{shown(loaded[-1].path)} has priority"


def _failed(name: str, rule: str, file: str, reason: str, files: tuple[str, ...] = ()) -> Resolution:
    return Resolution(device=name, ok=False, file=file, reason=reason, rule=rule, files=files)


def _conflicts(names: dict[tuple[str, ...], list[str]]) -> list[Finding]:
    return [
        _problem("conflict", paths[0], f"{' and '.join(map(shown, paths))} both define {_some(lost)}")
        for paths, lost in sorted(names.items(), key=lambda item: [os.fsencode(path) for path in item[0]])
    ]


def _problem(rule: str, path: str, text: str) -> Finding:
    severity: Severity = "warning" if rule in _WARNINGS else "error"
    return Finding(severity=severity, rule=rule, path=path, message=text)


def _some(names: Collection[str]) -> str:
    few: Iterable[str] = names
    if len(names) > _MANY_NAMES:
        from heapq import nsmallest  # noqa: PLC0415 - few hosts have so many

        # Natural order takes 4 us for each name, and containers wait for it.
        few = nsmallest(_SHOWN_NAMES, names)
    ordered = sorted(few, key=natural_key)[:_SHOWN_NAMES]
    more = len(names) - len(ordered)
    return ", ".join(map(shown, ordered)) + (f" and {more} more" if more > 0 else "")
