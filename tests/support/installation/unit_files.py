"""Unit files as systemd reads them, and the results of systemd's tools."""

import json
import re
import shutil
from pathlib import Path

from support.abilities import tool
from support.paths import REPOSITORY
from support.processes import captured, succeeded

ETC = REPOSITORY / "etc"


def settings(unit: Path, section: str = "Service") -> list[tuple[str, str]]:
    """Return the settings of a section, in their order."""
    text = unit.read_text().partition(f"[{section}]\n")[2].partition("\n[")[0]
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


def security(unit: Path, folder: Path, drop_in: str = "") -> tuple[float, dict[str, str]]:
    """Copy a unit into FOLDER; return its exposure level, and the exposure of each remaining weakness."""
    copy = folder / unit.name
    shutil.copy(unit, copy)
    if drop_in:
        drop_ins = folder / f"{unit.name}.d"
        drop_ins.mkdir()
        shutil.copy(f"{unit}.d/{drop_in}.conf.example", drop_ins / f"{drop_in}.conf")
    message = _analyzed("security", "--offline=true", "--no-pager", str(copy))
    table = json.loads(_analyzed("security", "--offline=true", "--no-pager", "--json=short", str(copy)))
    level = re.search(r"exposure level for \S+: ([0-9.]+)", message)
    assert level is not None, message
    left = {row["name"]: row["exposure"] for row in table if row["exposure"]}
    return float(level[1]), {
        name.removesuffix("/DynamicUser=").removesuffix("/RootImage="): exposure
        for name, exposure in left.items()
    }


def complaints(unit: Path, folder: Path) -> list[str]:
    """Return the problems that systemd finds in a unit, except a missing program or manual."""
    copy = folder / unit.name
    text = unit.read_text().replace("/usr/bin/cdigen", "/bin/true")
    copy.write_text(re.sub(r"man:cdigen(-nri|-kubelet|-create-nodes)?\(8\)", "man:ls(1)", text))
    command = [tool("systemd-analyze", "systemd"), "verify", "--man=no", str(copy)]
    done = captured(command)
    return [line for line in done.stderr.splitlines() if unit.name in line or str(folder) in line]


def systemd_version() -> str:
    """Return the version of systemd, such as ``systemd 252``."""
    return _analyzed("--version").split(" (")[0]


def _analyzed(*arguments: str) -> str:
    command = [tool("systemd-analyze", "systemd"), *arguments]
    return succeeded(command)
