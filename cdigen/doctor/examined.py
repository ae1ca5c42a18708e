"""The runtimes to examine, with their releases and configurations."""

from __future__ import annotations

import os

from cdigen.cdi.library import NEWEST_RELEASE, newest_version
from cdigen.doctor.kubernetes_node.bundled import (
    bundled_containerd,
    can_configure,
    examined_containerd,
    read_bundled,
)
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
    from cdigen.doctor.processes import HostProcess
    from cdigen.host.root import Root
    from cdigen.runtimes.installed import InstalledRuntime
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.users import Reader, User

# The runtime to examine on a host without an installed runtime. It has the newest CDI library and the
# configured directories.
ANY_RUNTIME = "any runtime"
# The runtimes that have rootless containers.
_USERS = ("podman", "docker")
# The names of the daemons' processes (proc(5), comm). podman has no daemon.
PROCESSES = {"docker": "dockerd", "containerd": "containerd", "crio": "crio"}


@frozen
class ExaminedRuntime:
    """A runtime to examine: its name, its binary and its configuration.

    ``library`` is the version of its CDI library. ``newest`` is the newest cdiVersion that this library
    reads. If ``is_foreign`` is true, ``cdigen configure`` must not edit the runtime's configuration files
    (for example, those of k3s without drop-ins).
    """

    name: str
    binary: InstalledRuntime | None
    settings: RuntimeSettings
    library: str
    newest: str
    reader: Reader
    is_foreign: bool = False

    @property
    def reads_cdi(self) -> bool:
        """Whether the release of this runtime reads CDI specs; true if the release is unknown."""
        return bool(self.library)

    @property
    def shown(self) -> str:
        """The name and the release of the runtime, for messages."""
        release = self.binary.release if self.binary else None
        return f"{self.name} {'.'.join(map(str, release))}" if release else self.name


def examined_runtimes(
    request: DoctorRequest, installed: Mapping[str, InstalledRuntime], server: HostProcess | None = None
) -> tuple[ExaminedRuntime, ...]:
    """Return the runtimes in INSTALLED that REQUEST names, or all runtimes in INSTALLED if it names none.

    If there is no such runtime, the result is ``ANY_RUNTIME``. SERVER is the process of the runtime that
    serves the kubelet. For this runtime, the configuration that SERVER reads is examined.
    """
    # If the kubelet's runtime is unknown, no other installed runtime is examined.
    names = request.runtimes or (() if request.for_kubelet else tuple(installed))
    if request.is_for_user:
        names = tuple(name for name in names if name in _USERS)
    found = tuple(
        _runtime(request, name, installed[name], server if server and server.name == name else None)
        for name in names
        if name in installed
    )
    return found or (_any_runtime(request),)


def _runtime(
    request: DoctorRequest, name: str, binary: InstalledRuntime, server: HostProcess | None
) -> ExaminedRuntime:
    user = request.user if name in {"podman", "docker"} else None
    library, newest = library_of(RUNTIME_NAMES[name], newest_release(RUNTIME_NAMES[name]))
    target = RUNTIME_NAMES[name]
    bundled = (
        examined_containerd(request.host, for_kubelet=request.for_kubelet) if name == "containerd" else None
    )
    if server is not None:
        read = settings.read_started(target, request.host, binary.release, server.line)
    elif bundled is not None:
        read = read_bundled(request.host, bundled, binary.release)
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
        is_foreign=_is_foreign(request.host, name, binary.release, server, is_bundled=bundled is not None),
    )


def _is_foreign(
    host: Root, name: str, release: Release | None, server: HostProcess | None, *, is_bundled: bool
) -> bool:
    """Return whether ``cdigen configure`` changes other files than those of the examined runtime NAME.

    The files of SERVER can be those of another program, such as k3s. If SERVER is None, the files are those
    of the usual service, but ``cdigen configure`` changes the containerd of a distribution on HOST. If
    IS_BUNDLED is true, the files are those of this distribution.
    """
    if server is None:
        is_own = is_bundled and can_configure(host, release)
        return name == "containerd" and bundled_containerd(host) is not None and not is_own
    if name == "containerd" and can_configure(host, release):
        return False
    own = (command(host, unit) for unit in (f"{server.name}.service", "cri-o.service"))
    names = ("--config", "-c")
    usual = {*(line.values(*names)[-1:] for line in own), ()}
    return server.line.values(*names)[-1:] not in {*usual, (containerd.FILE,), (crio.FILE,)}


def _starter(request: DoctorRequest, name: str) -> User | None:
    """Return the user that starts the runtime NAME, or None; docker needs a rootless dockerd of the user."""
    user = request.user
    if name == "podman":
        return user
    if name != "docker" or user is None:
        return None
    # Without a unit, a rootless dockerd has at least one of the other paths (moby, dockerd-rootless.sh).
    signs = (
        f"{user.config_home}/systemd/user/docker.service", f"{user.runtime_dir}/docker.sock",
        f"{user.config_home}/docker/daemon.json", f"{user.home}/.local/share/docker",
    )  # fmt: skip
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
    """Return the start time of the oldest process of each running daemon, in seconds since 1970."""
    names = {process: name for name, process in PROCESSES.items()}
    found: dict[str, float] = {}
    for process in roots_processes(names):
        found.setdefault(names[process.name], process.began_s)
    return found
