"""Find all installations of cdigen on a host, made by any package manager."""

from __future__ import annotations

import re

from cdigen.runtimes.daemon_service import UNIT
from cdigen.runtimes.units import SYSTEM_FOLDERS
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.host.root import Root

# (folder of the code, installer, command that removes the installation).
_TREES = (
    ("/usr/lib/python3/dist-packages", "Debian's package", "apt remove python3-cdigen"),
    ("/usr/lib/cdigen", "an RPM", "dnf remove cdigen"),
    ("/usr/local/lib/cdigen", "make install", "make uninstall PREFIX=/usr/local"),
)
# The name of the list of installed files that 'make install' writes. Packages have no such list.
_RECORD = "installed"
# Home of pipx -> variables that select this home. docs/operations.md uses the first home.
_PIPX = {
    "/opt/pipx": "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin ",
    "/root/.local/share/pipx": "",
    "/root/.local/pipx": "",
}
_PIP = "/usr/local/lib"
_PACKAGES = ("site-packages", "dist-packages")
_VERSION = re.compile(r'^__version__ = "([0-9A-Za-z.+!-]{1,40})"$', flags=re.MULTILINE)
_START = re.compile(r"^ExecStart=(\S+)", flags=re.MULTILINE | re.ASCII)


@frozen
class Installation:
    """An installation: the folder of the code, the version, the installer and the removal command."""

    folder: str
    version: str
    by: str
    removal: str

    def described(self) -> str:
        """Return a description for a message."""
        return f"{self.version} in {self.folder} ({self.by})"


def installations(context: Context) -> tuple[Installation, ...]:
    """Return the installations in the usual folders, with the distribution's packages first."""
    found: dict[str, Installation] = {}
    for top, by, removal in _places(context.host):
        if match := _VERSION.search(context.text(f"{top}/cdigen/__init__.py")):
            found.setdefault(top, Installation(folder=top, version=match[1], by=by, removal=removal))
    return tuple(found.values())


def started(context: Context) -> str:
    """Return the program that the unit of the daemon starts; empty if there is no unit."""
    texts = (context.text(f"{folder}/{UNIT}") for folder in SYSTEM_FOLDERS)
    return next((match[1] for text in texts if (match := _START.search(text))), "")


def _places(host: Root) -> Iterator[tuple[str, str, str]]:
    for top, by, removal in _TREES:
        if host.exists(f"{top}/{_RECORD}"):
            yield top, "make install", removal if "local" in top else "make uninstall"
        else:
            yield top, by, removal
    for home, variables in _PIPX.items():
        for top in _site_folders(host, f"{home}/venvs/cdigen/lib"):
            yield top, "pipx", f"cdigen install-service --remove && {variables}pipx uninstall cdigen"
    for top in _site_folders(host, _PIP):
        yield top, "pip", "cdigen install-service --remove && pip uninstall cdigen"


def _site_folders(host: Root, lib: str) -> Iterator[str]:
    for python in sorted(name for name in host.names(lib) if name.startswith("python3")):
        yield from (f"{lib}/{python}/{name}" for name in _PACKAGES)
