"""Shell commands that install this cdigen for all users, remove it, or run it as root."""

from __future__ import annotations

import json
import os
import shlex
import sys
import sysconfig
from urllib.parse import unquote, urlsplit

from cdigen import __version__

COMMAND = f"{sysconfig.get_path('scripts')}/cdigen"
# The folders in docs/how-to/install.md. If root runs a plain 'pipx install', pipx installs below /root, where
# the services have no access.
_PIPX_HOME, _PIPX_BIN = "/opt/pipx", "/usr/local/bin"
# The folders that sudo searches in all distributions (secure_path of sudoers(5)). Red Hat's secure_path lacks
# /usr/local/bin.
_SUDO_PATH = frozenset({"", "/usr/sbin", "/usr/bin", "/sbin", "/bin"})
# The files and folders that pipx 1.1 (Debian 12) and later releases create in PIPX_HOME.
_PIPX_ENTRIES = frozenset({".cache", ".trash", "logs", "py", "shared", "trash", "venvs"})


def as_root(*arguments: str) -> str:
    """Return the command that runs this cdigen as root with ARGUMENTS.

    The command has the full path of cdigen, because sudo does not search the folders of a user.
    """
    own = [COMMAND] if os.access(COMMAND, os.X_OK) else [sys.executable, "-m", "cdigen"]
    return shlex.join(["sudo", *own, *arguments])


def installation_for_all() -> str:
    """Return the command that installs the same cdigen and its service for all users."""
    variables = f"PIPX_HOME={_PIPX_HOME} PIPX_BIN_DIR={_PIPX_BIN}"
    begin, sudo, pipx = (variables, "", "pipx")
    if os.geteuid() != 0:
        begin, sudo, pipx = (f"sudo env {variables}", "sudo ", _for_sudo("pipx"))
    return f"{begin} {pipx} install {shlex.quote(_requirement())} && {sudo}{_PIPX_BIN}/cdigen install-service"


def _for_sudo(name: str) -> str:
    """Return NAME, or the path of the program NAME if sudo does not search the program's folder."""
    from shutil import which  # noqa: PLC0415 - only for a hint

    path = which(name) or name
    return name if os.path.dirname(path) in _SUDO_PATH else shlex.quote(path)


def removal() -> tuple[str, ...]:
    """Return the commands that remove this cdigen with the program that installed it.

    The result is empty if that program is unknown.
    """
    from importlib.util import find_spec  # noqa: PLC0415 - only for a removal

    if uninstall := _pipx("uninstall"):
        home = _pipx_home()
        return (uninstall, shlex.join(["rm", "-r", home])) if _is_alone(home) else (uninstall,)
    if find_spec("pip") is not None:
        return (shlex.join([sys.executable, "-m", "pip", "uninstall", "cdigen"]),)
    return ()


def addition(module: str) -> str:
    """Return the pipx command that adds the Python package MODULE; empty if pipx has not installed cdigen."""
    return _pipx("inject", module)


def _pipx(verb: str, *words: str) -> str:
    """Return the pipx command VERB for this cdigen; empty if pipx has not installed it.

    The command sets pipx's variables. Without the variables, pipx uses folders in the caller's home.
    """
    if not os.path.isfile(f"{sys.prefix}/pipx_metadata.json"):
        return ""
    variables = (f"PIPX_HOME={_pipx_home()}", *_bin_variable())
    return shlex.join(["env", *variables, "pipx", verb, os.path.basename(sys.prefix), *words])


def _pipx_home() -> str:
    return os.path.dirname(os.path.dirname(sys.prefix))


def _bin_variable() -> tuple[str, ...]:
    """Return PIPX_BIN_DIR with the folder of pipx's link to this command; empty without a link."""
    folders = (*os.environ.get("PATH", "").split(":"), _PIPX_BIN)
    own = os.path.realpath(COMMAND)
    links = (folder for folder in folders if os.path.islink(f"{folder}/cdigen"))
    found = next((folder for folder in links if os.path.realpath(f"{folder}/cdigen") == own), "")
    return (f"PIPX_BIN_DIR={found}",) if found else ()


def _is_alone(home: str) -> bool:
    """Return whether the folder HOME has only files that pipx created for this cdigen."""
    try:
        return os.listdir(f"{home}/venvs") == [os.path.basename(sys.prefix)] and _PIPX_ENTRIES.issuperset(
            os.listdir(home)
        )
    except OSError:
        return False


def _requirement() -> str:
    """Return the requirement from which this cdigen was installed (PEP 610).

    The requirement is a file, a repository or a release.
    """
    from importlib import metadata  # noqa: PLC0415 - 20 ms, only for a hint

    try:
        origin = json.loads(metadata.distribution("cdigen").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {}
    url = origin.get("url", "")
    if url.startswith("file:"):
        return unquote(urlsplit(url).path)
    if vcs := origin.get("vcs_info"):
        return f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return url or f"cdigen=={__version__}"
