"""`make install` and `make uninstall` for tests, and the content of a tree."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from support.abilities import tool
from support.paths import REPOSITORY
from support.processes import captured

# Settings of an installation that uses the modules of this Python.
LOCAL = ("INSTALL_DEPS=no", f"HOST_PYTHON={sys.executable}", f"HOOK_PYTHON={sys.executable}")


def make(
    target: str,
    destination: Path,
    *settings: str,
    umask: int = 0o022,
    tree: Path = REPOSITORY,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    """Run a target of the Makefile of TREE for DESTINATION, with this Python; return its result."""
    command = [tool("make"), "-s", target, f"DESTDIR={destination}", f"PYTHON={sys.executable}", *settings]
    return captured(command, cwd=tree, umask=umask, env={**_environment(), **environment})


def done(result: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a command, which must have succeeded."""
    assert result.returncode == 0, f"{result.stdout}{result.stderr}"
    return result.stdout


def publish_script(directory: str, kind: str, program: str) -> str:
    """Return Python code that writes a spec of KIND whose hook is PROGRAM, as cdigen writes it."""
    hook = {"hookName": "createContainer", "path": program}
    devices = [{"name": "0", "containerEdits": {"hooks": [hook]}}]
    spec = json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": devices})
    name = f"{kind.replace('/', '-')}.json"
    return (
        "from cdigen.store.specs import publish\n"
        f"publish({directory!r}, {name!r}, {spec.encode()!r}, kind={kind!r}, "
        "state_dir='/var/lib/cdigen', check=lambda _: None)\n"
    )


def snapshot(root: Path) -> dict[str, tuple[int, int, int, int, str]]:
    """Return all paths below ROOT with mode, owner, and the target of a link or the size of a file."""
    found: dict[str, tuple[int, int, int, int, str]] = {}
    for top, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(top, name)
            status = os.lstat(path)
            is_link = os.path.islink(path)
            report = os.readlink(path) if is_link else str(status.st_size * (name in files))
            found[os.path.relpath(path, root)] = (
                status.st_mode,
                status.st_uid,
                status.st_gid,
                is_link,
                report,
            )
    return found


def _environment() -> dict[str, str]:
    # Variables of an outer 'make test' would be settings of the installation.
    inherited = ("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS")
    return {name: value for name, value in os.environ.items() if name not in inherited}
