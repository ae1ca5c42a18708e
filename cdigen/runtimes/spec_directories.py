"""The spec directories, as a release of the CDI library finds them for a reader.

The rules are the rules of pkg/cdi, scanSpecDirs (docs/reference/cdi-loaders.md, "Directories").
"""

from __future__ import annotations

import os
import posixpath
import stat
from contextlib import contextmanager

from cdigen.cdi.library import UNRELEASED
from cdigen.host.root import reason, shown
from cdigen.model.names import SPEC_SUFFIXES
from cdigen.runtimes.users import may_list
from cdigen.store.failures import closing
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.runtimes.users import Reader

# Suffixes that are examined in any letter case. No library reads .yml, or suffixes in upper case. Suffixes of
# backups are not examined.
_SIMILAR = (".yml", ".yaml", ".json")
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen
class SpecDirectory:
    """A spec directory.

    ``problem`` is the rule that prevents a read of the directory. ``problem`` is empty if the directory is
    read or missing. If ``is_known`` is true, cdigen itself could read the content. ``aliases`` are earlier
    names of the same directory in the list. The library ignores these names.
    """

    path: str
    problem: str = ""
    reason: str = ""
    is_known: bool = False
    identity: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def spec_directories(
    host: Root, spec_dirs: tuple[str, ...], *, library: str, reader: Reader
) -> list[SpecDirectory]:
    """Return the directories of HOST in the order in which LIBRARY reads them for READER."""
    is_main = library in UNRELEASED
    follows_links = is_main or reader.follows_links
    found = _without_aliases(
        [_directory(host, path, reader, follows_links=follows_links) for path in _listed(spec_dirs)]
    )
    return _stopped(found) if is_main else found


@contextmanager
def opened_directory(host: Root, directory: SpecDirectory) -> Iterator[int | None]:
    """Open DIRECTORY, and yield its descriptor for the status of its entries; None if it no longer exists."""
    try:
        folder = os.open(host.outer_path(host.directory(directory.path)), _FOLDER)
    except OSError:
        yield None
        return
    with closing(folder):
        yield folder


def spec_names(names: list[str]) -> tuple[str, ...]:
    """Return the NAMES that a library reads from a spec directory, in the order of the library."""
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
        listed = [
            name for name in host.listdir(path) if name.endswith(_SIMILAR) or name.lower().endswith(_SIMILAR)
        ]
    except FileNotFoundError:
        return SpecDirectory(path=path)
    except OSError as error:
        text = f"{shown(path)}: {reason(error)}"
        return SpecDirectory(path=path, problem="directory-unreadable", reason=text)
    # The names are sorted by bytes. ASCII names are already in this order.
    names = tuple(listed if "".join(listed).isascii() else sorted(listed, key=os.fsencode))
    if not follows_links and host.is_link(path):
        text = f"{shown(path)} is a link to {shown(real)}, and this release reads no linked directory"
        return SpecDirectory(path=path, problem="directory-symlink", reason=text, is_known=True, names=names)
    if not may_list(host, path, reader):
        text = f"{shown(path)} cannot be read by the user with the id {reader.uid}"
        return SpecDirectory(
            path=path, problem="directory-unreadable", reason=text, is_known=True, names=names
        )
    return SpecDirectory(path=path, identity=(status.st_dev, status.st_ino), names=names)


def _listed(spec_dirs: tuple[str, ...]) -> list[str]:
    """Return the directories in their shortest form, without duplicates; the last duplicate is kept."""
    cleaned = ["/" * path.startswith("/") + posixpath.normpath(path).lstrip("/") for path in spec_dirs]
    return [path for index, path in enumerate(cleaned) if path not in cleaned[index + 1 :]]


def _without_aliases(directories: list[SpecDirectory]) -> list[SpecDirectory]:
    """Return DIRECTORIES with one entry for each directory.

    If a directory is listed under several names, only the last name is kept.
    """
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
    """Return DIRECTORIES as the library's main branch reads them.

    The first unreadable directory ends the scan.
    """
    stop = next((index for index, each in enumerate(directories) if each.problem), None)
    if stop is None:
        return directories
    text = f"the scan ends at {shown(directories[stop].path)}: {directories[stop].reason}"
    after = [
        replace(each, problem="scan-stops", reason=text, is_known=True) for each in directories[stop + 1 :]
    ]
    return [*directories[: stop + 1], *after]
