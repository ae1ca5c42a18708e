"""Pods and containers as a runtime describes them, and what a plugin changes in one, as plain values.

Only what cdigen looks at or changes is here; names are NRI's.
"""

from __future__ import annotations

from types import MappingProxyType

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# The longest name of an object of Kubernetes (RFC 1123's of a host).
_MAX_NAME = 253
_MAX_TEXT = 1_000
_NOTHING: Mapping[str, str] = MappingProxyType({})


@frozen
class Pod:
    """A pod sandbox; labels and annotations are the user's and the runtime's."""

    id: str
    name: str
    namespace: str
    runtime_handler: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@frozen
class ContainerMount:
    """A mount of ``source``, a path of the host or a file system, at ``destination``."""

    destination: str
    source: str
    type: str
    options: tuple[str, ...]


@frozen
class Container:
    """A container that is about to be created, or is there.

    ``env`` are ``KEY=value``, those of image, pod and kubelet in one; ``devices`` the paths of its device
    nodes; ``cdi_devices`` what kubelet asked for, where the runtime tells (containerd 2.3);
    ``may_use_all_devices``: its cgroup lets it use any device of the host.
    """

    id: str
    pod_id: str
    name: str
    annotations: Mapping[str, str]
    env: tuple[str, ...]
    mounts: tuple[ContainerMount, ...]
    devices: tuple[str, ...]
    cdi_devices: tuple[str, ...]
    may_use_all_devices: bool = False


@frozen
class ContainerDevice:
    """A device node for a container; ``type`` is ``c`` or ``b``. What is None is the runtime's default."""

    path: str
    type: str
    major: int
    minor: int
    file_mode: int | None = None
    uid: int | None = None
    gid: int | None = None


@frozen
class ContainerHook:
    """A program that runs at ``stage``, in the words of OCI (createContainer); ``timeout`` is in seconds."""

    stage: str
    path: str
    args: tuple[str, ...]
    env: tuple[str, ...]
    timeout: int | None = None


@frozen
class Adjustment:
    """What is changed in a container before it is created; ``env`` are variables and their values.

    A name that begins with "-" takes away instead (annotation, variable, mount, device).
    """

    annotations: Mapping[str, str] = _NOTHING
    env: Mapping[str, str] = _NOTHING
    mounts: tuple[ContainerMount, ...] = ()
    devices: tuple[ContainerDevice, ...] = ()
    hooks: tuple[ContainerHook, ...] = ()
    cdi_devices: tuple[str, ...] = ()


@frozen
class Owners:
    """Which plugin (``20-cdigen``) has set what of an adjustment; with "-" before it: has taken it away."""

    annotations: Mapping[str, str] = _NOTHING
    env: Mapping[str, str] = _NOTHING
    mounts: Mapping[str, str] = _NOTHING
    devices: Mapping[str, str] = _NOTHING


@frozen
class ContainerName:
    """A container by its names, cut: thousands of events may wait to be logged."""

    namespace: str
    pod: str
    container: str

    def row(self) -> dict[str, str]:
        """Return the names for log and status."""
        return {"namespace": self.namespace, "pod": self.pod, "container": self.container}


def container_name(pod: Pod, container: Container) -> ContainerName:
    """Return the names of CONTAINER of POD."""
    namespace, named, own = (shorten_name(name) for name in (pod.namespace, pod.name, container.name))
    return ContainerName(namespace=namespace, pod=named, container=own)


def shorten_name(name: str) -> str:
    """Return NAME of a pod, namespace or container, cut."""
    return name[:_MAX_NAME]


def shorten(text: str) -> str:
    """Return TEXT of somebody else, cut."""
    return text[:_MAX_TEXT]
