"""The paths that a remedy for root may change, rename or copy.

Users select the files of their podman with containers.conf and with links. If a command of
root renamed such a path or changed its mode, the command would act on a path that a user has selected.
"""

from __future__ import annotations

import os
import posixpath

from cdigen.host.trust import untrusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context

# The folders where distributions and administrators install configurations of runtimes.
_CONFIGURATION = tuple(
    f"/{folder}/{name}/"
    for folder in ("etc", "usr/share")
    for name in ("containers", "docker", "containerd", "crio")
)
# The folders where packages and administrators install programs.
_PROGRAMS = ("/usr/", "/opt/")


def may_change(context: Context, path: str) -> bool:
    """Return whether a command may change the target of PATH.

    The target must meet one of three conditions. It is a spec directory of the system. It is in a spec
    directory that only root controls. It belongs to the present user, who runs the command without root
    privileges.
    """
    real = _resolved(context, path)
    is_of_system = real in _entries(context) or posixpath.dirname(real) in _root_only(context)
    return _is_own(context, path) or is_of_system


def may_rename(context: Context, path: str) -> bool:
    """Return whether a command may rename or replace PATH itself, which may be a link."""
    folder = posixpath.dirname(path)
    try:
        real = context.host.directory(folder)
    except OSError:
        return False
    is_of_system = path in _system(context) and not untrusted(folder, base=context.host.outer)
    return _is_own(context, real) or real in _root_only(context) or is_of_system


def may_copy(context: Context, path: str) -> bool:
    """Return whether a command may replace PATH, a link to a spec directory, by a copy of the directory."""
    return may_rename(context, path) and not untrusted(path, base=context.host.outer)


def may_open_configuration(context: Context, path: str) -> bool:
    """Return whether a command may let every user read the configuration file PATH."""
    is_of_system = all(each.startswith(_CONFIGURATION) for each in (path, _resolved(context, path)))
    return _is_own(context, path) or (is_of_system and not untrusted(path, base=context.host.outer))


def _resolved(context: Context, path: str) -> str:
    """Return the target of PATH; empty for a dangling link."""
    try:
        return context.host.resolve(path)
    except OSError:
        return ""


def _is_own(context: Context, path: str) -> bool:
    """Return whether PATH belongs to the present user, who needs no root privileges to change it."""
    try:
        owner = context.host.stat(path).st_uid
    except OSError:
        return False
    return context.user is not None and owner == context.user.uid == os.geteuid()


def ways(path: str) -> list[str]:
    """Return PATH and the folders above it, with the highest folder first."""
    parts = path.split("/")
    return ["/".join(parts[: number + 1]) for number in range(1, len(parts))]


def culprit_of(context: Context, path: str) -> str:
    """Return the highest folder above PATH (or PATH itself) that users other than root may change."""
    real = context.host.resolve(path)
    return next((each for each in ways(real) if untrusted(each, base=context.host.outer)), real)


def may_change_program(context: Context, path: str) -> bool:
    """Return whether a command may make root the owner of PATH, a program or a parent folder of a program."""
    return path.startswith(_PROGRAMS) and not untrusted(posixpath.dirname(path), base=context.host.outer)


def is_of_user(context: Context, path: str) -> bool:
    """Return whether only containers of the examined user get devices from the spec PATH."""
    if context.user is None or any(file.path == path for file in context.own_view.files):
        return False
    readers = [
        runtime.reader.uid
        for runtime in context.runtimes
        if any(file.path == path for file in context.view(runtime).files)
    ]
    return bool(readers) and set(readers) == {context.user.uid}


def owners(context: Context, path: str) -> frozenset[int]:
    """Return the users other than root who may change the spec PATH (see ``is_of_user``)."""
    return frozenset({context.user.uid}) if context.user and is_of_user(context, path) else frozenset()


def _system(context: Context) -> Iterator[str]:
    """Yield the spec directories of cdigen's configuration and of runtime configurations of root."""
    yield from context.configuration.spec_dirs
    for runtime in context.runtimes:
        configured = runtime.settings
        files = configured.files if configured.rootless else ()
        if not any(untrusted(file, base=context.host.outer) for file in files):
            yield from configured.spec_dirs


def _root_only(context: Context) -> Iterator[str]:
    """Yield the system's spec directories that only root controls, including all parent folders."""
    for path in _system(context):
        if not untrusted(path, base=context.host.outer):
            yield context.host.resolve(path)


def _entries(context: Context) -> Iterator[str]:
    """Yield the system's spec directories that root created, even if other users may add files there."""
    yield from _root_only(context)
    for path in _system(context):
        folder, _, name = path.rpartition("/")
        if not untrusted(folder or "/", base=context.host.outer) and not context.host.is_link(path):
            yield f"{context.host.resolve(folder or '/').rstrip('/')}/{name}"
