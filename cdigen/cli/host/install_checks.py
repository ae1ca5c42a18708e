"""Checks before an installation or removal.

Each ``require_...`` function raises an error with the reason if the installation or removal is impossible.
"""

from __future__ import annotations

import os
import sys

from cdigen.cli.host.install_files import ETC, IN_A_WHEEL, PACKAGE
from cdigen.cli.shared import own_package
from cdigen.cli.shared.own_package import COMMAND
from cdigen.config import DEFAULT_PATH
from cdigen.host.root import Root, reason, shown
from cdigen.host.trust import untrusted, untrusted_tree
from cdigen.model.errors import ConfigError, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.cli.host.install_files import InstallLayout

# The folders that a unit with ProtectHome= cannot access (systemd.exec(5)).
_HOMES = ("/home/", "/root/", "/run/user/")


def require_installed() -> None:
    """Raise ConfigError if root's services cannot run the code of this process.

    The services must be able to read the code. Only root may change the code.
    """
    if ETC != IN_A_WHEEL:
        raise ConfigError(
            f"this cdigen runs from its sources in {shown(os.path.dirname(PACKAGE))}",
            hint="run 'make install' in this folder",
        )
    if not os.access(COMMAND, os.X_OK):
        raise ConfigError(
            f"{shown(COMMAND)}, the command of the services, does not exist",
            hint="install cdigen with pipx, or with pip into a virtual environment",
        )
    hint = f"install cdigen for the whole host: {own_package.installation_for_all()}"
    for path in (COMMAND, sys.executable, sys.prefix, sys.base_prefix, PACKAGE):
        locations = (location for location in (path, os.path.realpath(path)) if location.startswith(_HOMES))
        at_home = next(locations, "")
        if at_home:
            raise ConfigError(
                f"this cdigen needs {shown(at_home)}, but services cannot access homes (ProtectHome=)",
                hint=hint,
            )
    for path in (COMMAND, sys.executable, f"{PACKAGE}/__init__.py", f"{ETC}/install"):
        if problem := untrusted(path):
            raise ConfigError(f"root's services cannot run this cdigen: {problem}", hint=hint)


def require_writable(layout: InstallLayout) -> None:
    """Raise StoreError if the file system of the prefix is read-only."""
    for name in ("lib", "libexec", "share"):
        folder = f"{layout.destdir}{layout.prefix}/{name}"
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        try:
            is_read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
        except OSError as error:
            raise StoreError(f"{shown(folder)} cannot be examined: {reason(error)}") from error
        if is_read_only:
            other = "/usr/local" if layout.prefix == "/usr" else "/etc/cdigen/installed"
            raise StoreError(
                f"{shown(folder)} is read-only: nothing was installed",
                hint=f"cdigen install-service --prefix {other}",
            )


def require_trusted(layout: InstallLayout) -> None:
    """Raise ConfigError if root would write into folders that other users can change.

    In such a folder, a user could create a link, or add a path to the list of installed files. root would
    then change a file that this user cannot change. The check applies only to root, because a packager
    without root's rights cannot change such files.
    """
    if os.geteuid() != 0:
        return
    paths = (*layout.folders, layout.record[len(layout.destdir) :])
    if not layout.destdir:
        problem = next(filter(None, (untrusted(_existing(path)) for path in paths)), "")
        hint = "use a prefix that only root can change, such as /usr or /opt/cdigen"
    else:
        destdir = os.path.realpath(layout.destdir)
        tree = Root(_existing(destdir))
        # The configuration file is checked too, because it names a program that root executes.
        inside = sorted({_existing(path, tree) for path in (*paths, DEFAULT_PATH)})
        problem = _untrusted_tree(tree, tuple(inside) if os.path.exists(destdir) else ("/",))
        hint = "use a folder that only root can change, or run the command as its owner"
    if problem:
        raise ConfigError(f"nothing was changed: {problem}", hint=hint)


def _untrusted_tree(tree: Root, paths: tuple[str, ...]) -> str:
    # In a user namespace, files of the host's root have the overflow UID (see also store.pathwalk).
    problem = untrusted_tree(tree, paths, owners=frozenset({os.stat("/").st_uid}))
    return f"{shown(tree.outer)}: {problem}" if problem else ""


def _existing(path: str, tree: Root | None = None) -> str:
    """Return PATH if it exists in TREE, otherwise the deepest folder above PATH that exists.

    The default of TREE is this machine.
    """
    tree = tree or Root()
    while path != "/" and not tree.exists(path):
        path = os.path.dirname(path)
    return path
