"""Which paths a remedy for root may change or rename: ``may_change``, ``may_rename`` and others.

Users choose by containers.conf and by links what their podman reads. A command that opens or moves such a
path would act with root's rights for a user.
"""

from __future__ import annotations

import os
import posixpath

from cdigen.host.trust import untrusted
from cdigen.runtimes.spec_directories import is_link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context

# Where distributions and administrators keep the configuration of runtimes.
_CONFIGURATION = tuple(
    f"/{folder}/{name}/"
    for folder in ("etc", "usr/share")
    for name in ("containers", "docker", "containerd", "crio")
)
# Where programs lie that packages and administrators install.
_PROGRAMS = ("/usr/", "/opt/")


def may_change(context: Context, path: str) -> bool:
    """Return whether a command may change the target of PATH.

    It must be a spec directory of the system's, or lie in one that root alone controls; or belong to the
    user who asks, who runs the command without root's rights.
    """
    real = _resolved(context, path)
    is_systems = real in _entries(context) or posixpath.dirname(real) in _whole(context)
    return _belongs_to_asker(context, path) or is_systems


def may_rename(context: Context, path: str) -> bool:
    """Return whether a command may rename or replace PATH itself, which may be a link."""
    folder = posixpath.dirname(path)
    try:
        real = context.host.directory(folder)
    except OSError:
        return False
    is_systems = path in _system(context) and not untrusted(folder, base=context.host.outer)
    return _belongs_to_asker(context, real) or real in _whole(context) or is_systems


def may_copy(context: Context, path: str) -> bool:
    """Return whether a command may replace the link PATH to a spec directory by a copy."""
    return may_rename(context, path) and not untrusted(path, base=context.host.outer)


def may_open_configuration(context: Context, path: str) -> bool:
    """Return whether a command may let everybody read the configuration file PATH."""
    is_systems = all(each.startswith(_CONFIGURATION) for each in (path, _resolved(context, path)))
    return _belongs_to_asker(context, path) or (is_systems and not untrusted(path, base=context.host.outer))


def _resolved(context: Context, path: str) -> str:
    """Return the target of PATH, nothing if it is dangling."""
    try:
        return context.host.resolve(path)
    except OSError:
        return ""


def _belongs_to_asker(context: Context, path: str) -> bool:
    """Return whether PATH belongs to the user who asks, who then needs no root to change it."""
    try:
        owner = context.host.stat(path).st_uid
    except OSError:
        return False
    return context.user is not None and owner == context.user.uid == os.geteuid()


def ways(path: str) -> list[str]:
    """Return the folders above PATH, the highest first, and PATH."""
    parts = path.split("/")
    return ["/".join(parts[: number + 1]) for number in range(1, len(parts))]


def culprit_of(context: Context, path: str) -> str:
    """Return the file or folder on the way to PATH that others than root may change."""
    real = context.host.resolve(path)
    return next((way for way in ways(real) if untrusted(way, base=context.host.outer)), real)


def may_change_program(context: Context, path: str) -> bool:
    """Return whether a command may give PATH, a canonical path on the way to a program, to root."""
    return path.startswith(_PROGRAMS) and not untrusted(posixpath.dirname(path), base=context.host.outer)


def is_users(context: Context, path: str) -> bool:
    """Return whether only containers of the examined user get the spec PATH."""
    if context.user is None or any(file.path == path for file in context.own_view.files):
        return False
    readers = [
        runtime.reader.uid
        for runtime in context.runtimes
        if any(file.path == path for file in context.view(runtime).files)
    ]
    return bool(readers) and set(readers) == {context.user.uid}


def owners(context: Context, path: str) -> frozenset[int]:
    """Return who besides root may change the spec PATH: the user whose containers alone get it."""
    return frozenset({context.user.uid}) if context.user and is_users(context, path) else frozenset()


def _system(context: Context) -> Iterator[str]:
    """Return the spec directories that cdigen's configuration names, or one of a runtime that is root's."""
    yield from context.configuration.spec_dirs
    for runtime in context.runtimes:
        configured = runtime.settings
        files = configured.files if configured.rootless else ()
        if not any(untrusted(file, base=context.host.outer) for file in files):
            yield from configured.spec_dirs


def _whole(context: Context) -> Iterator[str]:
    """Return the system's spec directories that root alone controls, all folders above them included."""
    for path in _system(context):
        if not untrusted(path, base=context.host.outer):
            yield context.host.resolve(path)


def _entries(context: Context) -> Iterator[str]:
    """Return the system's spec directories that root created, even if others may add files to them."""
    yield from _whole(context)
    for path in _system(context):
        folder, _, name = path.rpartition("/")
        if not untrusted(folder or "/", base=context.host.outer) and not is_link(context.host, path):
            yield f"{context.host.resolve(folder or '/').rstrip('/')}/{name}"
