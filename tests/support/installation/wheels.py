"""The wheel, built from these sources, and installed into a virtual environment without a network."""

import os
import sys
import sysconfig
import venv
from pathlib import Path

import jsonschema
from support.abilities import cannot_run
from support.installation.installing import done
from support.paths import REPOSITORY
from support.processes import captured, succeeded

# A fixed time, because archives contain it.
TIME = "1700000000"


def build(target: str, folder: Path, *, sources: Path = REPOSITORY) -> Path:
    """Build TARGET (wheel, sdist) of SOURCES into FOLDER; return the file."""
    before = set(folder.iterdir())
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    result = captured(command, cwd=sources, env={"PATH": os.environ["PATH"], "SOURCE_DATE_EPOCH": TIME})
    done(result)
    (made,) = set(folder.iterdir()) - before
    return made


def system_python() -> str:
    """Return the path of the system's Python of this minor version; services and other users can run it."""
    python, minor = "/usr/bin/python3", sys.version_info[:2]
    if succeeded([python, "-c", "import sys; print(sys.version_info[:2])"]).strip() != str(minor):
        cannot_run(f"{python}: not version {minor[0]}.{minor[1]}, the version of the tests' Python")
    return python


def installed(wheel: Path, folder: Path, *, base: str = "") -> Path:
    """Install WHEEL into a new virtual environment FOLDER; return the path of cdigen in it.

    cdigen's dependencies are those of this Python. BASE is another Python of the same minor version.
    """
    if base:
        done(captured([base, "-m", "venv", "--without-pip", folder]))
    else:
        venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    done(captured([*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)]))
    (site,) = folder.glob("lib/python*/site-packages")
    # Debian's own modules are in a folder that sysconfig does not name.
    folders = {sysconfig.get_path("purelib"), *map(os.path.dirname, jsonschema.__path__)}
    (site / "dependencies.pth").write_text("".join(f"{there}\n" for there in sorted(folders)))
    return folder / "bin/cdigen"
