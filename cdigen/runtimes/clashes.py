"""Find conflicts of a new spec with those in the spec directories: ``clashes``.

Two files of one directory that define one device make it unresolvable (docs/cdi.md, "Directories").
"""

from __future__ import annotations

import posixpath

from cdigen.host.root import shown
from cdigen.model.findings import Finding
from cdigen.model.names import natural_key
from cdigen.runtimes.scan import refusal
from cdigen.runtimes.spec_cache import LOADED
from cdigen.runtimes.spec_index import conflict_of
from cdigen.store.directory import clean_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.runtimes.scan import SpecScan
    from cdigen.runtimes.spec_cache import SpecFile

_SHOWN_NAMES = 6
# The daemon never moves other programs' files: a person has to look at them first.
_REPLACE = "cdigen generate --write --replace-foreign"


def clashes(
    scan: SpecScan, *, directory: str, file_name: str, kind: str, device_names: Iterable[str]
) -> tuple[Finding, ...]:
    """Return the conflicts of a write of KIND with DEVICE_NAMES into FILE_NAME of DIRECTORY.

    Errors are devices that the write itself would break, as another file of the directory has them
    (``foreign-same-directory``). Warnings concern other directories: ``foreign-shadowed`` below,
    ``foreign-shadows-ours`` above, ``foreign-conflict`` where a conflict of two other files hides our
    devices. An info is a file below that only shares the kind (``foreign-same-kind``). A DIRECTORY that
    was not given to ``scan`` counts as the one with the highest priority.
    """
    place = clean_path(directory)
    place = next((each.path for each in scan.directories if place in each.aliases), place)
    target = posixpath.join(place, file_name)
    rank = {each.path: number for number, each in enumerate(scan.directories)}
    ours = dict.fromkeys(device_names)
    others = [spec for spec in scan.defining if spec.kind == kind and spec.path != target]
    found: list[Finding] = []
    for spec in others:
        shared = tuple(name for name in spec.devices if name in ours)
        if spec.directory == place:
            found += _beside(spec, shared)
        elif spec.state != LOADED:
            continue
        elif rank[spec.directory] < rank.get(place, len(rank)):
            left = tuple(name for name in spec.devices if name not in ours and _winner(others, name) is spec)
            found += _below(spec, shared, left)
        elif shared:
            found += _above(spec, shared)
    return (*found, *_conflicts_elsewhere(others, place, ours))


def _winner(specs: Iterable[SpecFile], name: str) -> SpecFile | None:
    # The files of one kind whose definition of a name is in use, priority rising.
    loaded = [spec for spec in specs if name in spec.devices and spec.state == LOADED]
    return loaded[-1] if loaded and not conflict_of(loaded) else None


def _beside(spec: SpecFile, shared: tuple[str, ...]) -> list[Finding]:
    if not shared:
        return []
    text = f"{shown(spec.path)} defines {_listed(shared)} of {spec.kind} too"
    if spec.state != LOADED:
        message = f"{text}; that does no harm only as long as no runtime loads it ({refusal(spec)})"
        hint = f"remove it, or have it moved aside by '{_REPLACE}'"
        return [_warning("foreign-same-directory", spec, message, hint)]
    message = f"{text}: two files of one directory make a device that both define unresolvable"
    hint = f"remove that file, or have it moved aside by '{_REPLACE}'"
    return [
        Finding(severity="error", rule="foreign-same-directory", path=spec.path, message=message, hint=hint)
    ]


def _below(spec: SpecFile, shared: tuple[str, ...], left: tuple[str, ...]) -> list[Finding]:
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


def _above(spec: SpecFile, shared: tuple[str, ...]) -> list[Finding]:
    message = f"{shown(spec.path)} has priority: its {_listed(shared)} of {spec.kind} will hide ours"
    return [_warning("foreign-shadows-ours", spec, message, "remove it, or write to the last spec directory")]


def _conflicts_elsewhere(others: list[SpecFile], place: str, ours: Mapping[str, None]) -> list[Finding]:
    # Regardless of priorities: Cache.refresh keeps a device's name marked as in conflict.
    hidden: dict[tuple[str, ...], list[str]] = {}
    by_path = {spec.path: spec for spec in others}
    for name in ours:
        loaded = [
            spec
            for spec in others
            if name in spec.devices and spec.state == LOADED and spec.directory != place
        ]
        if conflict := conflict_of(loaded):
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


def _warning(rule: str, spec: SpecFile, message: str, hint: str) -> Finding:
    return Finding(severity="warning", rule=rule, path=spec.path, message=message, hint=hint)


def _listed(names: Iterable[str]) -> str:
    shown_names = sorted(names, key=natural_key)
    more = len(shown_names) - _SHOWN_NAMES
    text = ", ".join(shown_names[:_SHOWN_NAMES])
    return f"devices {text} and {more} more" if more > 0 else f"device{'s' * (len(shown_names) > 1)} {text}"


def _and(paths: Iterable[str]) -> str:
    return " and ".join(map(shown, paths))
