"""The parts of Kubernetes on a host, for the checks of the kubelet."""

from __future__ import annotations

import os
import posixpath
import socket
import stat
from errno import ECONNREFUSED
from functools import cached_property

from cdigen.doctor.kubernetes_node import checkpoint
from cdigen.doctor.kubernetes_node import sockets as kubelet_sockets
from cdigen.doctor.kubernetes_node.settings import installed_kubelet, running_kubelet
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
    from cdigen.doctor.kubernetes_node.checkpoint import Checkpoint
    from cdigen.doctor.kubernetes_node.settings import Kubelet
    from cdigen.doctor.processes import HostProcess
    from cdigen.runtimes.releases import Release

FOLDER = "/var/lib/kubelet"
SOCKET = "kubelet.sock"
# Process -> runtime, as in RUNTIME_NAMES. Docker serves kubelets through cri-dockerd.
_SERVERS = {"containerd": "containerd", "crio": "crio", "cri-dockerd": "docker"}
_OURS = ("cdigen-", ".sock")
_MAX_ENTRIES = 1000


@frozen
class PluginSocket:
    """A file in the folder with the sockets of device plugins.

    ``is_served`` is true if a process listens at the socket. ``is_served`` is None if the file is not a
    socket, or if the state is unknown.
    """

    name: str
    kind: str
    is_served: bool | None = None

    @property
    def is_ours(self) -> bool:
        """Whether the file is a socket of ``cdigen kubelet``."""
        return self.name.startswith(_OURS[0]) and self.name.endswith(_OURS[1])

    @property
    def is_in_use(self) -> bool:
        """Whether a process listens at the socket, or may listen there."""
        return self.kind == "socket" and self.is_served is not False

    @property
    def resource(self) -> str:
        """The resource in the name of another plugin's socket; empty if the name has no resource."""
        return kubelet_sockets.resource_of(self.name)

    @property
    def devices(self) -> str:
        """The CDI kind of the devices that the other plugin or DRA driver advertises; empty if unknown."""
        return kubelet_sockets.kind_of(self.resource) or kubelet_sockets.driver_of(self.name)

    @property
    def description(self) -> str:
        """The description of another plugin's socket for messages."""
        return f"{'DRA' if kubelet_sockets.driver_of(self.name) else self.resource} ({self.name})"


class KubernetesNode:
    """The state of Kubernetes on the host of REQUEST; each part is read once."""

    def __init__(self, request: DoctorRequest) -> None:
        self._request = request
        self._host = request.host

    @cached_property
    def kubelet(self) -> Kubelet | None:
        """The kubelet that is running on this machine, or the kubelet that a unit starts, or None."""
        found = running_kubelet(self._host) if self._host.is_this_machine else None
        return found or installed_kubelet(self._host)

    @cached_property
    def release(self) -> Release | None:
        """The release of the running kubelet; None if the release is unknown."""
        kubelet = self.kubelet
        if kubelet is None or not kubelet.program or not kubelet.distribution.has_version_option:
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
        """The status of ``cdigen kubelet``; None if it is not running."""
        found, problem = self._read_status
        return None if problem else found

    @property
    def problem(self) -> str:
        """The reason why the status cannot be used; empty if there is no problem or no status."""
        return self._read_status[1]

    @property
    def resources(self) -> tuple[Mapping[str, Any], ...]:
        """The resources in the status."""
        found = self.status["resources"] if self.status else ()
        return tuple(row for row in found if isinstance(row, dict) and isinstance(row.get("resource"), str))

    @cached_property
    def our_folder(self) -> str:
        """The kubelet's folder that ``cdigen kubelet`` uses, or that its unit selects."""
        if self.status:
            return str(self.status["kubelet_dir"])
        option = command(self._host, KUBELET_UNIT).values("--kubelet-dir")[-1:]
        return (*option, FOLDER)[0]

    @property
    def plugins(self) -> str:
        """The folder with the sockets of device plugins.

        If no kubelet is known, the folder is from ``our_folder``.
        """
        return self.plugins_of(self.kubelet.root_dir if self.kubelet else self.our_folder)

    def plugins_of(self, root_dir: str) -> str:
        """Return the folder with the sockets of device plugins, for a kubelet with the folder ROOT_DIR.

        The folder is below ROOT_DIR only if it exists there, for example as a link
        (``kubelet.registration.sockets``).
        """
        folder = f"{root_dir}/device-plugins"
        return folder if self._host.exists(folder) else f"{FOLDER}/device-plugins"

    @cached_property
    def is_hidden(self) -> bool:
        """Whether the user may not read the folder ``plugins``."""
        try:
            self._host.listdir(self.plugins)
        except PermissionError:
            return True
        except OSError:
            return False
        return False

    @cached_property
    def entries(self) -> tuple[PluginSocket, ...]:
        """The files in the folder ``plugins``."""
        return self._entries(self.plugins)

    @property
    def other_plugins(self) -> tuple[PluginSocket, ...]:
        """The sockets of other device plugins."""
        return tuple(one for one in self.entries if one.is_in_use and one.name != SOCKET and not one.is_ours)

    @cached_property
    def competing_plugins(self) -> tuple[PluginSocket, ...]:
        """The sockets of other device plugins and DRA drivers for the devices that cdigen can advertise."""
        root_dir = self.kubelet.root_dir if self.kubelet else self.our_folder
        registered = self._entries(f"{root_dir}/plugins_registry")
        drivers = [one for one in registered if one.is_in_use and kubelet_sockets.driver_of(one.name)]
        return (*(one for one in self.other_plugins if one.devices), *drivers)

    @cached_property
    def socket(self) -> PluginSocket | None:
        """The kubelet's own socket; None if it does not exist."""
        return self._entry(self.plugins, SOCKET)

    def _entries(self, folder: str) -> tuple[PluginSocket, ...]:
        names = self._host.names(folder)[:_MAX_ENTRIES]
        return tuple(one for name in names if (one := self._entry(folder, name)))

    def _entry(self, folder: str, name: str) -> PluginSocket | None:
        try:
            path = self._host.outer_path(f"{self._host.directory(folder)}/{name}")
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            return PluginSocket(name=name, kind=reason(error))
        if stat.S_ISSOCK(mode):
            return PluginSocket(
                name=name, kind="socket", is_served=_is_served(path) if self._host.is_this_machine else None
            )
        kinds = ((stat.S_ISLNK, "link"), (stat.S_ISDIR, "folder"), (stat.S_ISREG, "file"))
        return PluginSocket(name=name, kind=next((kind for test, kind in kinds if test(mode)), "device"))

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The kubelet's record of devices; None if there is no record."""
        path = f"{self.plugins}/{checkpoint.NAME}"
        try:
            content = self._host.read(path, limit=checkpoint.MAX_SIZE)
        except FileNotFoundError:
            return None
        except PermissionError:
            return checkpoint.Checkpoint(is_closed=True, problem="only root may read it")
        except OSError as error:
            return checkpoint.Checkpoint(problem=reason(error))
        return checkpoint.parse(content)

    # The runtime that the kubelet uses.

    @property
    def endpoint(self) -> str:
        """The endpoint of the kubelet's runtime, or the kubelet's default."""
        configured = self.kubelet.endpoint if self.kubelet else ""
        # Before 1.24, the kubelet contained support for Docker, and Docker was the default.
        is_old = self.release is not None and self.release < (1, 24, 0)
        return configured or ("unix:///var/run/dockershim.sock" if is_old else f"unix://{containerd.ADDRESS}")

    @cached_property
    def runtime(self) -> str:
        """The runtime at ``endpoint``, by its name in RUNTIME_NAMES; empty for other runtimes."""
        name = posixpath.basename(self.endpoint)
        for word, runtime in (("docker", "docker"), ("crio", "crio"), ("containerd", "containerd")):
            if word in name:
                return runtime
        return "containerd" if self._containerd else ""

    @cached_property
    def server(self) -> HostProcess | None:
        """The process that listens at ``endpoint``; None if it is unknown."""
        if self.runtime == "containerd":
            return self._containerd
        return next((one for one in self._servers if _SERVERS[one.name] == self.runtime), None)

    @cached_property
    def _servers(self) -> tuple[HostProcess, ...]:
        return roots_processes(_SERVERS) if self._host.is_this_machine else ()

    @cached_property
    def _containerd(self) -> HostProcess | None:
        endpoint = _plain(self.endpoint)
        found = (one for one in self._servers if one.name == "containerd")
        return next(
            (one for one in found if _plain(containerd.address(self._host, one.line)) == endpoint), None
        )


def _plain(endpoint: str) -> str:
    """Return the normalized path of ENDPOINT."""
    path = posixpath.normpath(endpoint.removeprefix("unix://"))
    return f"/{path.removeprefix('/var/')}" if path.startswith("/var/run/") else path


def _is_served(path: str) -> bool | None:
    """Return whether a process listens at the socket PATH; the function connects, but sends nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        try:
            code = client.connect_ex(path)
        except OSError:  # the path is too long for an address
            return None
    return {0: True, ECONNREFUSED: False}.get(code)
