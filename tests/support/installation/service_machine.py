"""A test host for `cdigen install-service` as root: a folder has the host's /etc, /run, /var/lib, /opt.

The wheel is in /opt/venv. A script replaces systemctl: it records its calls, and whether the service is
enabled and active. Scripts also replace the programs that etc/install runs: such a script can kill the
command at a given call.
"""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from support.daemon.host import unshared
from support.processes import captured

# Each call of one of these programs is a step of etc/install.
STEPS = ("cp", "find", "install", "ln", "mv", "rm")
# The files and folders of /etc that programs on the host need for libraries, user names and alternatives.
ETC = ("alternatives", "group", "ld.so.cache", "nsswitch.conf", "passwd")
SYSTEMCTL = """
case "$*" in
enable*) touch {top}/enabled {top}/active ;;
disable*) rm -f {top}/enabled {top}/active ;;
is-active*) [ -e {top}/active ] && echo active || echo inactive ;;
esac
"""


class ServiceMachine:
    """The host below ``top``, with the virtual environment VENV of an installed wheel."""

    def __init__(self, top: Path, venv: Path) -> None:
        self.top = top
        # Only root can change /opt; other users can change the folder of the tests.
        self.prefix = "/opt/cdigen"
        self.folders = {name: top / "host" / name.strip("/") for name in ("/etc", "/run", "/var/lib", "/opt")}
        for folder in self.folders.values():
            folder.mkdir(parents=True)
        for source in (Path("/etc", name) for name in ETC):
            target = self.folders["/etc"] / source.name
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            elif source.exists():
                shutil.copy2(source, target)
        shutil.copytree(venv, self.folders["/opt"] / "venv", symlinks=True)
        (self.folders["/run"] / "systemd/system").mkdir(parents=True)
        (self.folders["/etc"] / "systemd/system").mkdir(parents=True)
        (self.folders["/etc"] / "cdigen").mkdir()
        self.programs = top / "programs"
        self.programs.mkdir()
        (top / "real").mkdir()
        for name in STEPS:
            shutil.copy(f"/usr/bin/{name}", top / "real" / name)
            self._program(name, f'exec {top}/real/{name} "$@"\n')
        self._program("systemctl", f'echo "$*" >>{top}/calls\n{SYSTEMCTL.format(top=top)}')

    def install_service(
        self, *options: str, stop: int = 0, only_parent: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run `cdigen install-service`; at step STOP, kill its processes (only the first if ONLY_PARENT)."""
        (self.top / "steps").write_text("0")
        (self.top / "stop").write_text(str(stop))
        (self.top / "scope").write_text("parent" if only_parent else "all")
        command = (
            "/opt/venv/bin/python",
            "-m",
            "cdigen",
            "install-service",
            "--prefix",
            self.prefix,
            *options,
        )
        return self.run(
            "setsid", "--wait", "sh", "-c", f'echo $$ >{self.top}/parent; exec "$@"', "sh", *command
        )

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run COMMAND on the host."""
        binds = {str(folder): name for name, folder in self.folders.items()}
        mounts = "".join(f"mount --bind {source} {target} && " for source, target in binds.items())
        # An overlay: a bind mount needs an existing file, and the root of tests/on-debian13 has no systemctl.
        mounts += f"mount -t overlay -o lowerdir={self.programs}:/usr/bin overlay /usr/bin && "
        return captured(
            [*unshared("--mount"), "sh", "-c", f"{mounts}exec {shlex.join(command)}"],
            cwd="/",
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        )

    @property
    def installed(self) -> Path:
        """The path of the prefix below ``top``, outside the host."""
        return self.folders["/opt"] / "cdigen"

    @property
    def steps(self) -> int:
        """The number of steps of the last run."""
        return int((self.top / "steps").read_text())

    @property
    def calls(self) -> list[str]:
        """The arguments of the calls of systemctl."""
        file = self.top / "calls"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def is_enabled_and_active(self) -> bool:
        """Whether the service runs now, and starts at boot."""
        return (self.top / "enabled").exists() and (self.top / "active").exists()

    def forget_calls(self) -> None:
        """Clear ``calls``."""
        (self.top / "calls").unlink(missing_ok=True)

    def _program(self, name: str, code: str) -> None:
        top, program = self.top, self.programs / name
        step = (
            f"step=$(($(cat {top}/steps) + 1))\necho $step >{top}/steps\n"
            f'if [ "$step" = "$(cat {top}/stop)" ]; then\n'
            # Python starts systemctl in a separate process group; the argument 0 of kill is that group.
            f'\tif [ "$(cat {top}/scope)" = parent ]; then kill -9 "$(cat {top}/parent)"; '
            f'else kill -9 -"$(cat {top}/parent)" 0; fi\nfi\n'
        )
        program.write_text(f"#!/bin/sh\n{step}{code}")
        program.chmod(0o755)
