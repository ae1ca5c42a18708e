"""The runtimes to examine, each with its release and configuration: ``examined_runtimes``, ``running``."""

from __future__ import annotations

import os

from cdigen.cdi.library import NEWEST_RELEASE, newest_version
from cdigen.runtimes import settings
from cdigen.runtimes.releases import RUNTIME_NAMES, library_of, newest_release
from cdigen.runtimes.settings.config_files import RuntimeSettings
from cdigen.runtimes.users import ROOT
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.doctor.context import DoctorRequest
    from cdigen.runtimes.installed import InstalledRuntime
    from cdigen.runtimes.users import Reader, User

# Used if no runtime was found: with the newest CDI library and the configured directories.
ANY_RUNTIME = "any runtime"
# By the name of the process (proc(5), comm); podman has no daemon.
PROCESSES = {"docker": "dockerd", "containerd": "containerd", "crio": "crio"}


@frozen
class ExaminedRuntime:
    """A runtime that matters here: its name for people, its binary, and how it is configured."""

    name: str
    binary: InstalledRuntime | None
    settings: RuntimeSettings
    library: str
    newest: str
    reader: Reader

    @property
    def shown(self) -> str:
        """The runtime with its release, for people."""
        release = self.binary.release if self.binary else None
        return f"{self.name} {'.'.join(map(str, release))}" if release else self.name


def examined_runtimes(
    request: DoctorRequest, installed: Mapping[str, InstalledRuntime]
) -> tuple[ExaminedRuntime, ...]:
    """Return those of REQUEST that are INSTALLED, else all installed ones, else one that stands for any."""
    names = request.runtimes or tuple(installed)
    found = tuple(_runtime(request, name, installed[name]) for name in names if name in installed)
    return found or (_any_runtime(request),)


def _runtime(request: DoctorRequest, name: str, binary: InstalledRuntime) -> ExaminedRuntime:
    user = request.user if name in {"podman", "docker"} else None
    library, newest = library_of(RUNTIME_NAMES[name], newest_release(RUNTIME_NAMES[name]))
    read = settings.read(
        RUNTIME_NAMES[name],
        request.host,
        binary.release,
        _starter(request, name),
        environment=_environment(request),
    )
    reader = user.reader() if user and read.rootless else ROOT
    return ExaminedRuntime(
        name=name,
        binary=binary,
        settings=read,
        library=binary.library if binary.release else library,
        newest=binary.newest if binary.release else newest,
        reader=replace(reader, follows_links=read.follows_links),
    )


def _starter(request: DoctorRequest, name: str) -> User | None:
    """Return the user of the runtime NAME: a user's own dockerd only if one is set up."""
    user = request.user
    if name == "podman":
        return user
    if name != "docker" or user is None:
        return None
    signs = (f"{user.config_home}/systemd/user/docker.service", f"{user.runtime_dir}/docker.sock")
    return user if any(request.host.exists(sign) for sign in signs) else None


def _environment(request: DoctorRequest) -> Mapping[str, str]:
    is_own = request.user is None or request.user.uid == os.geteuid()
    return os.environ if request.host.is_this_machine and is_own else {}


def _any_runtime(request: DoctorRequest) -> ExaminedRuntime:
    return ExaminedRuntime(
        name=ANY_RUNTIME,
        binary=None,
        settings=RuntimeSettings(runtime=ANY_RUNTIME, spec_dirs=request.configuration.spec_dirs),
        library=NEWEST_RELEASE,
        newest=newest_version(NEWEST_RELEASE),
        reader=request.user.reader() if request.user else ROOT,
    )


def running() -> dict[str, float]:
    """Return when each daemon that runs here was started (its oldest process), in seconds since 1970.

    Any user can give a process any name, so only root's processes outside of containers count.
    """
    names = {process.encode(): name for name, process in PROCESSES.items()}
    boot = _boot()
    found: dict[str, float] = {}
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                text = file.read(4096)
            if text.partition(b"(")[2].rpartition(b")")[0] not in names or not _is_roots(pid):
                continue
        except OSError:
            continue
        # Field 2 is the name in brackets, field 22 the start in ticks since the boot (proc(5)).
        comm, _, rest = text.partition(b"(")[2].rpartition(b")")
        began = boot + int(rest.split()[19]) / os.sysconf("SC_CLK_TCK")
        found[names[comm]] = min(began, found.get(names[comm], began))
    return found


def _is_roots(pid: str) -> bool:
    """Return whether the process PID runs as root and in our own PID namespace (proc(5), status).

    The owner of its folder in /proc is no proof: root owns those of all undumpable processes.
    """
    with open(f"/proc/{pid}/status", "rb") as file:
        rows = dict(line.split(b":", 1) for line in file.read(8192).splitlines() if b":" in line)
    users, numbers = rows.get(b"Uid", b"").split(), rows.get(b"NSpid", pid.encode()).split()
    return users[:3] == [b"0"] * 3 and len(numbers) == 1


def _boot() -> float:
    try:
        with open("/proc/stat", "rb") as file:
            return float(file.read(1 << 20).partition(b"btime ")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return 0.0
