"""Values for the pods and containers of a runtime, and for the changes that a plugin makes.

The values have only the fields that cdigen reads or changes. Most field names are the names in NRI.
"""

from __future__ import annotations

from types import MappingProxyType

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# The maximum length of the name of a Kubernetes object (RFC 1123, host names).
_MAX_NAME = 253
_MAX_TEXT = 1_000
_NOTHING: Mapping[str, str] = MappingProxyType({})


@frozen
class Pod:
    """A pod sandbox.

    The labels and annotations come from the user and the runtime.
    """

    id: str
    name: str
    namespace: str
    runtime_handler: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@frozen
class ContainerMount:
    """A mount at ``destination``; ``source`` is a path on the host or a file system."""

    destination: str
    source: str
    type: str
    options: tuple[str, ...]


@frozen
class Container:
    """An existing container, or a container before its creation.

    ``env`` contains the variables ``KEY=value`` from image, pod and kubelet. ``devices`` contains the paths
    of the device nodes. ``cdi_devices`` contains the CDI devices that the kubelet requested, if the runtime
    reports these devices (containerd 2.3). ``may_use_all_devices`` is true if the cgroup of the container
    permits all devices of the host. ``has_user_namespace`` is true if the container has its own user
    namespace.
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
    has_user_namespace: bool = False


@frozen
class ContainerDevice:
    """A device node for a container; ``type`` is ``c`` or ``b``.

    For a field with the value None, the runtime uses its default.
    """

    path: str
    type: str
    major: int
    minor: int
    file_mode: int | None = None
    uid: int | None = None
    gid: int | None = None


@frozen
class ContainerHook:
    """An OCI hook: a program that the runtime runs at ``stage``, such as ``createContainer``.

    ``timeout`` is in seconds.
    """

    stage: str
    path: str
    args: tuple[str, ...]
    env: tuple[str, ...]
    timeout: int | None = None


@frozen
class Adjustment:
    """The changes to a container before its creation; ``env`` maps variables to values.

    If the name of an annotation, variable, mount or device starts with "-", the runtime removes the item.
    """

    annotations: Mapping[str, str] = _NOTHING
    env: Mapping[str, str] = _NOTHING
    mounts: tuple[ContainerMount, ...] = ()
    devices: tuple[ContainerDevice, ...] = ()
    hooks: tuple[ContainerHook, ...] = ()
    cdi_devices: tuple[str, ...] = ()


@frozen
class AdjustmentOwners:
    """Mappings from each item of an adjustment to the plugin that set the item, such as ``20-cdigen``.

    If the plugin removed the item, the value starts with "-", such as ``-20-cdigen``.
    """

    annotations: Mapping[str, str] = _NOTHING
    env: Mapping[str, str] = _NOTHING
    mounts: Mapping[str, str] = _NOTHING
    devices: Mapping[str, str] = _NOTHING


@frozen
class ContainerName:
    """The names of a container. They are shortened, because thousands of events can be pending."""

    namespace: str
    pod: str
    container: str

    def row(self) -> dict[str, str]:
        """Return the names as fields of the log and the status."""
        return {"namespace": self.namespace, "pod": self.pod, "container": self.container}


def container_name(pod: Pod, container: Container) -> ContainerName:
    """Return the shortened names of CONTAINER in POD."""
    namespace, pod_name, name = (shorten_name(text) for text in (pod.namespace, pod.name, container.name))
    return ContainerName(namespace=namespace, pod=pod_name, container=name)


def shorten_name(name: str) -> str:
    """Return NAME (of a pod, namespace or container), shortened to 253 characters."""
    return name[:_MAX_NAME]


def shorten(text: str) -> str:
    """Return TEXT from another program, shortened to 1,000 characters."""
    return text[:_MAX_TEXT]
