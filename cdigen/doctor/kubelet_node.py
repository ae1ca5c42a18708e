"""What a node has of Kubernetes, each thing read once: ``Node``. The checks of the kubelet judge it."""

from __future__ import annotations

import os
import posixpath
import socket
import stat
from errno import ECONNREFUSED
from functools import cached_property

from cdigen.doctor import kubelet_checkpoint, kubelet_sockets
from cdigen.doctor.kubelet_settings import installed_kubelet, running_kubelet
from cdigen.doctor.processes import roots_processes
from cdigen.host.root import reason
from cdigen.model.errors import CdigenError
from cdigen.runtimes.daemon_service import KUBELET_UNIT
from cdigen.runtimes.installed import release_of
from cdigen.runtimes.settings import containerd
from cdigen.runtimes.units import command
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.doctor.context import DoctorRequest
    from cdigen.doctor.kubelet_checkpoint import Checkpoint
    from cdigen.doctor.kubelet_settings import Kubelet
    from cdigen.doctor.processes import Process
    from cdigen.runtimes.releases import Release

FOLDER = "/var/lib/kubelet"
SOCKET = "kubelet.sock"
# Runtimes by the names of RUNTIME_NAMES, and their processes. Docker serves kubelets through cri-dockerd.
_SERVERS = {"containerd": "containerd", "crio": "crio", "cri-dockerd": "docker"}
_OURS = ("cdigen-", ".sock")
_MAX_ENTRIES = 1000


@frozen
class Entry:
    """A file in the folder of the plugins' sockets.

    ``is_served``: a process listens there; None: it is no socket, or that is not known.
    """

    name: str
    kind: str
    is_served: bool | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is a socket of ``cdigen kubelet``."""
        return self.name.startswith(_OURS[0]) and self.name.endswith(_OURS[1])

    @property
    def is_in_use(self) -> bool:
        """Whether it is a socket where somebody listens, as far as is known."""
        return self.kind == "socket" and self.is_served is not False

    @property
    def resource(self) -> str:
        """The resource that another plugin's socket seems to be of, empty where its name does not say."""
        return kubelet_sockets.resource_of(self.name)

    @property
    def devices(self) -> str:
        """The CDI kind whose devices another plugin or DRA driver gives out here, empty where unknown."""
        return kubelet_sockets.kind_of(self.resource) or kubelet_sockets.driver_of(self.name)

    @property
    def told(self) -> str:
        """Another's socket, for people."""
        return f"{'DRA' if kubelet_sockets.driver_of(self.name) else self.resource} ({self.name})"


class Node:
    """The Kubernetes of the host of REQUEST."""

    def __init__(self, request: DoctorRequest) -> None:
        self._request = request
        self._host = request.host

    @property
    def is_live(self) -> bool:
        """Whether the host is the machine that runs this."""
        return self._host.is_this_machine

    @cached_property
    def kubelet(self) -> Kubelet | None:
        """The kubelet that runs here, else the one that a unit starts, else none."""
        found = running_kubelet(self._host) if self.is_live else None
        return found or installed_kubelet(self._host)

    @cached_property
    def release(self) -> Release | None:
        """The release of the kubelet that runs here, None where it is not known."""
        kubelet = self.kubelet
        if kubelet is None or not kubelet.program or not kubelet.distribution.tells_version:
            return None
        return release_of(self._host, kubelet.program)[0]

    @cached_property
    def _read_status(self) -> tuple[Mapping[str, Any] | None, str]:
        try:
            return self._request.kubelet()
        except CdigenError as error:
            return None, error.message

    @property
    def status(self) -> Mapping[str, Any] | None:
        """What ``cdigen kubelet`` says of itself while it runs, else None."""
        found, problem = self._read_status
        return None if problem else found

    @property
    def problem(self) -> str:
        """Why there is no status though something is there."""
        return self._read_status[1]

    @property
    def resources(self) -> tuple[Mapping[str, Any], ...]:
        """What it says of its resources."""
        found = self.status["resources"] if self.status else ()
        return tuple(row for row in found if isinstance(row, dict) and isinstance(row.get("resource"), str))

    @cached_property
    def our_folder(self) -> str:
        """The kubelet's folder that ``cdigen kubelet`` uses, or would by its unit."""
        if self.status:
            return str(self.status["kubelet_dir"])
        given = command(self._host, KUBELET_UNIT).values("--kubelet-dir")[-1:]
        return (*given, FOLDER)[0]

    @property
    def plugins(self) -> str:
        """The folder of the plugins' sockets: the kubelet's, or, where none is known, the one that we use."""
        return self.plugins_of(self.kubelet.root_dir if self.kubelet else self.our_folder)

    def plugins_of(self, root_dir: str) -> str:
        """Return the folder of the plugins' sockets where the kubelet's own is ROOT_DIR.

        It does not follow that: it is in it only where it is there, such as by a link (``kubelet.sockets``).
        """
        folder = f"{root_dir}/device-plugins"
        return folder if self._host.exists(folder) else f"{FOLDER}/device-plugins"

    @cached_property
    def is_hidden(self) -> bool:
        """Whether whoever runs this may not look into that folder."""
        try:
            self._host.listdir(self.plugins)
        except PermissionError:
            return True
        except OSError:
            return False
        return False

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """What is in that folder."""
        return self._entries(self.plugins)

    @property
    def others(self) -> tuple[Entry, ...]:
        """The sockets of other device plugins."""
        return tuple(one for one in self.entries if one.is_in_use and one.name != SOCKET and not one.is_ours)

    @cached_property
    def rivals(self) -> tuple[Entry, ...]:
        """The sockets of other device plugins and of DRA drivers that give out devices such as ours."""
        root_dir = self.kubelet.root_dir if self.kubelet else self.our_folder
        registered = self._entries(f"{root_dir}/plugins_registry")
        drivers = [one for one in registered if one.is_in_use and kubelet_sockets.driver_of(one.name)]
        return (*(one for one in self.others if one.devices), *drivers)

    @cached_property
    def socket(self) -> Entry | None:
        """The kubelet's own socket, None where there is none."""
        return self._entry(self.plugins, SOCKET)

    def _entries(self, folder: str) -> tuple[Entry, ...]:
        names = self._host.names(folder)[:_MAX_ENTRIES]
        return tuple(one for name in names if (one := self._entry(folder, name)))

    def _entry(self, folder: str, name: str) -> Entry | None:
        try:
            path = self._host.outer_path(f"{self._host.directory(folder)}/{name}")
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            return Entry(name=name, kind=reason(error))
        if stat.S_ISSOCK(mode):
            return Entry(name=name, kind="socket", is_served=_is_served(path) if self.is_live else None)
        kinds = ((stat.S_ISLNK, "link"), (stat.S_ISDIR, "folder"), (stat.S_ISREG, "file"))
        return Entry(name=name, kind=next((kind for test, kind in kinds if test(mode)), "device"))

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The kubelet's record of devices, None where there is none."""
        path = f"{self.plugins}/{kubelet_checkpoint.NAME}"
        try:
            content = self._host.read(path, limit=kubelet_checkpoint.MAX_SIZE)
        except FileNotFoundError:
            return None
        except PermissionError:
            return kubelet_checkpoint.Checkpoint(is_closed=True, problem="only root may read it")
        except OSError as error:
            return kubelet_checkpoint.Checkpoint(problem=reason(error))
        return kubelet_checkpoint.parse(content)

    # The runtime that the kubelet uses.

    @property
    def endpoint(self) -> str:
        """Where the kubelet's runtime listens, the kubelet's default where nothing is given."""
        given = self.kubelet.endpoint if self.kubelet else ""
        # Before 1.24 Docker was built in, and was the default.
        is_old = self.release is not None and self.release < (1, 24, 0)
        return given or ("unix:///var/run/dockershim.sock" if is_old else f"unix://{containerd.ADDRESS}")

    @cached_property
    def runtime(self) -> str:
        """The runtime of that endpoint, by the names of RUNTIME_NAMES; empty: it is none of them."""
        name = posixpath.basename(self.endpoint)
        for word, runtime in (("docker", "docker"), ("crio", "crio"), ("containerd", "containerd")):
            if word in name:
                return runtime
        return "containerd" if self._containerd else ""

    @cached_property
    def server(self) -> Process | None:
        """The process that listens where the kubelet's runtime does, None where that is not known."""
        if self.runtime == "containerd":
            return self._containerd
        return next((one for one in self._servers if _SERVERS[one.name] == self.runtime), None)

    @cached_property
    def _servers(self) -> tuple[Process, ...]:
        return roots_processes(_SERVERS) if self.is_live else ()

    @cached_property
    def _containerd(self) -> Process | None:
        wanted = _plain(self.endpoint)
        found = (one for one in self._servers if one.name == "containerd")
        return next(
            (one for one in found if _plain(containerd.address(self._host, one.line)) == wanted), None
        )


def _plain(endpoint: str) -> str:
    """Return the path of ENDPOINT in one form."""
    path = posixpath.normpath(endpoint.removeprefix("unix://"))
    return f"/{path.removeprefix('/var/')}" if path.startswith("/var/run/") else path


def _is_served(path: str) -> bool | None:
    """Return whether a process listens at the socket PATH. Nothing is sent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        try:
            code = client.connect_ex(path)
        except OSError:  # its path is too long for an address
            return None
    return {0: True, ECONNREFUSED: False}.get(code)
