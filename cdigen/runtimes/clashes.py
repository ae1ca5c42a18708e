"""Find conflicts of a new spec with the files in the spec directories.

If two files of one directory define a device, no runtime resolves that device (docs/reference/cdi-loaders.md,
"Directories").
"""

from __future__ import annotations

import posixpath

from cdigen.host.root import shown
from cdigen.model.findings import Finding
from cdigen.runtimes.scan import refusal, some
from cdigen.runtimes.spec_cache import LOADED
from cdigen.runtimes.spec_index import conflict_of
from cdigen.store.directory import clean_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cdigen.runtimes.scan import SpecScan
    from cdigen.runtimes.spec_cache import SpecFile

# The daemon never moves files of other programs. An administrator must first examine the files.
_REPLACE = "cdigen generate --write --replace-foreign"


def clashes(
    scan: SpecScan, *, directory: str, file_name: str, kind: str, device_names: Iterable[str]
) -> tuple[Finding, ...]:
    """Return the conflicts of a new spec in FILE_NAME of DIRECTORY, with KIND and DEVICE_NAMES.

    - ``foreign-same-directory`` (error): another file of DIRECTORY defines a device of the new spec. No
      runtime would resolve that device. The finding is a warning if no runtime loads that file at present.
    - ``foreign-shadowed`` (warning): a file of a directory with lower priority defines a device of the new
      spec.
    - ``foreign-shadows-ours`` (warning): a file of a directory with higher priority defines a device of the
      new spec.
    - ``foreign-conflict`` (warning): two other files conflict, and the conflict hides devices of the new
      spec.
    - ``foreign-same-kind`` (info): a file with lower priority has the same kind, but other devices.

    If SCAN does not contain DIRECTORY, DIRECTORY has the highest priority.
    """
    folder = clean_path(directory)
    folder = next((each.path for each in scan.directories if folder in each.aliases), folder)
    target = posixpath.join(folder, file_name)
    rank = {each.path: number for number, each in enumerate(scan.directories)}
    ours = dict.fromkeys(device_names)
    others = [spec for spec in scan.defining if spec.kind == kind and spec.path != target]
    found: list[Finding] = []
    for spec in others:
        shared = tuple(name for name in spec.devices if name in ours)
        if spec.directory == folder:
            found += _of_same_directory(spec, shared)
        elif spec.state != LOADED:
            continue
        elif rank[spec.directory] < rank.get(folder, len(rank)):
            visible = tuple(
                name for name in spec.devices if name not in ours and _used_file(others, name) is spec
            )
            found += _of_lower_priority(spec, shared, visible)
        elif shared:
            found += _of_higher_priority(spec, shared)
    return (*found, *_conflicts_elsewhere(others, folder, ours))


def _used_file(specs: Iterable[SpecFile], name: str) -> SpecFile | None:
    # Return the file whose definition of NAME a runtime uses. SPECS have one kind and are in rising priority.
    loaded = [spec for spec in specs if name in spec.devices and spec.state == LOADED]
    return loaded[-1] if loaded and not conflict_of(loaded) else None


def _of_same_directory(spec: SpecFile, shared: tuple[str, ...]) -> list[Finding]:
    if not shared:
        return []
    text = f"{shown(spec.path)} defines {_listed(shared)} of {spec.kind} too"
    if spec.state != LOADED:
        message = f"{text}; the files conflict if a runtime loads that file (now refused: {refusal(spec)})"
        hint = f"remove that file, or move it aside with '{_REPLACE}'"
        return [_warning("foreign-same-directory", spec, message, hint)]
    message = f"{text}: no runtime resolves a device that two files of one directory define"
    hint = f"remove that file, or move it aside with '{_REPLACE}'"
    return [
        Finding(severity="error", rule="foreign-same-directory", path=spec.path, message=message, hint=hint)
    ]


def _of_lower_priority(spec: SpecFile, shared: tuple[str, ...], visible: tuple[str, ...]) -> list[Finding]:
    stays = f"its {_listed(visible)} will stay visible, with the document-level edits of that file"
    if not shared and not visible:
        return []
    if not shared:
        message = f"{shown(spec.path)} defines {spec.kind} too: {stays}"
        return [Finding(severity="info", rule="foreign-same-kind", path=spec.path, message=message)]
    message = (
        f"{shown(spec.path)} has lower priority: its {_listed(shared)} of {spec.kind} will be hidden"
        " by the new spec"
    )
    if visible:
        message += f"; {stays}"
    return [_warning("foreign-shadowed", spec, message, "remove the file if it is not needed any more")]


def _of_higher_priority(spec: SpecFile, shared: tuple[str, ...]) -> list[Finding]:
    message = (
        f"{shown(spec.path)} has higher priority: its {_listed(shared)} of {spec.kind} will take precedence"
        " over the new spec"
    )
    hint = "remove that file, or write to the last spec directory"
    return [_warning("foreign-shadows-ours", spec, message, hint)]


def _conflicts_elsewhere(others: list[SpecFile], folder: str, ours: Mapping[str, None]) -> list[Finding]:
    # A directory of higher priority does not end a conflict (Cache.refresh in Go).
    hidden: dict[tuple[str, ...], list[str]] = {}
    by_path = {spec.path: spec for spec in others}
    for name in ours:
        loaded = [
            spec
            for spec in others
            if name in spec.devices and spec.state == LOADED and spec.directory != folder
        ]
        if conflict := conflict_of(loaded):
            hidden.setdefault(tuple(spec.path for spec in conflict), []).append(name)
    return [
        _warning(
            "foreign-conflict",
            by_path[paths[0]],
            f"{_and(paths)} both define {_listed(names)} of {by_path[paths[0]].kind}: "
            "no runtime resolves these names, even if another directory also defines them",
            f"remove all but one of these files: {_and(paths)}",
        )
        for paths, names in hidden.items()
    ]


def _warning(rule: str, spec: SpecFile, message: str, hint: str) -> Finding:
    return Finding(severity="warning", rule=rule, path=spec.path, message=message, hint=hint)


def _listed(names: Collection[str]) -> str:
    return f"device{'s' * (len(names) > 1)} {some(names)}"


def _and(paths: Iterable[str]) -> str:
    return " and ".join(map(shown, paths))
