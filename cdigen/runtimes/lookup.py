"""Spec directories as the CDI library in the runtimes reads them: ``scan``, and ``clashes`` for a writer.

The rules are those of pkg/cdi, scanSpecDirs and Cache.refresh, alike in all releases up to 1.1.0
(docs/cdi.md, "Directories"): directories in order of rising priority, a missing or symlinked one is no error
and gives nothing; in each the files that end in .json or .yaml, sorted, never below; a file that does
not load counts as absent. A device that two files of one directory define is unresolvable, even where
a directory of higher priority defines it once; else the last directory that defines it wins.
"""

from __future__ import annotations

import os
import posixpath
import stat

from cdigen.host.root import shown
from cdigen.model.findings import Finding
from cdigen.model.names import natural_key
from cdigen.runtimes.specfile import EXTENSIONS, read_spec_file
from cdigen.store.directory import clean_path
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.runtimes.specfile import ParsedSpec

_SHOWN_NAMES = 6
# The daemon moves nothing of others: that is for whoever has looked at it.
_REPLACE = "cdigen generate --write --replace-foreign"


@frozen
class Row:
    """A device as one file defines it; ``reason`` says why that definition is not the one in use."""

    device: str
    kind: str
    name: str
    file: str
    usable: bool
    reason: str


@frozen
class Lookup:
    """What the runtimes find in the directories, and the files in them that they do not load.

    ``directories`` are those that were given, priority rising, missing ones too; ``aliases`` are pairs
    of a directory that was given earlier under another name and the one of these that stands for it.
    """

    directories: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...]
    specs: tuple[ParsedSpec, ...]
    rows: tuple[Row, ...]
    problems: tuple[Finding, ...]


def scan(directories: tuple[str, ...]) -> Lookup:
    """Read DIRECTORIES, the last with the highest priority. ConfigError: one of them is not absolute."""
    listed = tuple(reversed(dict.fromkeys(reversed([clean_path(directory) for directory in directories]))))
    places = tuple(map(_place, listed))
    aliases = _aliases(places)
    problems = [place.problem for place in places if place.problem]
    specs: list[ParsedSpec] = []
    for place in places:
        if place.identity is None or place.path in aliases:
            continue
        names, unlisted = _names(place.path)
        problems += unlisted
        for name in names:
            spec, unloaded = read_spec_file(place.path, name)
            specs += spec
            problems += unloaded
    order = tuple(path for path in listed if path not in aliases)
    return Lookup(
        directories=order,
        aliases=tuple(aliases.items()),
        specs=tuple(specs),
        rows=_rows(order, specs),
        problems=tuple(problems),
    )


def clashes(
    lookup: Lookup, *, directory: str, file_name: str, kind: str, device_names: Iterable[str]
) -> tuple[Finding, ...]:
    """Return what a write of KIND with DEVICE_NAMES into FILE_NAME of DIRECTORY would meet.

    Errors are what the write itself would break: devices shared with another file of the directory
    (``foreign-same-directory``). Warnings are what it meets elsewhere: ``foreign-shadowed`` below,
    ``foreign-shadows-ours`` above, ``foreign-conflict`` where two other files hide our devices between
    them. An info is a file below that only shares the kind (``foreign-same-kind``). A DIRECTORY that
    was not given to ``scan`` counts as the one with the highest priority.
    """
    place = clean_path(directory)
    place = dict(lookup.aliases).get(place, place)
    target = posixpath.join(place, file_name)
    rank = {name: number for number, name in enumerate(lookup.directories)}
    ours = dict.fromkeys(device_names)
    others = [spec for spec in lookup.specs if spec.kind == kind and spec.path != target]
    found: list[Finding] = []
    for spec in others:
        shared = tuple(name for name in spec.devices if name in ours)
        if spec.directory == place:
            found += _beside(spec, shared)
        elif spec.refusal:
            continue
        elif rank[spec.directory] < rank.get(place, len(rank)):
            left = tuple(name for name in spec.devices if name not in ours and _winner(others, name) is spec)
            found += _below(spec, shared, left)
        elif shared:
            found += _above(spec, shared)
    return (*found, *_conflicts_elsewhere(others, place, ours))


@frozen
class _Place:
    # A directory as it was listed. IDENTITY is the same for one directory under two names, and None
    # where runtimes find nothing: no directory there, or one that they do not follow or cannot read.
    path: str
    identity: tuple[int, int] | None = None
    problem: Finding | None = None


def _place(path: str) -> _Place:
    try:
        status = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return _Place(path=path)
    except OSError as error:
        return _Place(path=path, problem=_problem("unreadable", path, error.strerror or str(error)))
    if stat.S_ISLNK(status.st_mode):
        text = "is a symlink, and the CDI libraries in runtimes do not follow it"
        return _Place(
            path=path, problem=_problem("directory-symlink", path, text, hint="make it a directory")
        )
    if not stat.S_ISDIR(status.st_mode):
        text = "is not a directory, so runtimes pass over it"
        return _Place(path=path, problem=_problem("not-a-directory", path, text))
    return _Place(path=path, identity=(status.st_dev, status.st_ino))


def _aliases(places: tuple[_Place, ...]) -> dict[str, str]:
    # One real directory under two names (/run/cdi, /var/run/cdi) is no conflict, the later name wins.
    last = {place.identity: place.path for place in places if place.identity}
    return {
        place.path: last[place.identity]
        for place in places
        if place.identity and last[place.identity] != place.path
    }


def _names(directory: str) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    try:
        names = os.listdir(directory)
    except OSError as error:
        return (), (_problem("unreadable", directory, error.strerror or str(error)),)
    return tuple(sorted((name for name in names if name.endswith(EXTENSIONS)), key=os.fsencode)), ()


def _rows(places: tuple[str, ...], specs: list[ParsedSpec]) -> tuple[Row, ...]:
    rank = {directory: number for number, directory in enumerate(places)}
    holders: dict[tuple[str, str], list[ParsedSpec]] = {}
    for spec in specs:
        for name in spec.devices:
            holders.setdefault((spec.kind, name), []).append(spec)
    rows: list[tuple[int, Row]] = []
    for (kind, name), files in holders.items():
        loaded = [spec for spec in files if not spec.refusal]
        for spec in files:
            reason = _reason(spec, loaded)
            row = Row(
                device=f"{kind}={name}",
                kind=kind,
                name=name,
                file=spec.path,
                usable=not reason,
                reason=reason,
            )
            rows.append((rank[spec.directory], row))
    rows.sort(key=lambda ranked: (natural_key(ranked[1].device), ranked[0], os.fsencode(ranked[1].file)))
    return tuple(row for _, row in rows)


def _reason(spec: ParsedSpec, loaded: list[ParsedSpec]) -> str:
    # LOADED are all files that define one device, priority rising. Empty: SPEC's definition is in use.
    if spec.refusal:
        return spec.refusal
    if conflict := _conflict(loaded):
        others = _and(other.path for other in conflict if other is not spec)
        if spec in conflict:
            return f"{others} in the same directory has it too, so no runtime resolves it"
        return f"two files of one directory have it ({others}), which makes it unresolvable everywhere"
    winner = loaded[-1]
    return "" if winner is spec else f"{shown(winner.path)} has priority"


def _conflict(loaded: Iterable[ParsedSpec]) -> list[ParsedSpec]:
    by_directory: dict[str, list[ParsedSpec]] = {}
    for spec in loaded:
        by_directory.setdefault(spec.directory, []).append(spec)
    return next((files for files in by_directory.values() if len(files) > 1), [])


def _winner(specs: Iterable[ParsedSpec], name: str) -> ParsedSpec | None:
    # Whose definition of NAME is in use among files of one kind, priority rising.
    loaded = [spec for spec in specs if name in spec.devices and not spec.refusal]
    return loaded[-1] if loaded and not _conflict(loaded) else None


def _beside(spec: ParsedSpec, shared: tuple[str, ...]) -> list[Finding]:
    if not shared:
        return []
    text = f"{shown(spec.path)} defines {_listed(shared)} of {spec.kind} too"
    if spec.refusal:
        message = f"{text}; that does no harm only as long as no runtime loads it ({spec.refusal})"
        hint = f"remove it, or have it moved aside by '{_REPLACE}'"
        return [_warning("foreign-same-directory", spec, message, hint)]
    message = f"{text}: two files of one directory make a device that both define unresolvable"
    hint = f"remove that file, or have it moved aside by '{_REPLACE}'"
    return [
        Finding(severity="error", rule="foreign-same-directory", path=spec.path, message=message, hint=hint)
    ]


def _below(spec: ParsedSpec, shared: tuple[str, ...], left: tuple[str, ...]) -> list[Finding]:
    stays = f"its {_listed(left)} will stay visible and bring that file's document-level edits along"
    if not shared and not left:
        return []
    if not shared:
        message = f"{shown(spec.path)} defines {spec.kind} too: {stays}"
        return [Finding(severity="info", rule="foreign-same-kind", path=spec.path, message=message)]
    message = (
        f"{shown(spec.path)} has lower priority: its {_listed(shared)} of {spec.kind} will be hidden by ours"
    )
    if left:
        message += f"; {stays}"
    return [_warning("foreign-shadowed", spec, message, "remove it if it is no longer wanted")]


def _above(spec: ParsedSpec, shared: tuple[str, ...]) -> list[Finding]:
    message = f"{shown(spec.path)} has priority: its {_listed(shared)} of {spec.kind} will hide ours"
    return [_warning("foreign-shadows-ours", spec, message, "remove it, or write to the last spec directory")]


def _conflicts_elsewhere(others: list[ParsedSpec], place: str, ours: Mapping[str, None]) -> list[Finding]:
    # Whatever the priorities: the mark of a conflict sticks to the device's name in Cache.refresh.
    hidden: dict[tuple[str, ...], list[str]] = {}
    by_path = {spec.path: spec for spec in others}
    for name in ours:
        loaded = [s for s in others if name in s.devices and not s.refusal and s.directory != place]
        if conflict := _conflict(loaded):
            hidden.setdefault(tuple(spec.path for spec in conflict), []).append(name)
    return [
        _warning(
            "foreign-conflict",
            by_path[paths[0]],
            f"{_and(paths)} both define {_listed(names)} of {by_path[paths[0]].kind}: "
            "that conflict makes them unresolvable in every directory, in ours too",
            f"remove all but one of them; any one may go: {_and(paths)}",
        )
        for paths, names in hidden.items()
    ]


def _warning(rule: str, spec: ParsedSpec, message: str, hint: str) -> Finding:
    return Finding(severity="warning", rule=rule, path=spec.path, message=message, hint=hint)


def _problem(rule: str, path: str, text: str, *, hint: str = "") -> Finding:
    return Finding(severity="error", rule=rule, path=path, message=f"{shown(path)}: {text}", hint=hint)


def _listed(names: Iterable[str]) -> str:
    shown_names = sorted(names, key=natural_key)
    more = len(shown_names) - _SHOWN_NAMES
    text = ", ".join(shown_names[:_SHOWN_NAMES])
    return f"devices {text} and {more} more" if more > 0 else f"device{'s' * (len(shown_names) > 1)} {text}"


def _and(paths: Iterable[str]) -> str:
    return " and ".join(map(shown, paths))
