"""The desired configuration of a runtime, and the changes that lead to this configuration.

The modules of the runtimes share the functions here, which find the keys to set and the file to change.
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

    # Returns the content of a file of the host, or None if the file does not exist.
    Content = Callable[[str], bytes | None]

# The start of the text from ``RuntimeSettings.source`` if the command line of a daemon sets the value.
COMMAND_LINE = "the command line of "
# The names of the options in messages (see ``RuntimeSettings.set_by``).
_OPTIONS = {"cdi": "the switch of CDI", "nri": "the switch of NRI", "spec_dirs": "the spec directories"}
# The folders whose files the runtimes read before the drop-ins of /etc.
_EARLY = ("/etc/", "/usr/")


@frozen
class DesiredConfig:
    """The spec directories that a runtime must read, in rising priority, and the desired state of NRI.

    If ``nri_required`` is true, no container may start without cdigen's plugin, and ``nri`` is also true.
    """

    spec_dirs: tuple[str, ...]
    nri: bool = False
    nri_required: bool = False


@frozen
class EditPlan:
    """The changes that lead to a DesiredConfig; empty if the configuration is already as desired.

    ``unchanged`` are the files with the configuration if it is already as desired. It is empty for
    ``--undo``.
    """

    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    unchanged: tuple[str, ...] = ()


def merged_dirs(present: tuple[str, ...], desired: tuple[str, ...]) -> tuple[str, ...]:
    """Return PRESENT if it has the DESIRED directories in order.

    Otherwise, return the other directories of PRESENT, followed by DESIRED.

    No directory is lost. cdigen writes to the last desired directory, so this directory has the highest
    priority.
    """
    paths = [_canonical(folder) for folder in present]
    wanted = [_canonical(folder) for folder in desired]
    if [path for path in paths if path in wanted] == wanted:
        return present
    others = [folder for folder, path in zip(present, paths, strict=True) if path not in wanted]
    return (*others, *desired)


def has_all(present: tuple[str, ...], desired: tuple[str, ...]) -> bool:
    """Return whether PRESENT has all of the DESIRED directories, in any order."""
    return {_canonical(folder) for folder in desired} <= {_canonical(folder) for folder in present}


def must_set(settings: RuntimeSettings, what: str, *, is_as_desired: bool) -> bool:
    """Return whether to write the value WHAT (see ``RuntimeSettings.set_by``).

    The result is true if the value differs from the desired value, or if the value is only a default. Raises
    ConfigError if the command line of the daemon sets another value, because no file can change this value.
    """
    source = settings.source(what)
    if not is_as_desired and source.startswith(COMMAND_LINE):
        raise ConfigError(
            f"{shown(source)} sets {_OPTIONS[what]}, and a configuration file cannot override this option",
            hint="change or remove the option in the command line",
        )
    return not (is_as_desired and source)


def effective_file(settings: RuntimeSettings, what: str) -> str:
    """Return the file in which to set the value WHAT: the drop-in, or a later file that already sets it."""
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
    """Return the changes that set the WANTED keys, by file."""
    changes = []
    for path, wants in wanted.items():
        before = content(path)
        undo = f"'cdigen configure {command} --undo' reverts it"
        header = f"# Written by 'cdigen configure {command}'; {undo}.\n".encode()
        start = header if before is None else before
        after, keys = set_toml(start, wants, path)
        if keys:
            changes.append(Change(path=path, before=before, after=after, keys=keys))
    return tuple(changes)


def refuse_broken(settings: RuntimeSettings) -> None:
    """Raise ConfigError if a file of the runtime is broken, because cdigen cannot change the file."""
    for finding in settings.findings:
        if finding.severity == "error":
            raise ConfigError(finding.message, hint=finding.hint, kind="broken-file")


def _canonical(folder: str) -> str:
    # /var/run is a link to /run (FHS 3.0, 3.15). The defaults of the runtimes use /var/run.
    path = posixpath.normpath(folder)
    return f"/var{path}" if path.startswith("/run/") else path
