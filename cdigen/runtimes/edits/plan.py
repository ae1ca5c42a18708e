"""``DesiredConfig``: the wanted configuration of a runtime, and ``Plan``: the changes that lead to it.

The runtimes' modules share the functions here: which keys need to be set, and in which file they take effect.
"""

from __future__ import annotations

import posixpath

from cdigen.host.root import shown
from cdigen.model.change import Change
from cdigen.model.errors import ConfigError
from cdigen.runtimes.documents import set_toml
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.model.findings import Finding
    from cdigen.runtimes.documents import DesiredKey
    from cdigen.runtimes.settings.config_files import RuntimeSettings

    # The content of a file of the host, None if there is none.
    Content = Callable[[str], bytes | None]

# The value of settings.source if no file sets a key.
COMMAND_LINE = "the command line of "
# Folders whose files the runtimes read before the drop-ins of /etc.
_EARLY = ("/etc/", "/usr/")


@frozen
class DesiredConfig:
    """The spec directories that a runtime must read, priority rising, and whether it must have NRI.

    ``nri_required``: also, no container may start without our plugin; ``nri`` is then true as well.
    """

    spec_dirs: tuple[str, ...]
    nri: bool = False
    nri_required: bool = False


@frozen
class Plan:
    """The changes that lead to a DesiredConfig, none if the configuration is already so."""

    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()


def merged_dirs(present: tuple[str, ...], desired: tuple[str, ...]) -> tuple[str, ...]:
    """Return PRESENT if it has the DESIRED directories in their order; else its others, then these.

    No directory is lost, and the last of the desired, where cdigen writes, has priority.
    """
    places = [_canonical(folder) for folder in present]
    wanted = [_canonical(folder) for folder in desired]
    if [place for place in places if place in wanted] == wanted:
        return present
    others = [folder for folder, place in zip(present, places, strict=True) if place not in wanted]
    return (*others, *desired)


def has_all(present: tuple[str, ...], desired: tuple[str, ...]) -> bool:
    """Return whether PRESENT has all of the DESIRED directories, in whatever order."""
    return {_canonical(folder) for folder in desired} <= {_canonical(folder) for folder in present}


def must_set(settings: RuntimeSettings, what: str, *, is_so: bool) -> bool:
    """Return whether WHAT (see ``RuntimeSettings.set_by``) must be written: it differs, or is only a default.

    ConfigError: the command line of the daemon sets it otherwise, and no file can change that.
    """
    source = settings.source(what)
    if not is_so and source.startswith(COMMAND_LINE):
        raise ConfigError(
            f"{shown(source)} sets what is to be configured, and a file cannot change that",
            hint="take the option out of it, or change it there",
        )
    return not (is_so and source)


def effective_file(settings: RuntimeSettings, what: str) -> str:
    """Return the file in which to set WHAT: the drop-in, or a later one that sets it already."""
    source = settings.source(what)
    if not source or source == settings.edited_file or source not in settings.files:
        return settings.edited_file
    if settings.edited_file in settings.files:
        is_later = settings.files.index(source) > settings.files.index(settings.edited_file)
    elif posixpath.dirname(source) == posixpath.dirname(settings.edited_file):
        is_later = source > settings.edited_file
    else:
        is_later = not source.startswith(_EARLY)
    return source if is_later else settings.edited_file


def toml_changes(
    wanted: Mapping[str, tuple[DesiredKey, ...]], content: Content, *, command: str
) -> tuple[Change, ...]:
    """Return the changes that set the WANTED keys in the files that they are given for."""
    changes = []
    for path, wants in wanted.items():
        before = content(path)
        undo = f"'cdigen configure {command} --undo' takes it back"
        header = f"# Written by 'cdigen configure {command}'; {undo}.\n".encode()
        start = header if before is None else before
        after, keys = set_toml(start, wants, path)
        if keys:
            changes.append(Change(path=path, before=before, after=after, keys=keys))
    return tuple(changes)


def refuse_broken(settings: RuntimeSettings) -> None:
    """Raise ConfigError for a broken file of the runtime, which cannot be changed."""
    for finding in settings.findings:
        if finding.severity == "error":
            raise ConfigError(finding.message, hint=finding.hint, kind="broken-file")


def _canonical(folder: str) -> str:
    # /var/run is a link to /run (FHS 3.0, 3.15), and the runtimes' defaults are written with it.
    path = posixpath.normpath(folder)
    return f"/var{path}" if path.startswith("/run/") else path
