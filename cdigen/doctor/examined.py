"""The runtimes to examine, each with its release and configuration: ``examined_runtimes``, ``running``."""

from __future__ import annotations

import os

from cdigen.cdi.library import NEWEST_RELEASE, newest_version
from cdigen.doctor.processes import roots_processes
from cdigen.runtimes import settings
from cdigen.runtimes.releases import RUNTIME_NAMES, library_of, newest_release
from cdigen.runtimes.settings import containerd, crio
from cdigen.runtimes.settings.config_files import RuntimeSettings
from cdigen.runtimes.units import command
from cdigen.runtimes.users import ROOT
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.doctor.context import DoctorRequest
    from cdigen.doctor.processes import Process
    from cdigen.host.root import Root
    from cdigen.runtimes.installed import InstalledRuntime
    from cdigen.runtimes.users import Reader, User

# Used if no runtime was found: with the newest CDI library and the configured directories.
ANY_RUNTIME = "any runtime"
# By the name of the process (proc(5), comm); podman has no daemon.
PROCESSES = {"docker": "dockerd", "containerd": "containerd", "crio": "crio"}


@frozen
class ExaminedRuntime:
    """A runtime that matters here: its name for people, its binary, and how it is configured.

    ``is_foreign``: it is configured by files that are not ``cdigen configure``'s to edit, as k3s's own.
    """

    name: str
    binary: InstalledRuntime | None
    settings: RuntimeSettings
    library: str
    newest: str
    reader: Reader
    is_foreign: bool = False

    @property
    def shown(self) -> str:
        """The runtime with its release, for people."""
        release = self.binary.release if self.binary else None
        return f"{self.name} {'.'.join(map(str, release))}" if release else self.name


def examined_runtimes(
    request: DoctorRequest, installed: Mapping[str, InstalledRuntime], server: Process | None = None
) -> tuple[ExaminedRuntime, ...]:
    """Return those of REQUEST that are INSTALLED, else all installed ones, else one that stands for any.

    SERVER: the process of one of them that serves the kubelet, whose own configuration then counts.
    """
    # A kubelet's runtime that is not known is none of the others that are installed.
    names = request.runtimes or (() if request.for_kubelet else tuple(installed))
    found = tuple(
        _runtime(request, name, installed[name], server if server and server.name == name else None)
        for name in names
        if name in installed
    )
    return found or (_any_runtime(request),)


def _runtime(
    request: DoctorRequest, name: str, binary: InstalledRuntime, server: Process | None
) -> ExaminedRuntime:
    user = request.user if name in {"podman", "docker"} else None
    library, newest = library_of(RUNTIME_NAMES[name], newest_release(RUNTIME_NAMES[name]))
    target = RUNTIME_NAMES[name]
    if server is not None:
        read = settings.read_started(target, request.host, binary.release, server.line)
    else:
        starter, environment = _starter(request, name), _environment(request)
        read = settings.read(target, request.host, binary.release, starter, environment=environment)
    reader = user.reader() if user and read.rootless else ROOT
    return ExaminedRuntime(
        name=name,
        binary=binary,
        settings=read,
        library=binary.library if binary.release else library,
        newest=binary.newest if binary.release else newest,
        reader=replace(reader, follows_links=read.follows_links),
        is_foreign=server is not None and _is_foreign(request.host, server),
    )


def _is_foreign(host: Root, server: Process) -> bool:
    """Return whether SERVER reads other files than the service of its runtime."""
    own = (command(host, unit) for unit in (f"{server.name}.service", "cri-o.service"))
    names = ("--config", "-c")
    usual = {*(line.values(*names)[-1:] for line in own), ()}
    return server.line.values(*names)[-1:] not in {*usual, (containerd.FILE,), (crio.FILE,)}


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
    """Return when each daemon that runs here was started (its oldest process), in seconds since 1970."""
    names = {process: name for name, process in PROCESSES.items()}
    found: dict[str, float] = {}
    for process in roots_processes(names):
        found.setdefault(names[process.name], process.began_s)
    return found
