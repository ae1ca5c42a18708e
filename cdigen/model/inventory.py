"""The inventory: what a host has for containers, in terms that apply to every vendor.

Discovery makes it, ``edits`` turns it into specs, and it travels as JSON (``inventory_json``), so
that a bug report from one machine gives the same spec on another.

Paths: ``host_path`` is the path on the host, ``path`` and ``targets`` are those in a container. Capabilities
are the driver capabilities of NVIDIA_DRIVER_CAPABILITIES (compute,
utility, graphics, video, display, ngx); an empty tuple means that every container needs it.
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.model.findings import Finding
    from cdigen.model.health import Cause, Health

    FileKind = Literal["library", "library32", "binary", "firmware", "config", "module", "socket", "pipe"]
    Weight = Literal["required", "core", "optional"]
    Technology = Literal["nvlink", "xgmi", "xelink"]

SCHEMA_VERSION = 1


@frozen
class HostNode:
    """A character device of the host; ``role`` says what it is for (``gpu``, ``control``, ``render``).

    ``mode`` has the permission bits only.
    """

    path: str
    host_path: str
    role: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int
    capabilities: tuple[str, ...] = ()


@frozen
class Partition:
    """A part of a GPU that is a device of its own: a MIG instance of NVIDIA, an XCP of AMD.

    ``index`` counts within the GPU, None if only the vendor's library knows it and does not answer;
    ``profile`` is the vendor's name of its size (``1g.10gb``),
    ``instance`` the driver's own name of it (``gi1/ci0``); ``graphics``: it has graphics engines. ``nodes``
    are those that it needs besides its GPU's, or, with an ``address`` of its own, all its nodes. ``ordinal``
    is its number among all devices, if the vendor's tools count so. ``health`` and ``causes`` are its own and
    its GPU's. ``memory_mib`` is None where neither the kernel nor the vendor's library tells.
    """

    index: int | None
    uuid: str | None
    profile: str
    instance: str
    graphics: bool
    nodes: tuple[HostNode, ...]
    usable: bool
    problem: str = ""
    address: str = ""
    ordinal: int | None = None
    health: Health = "unknown"
    causes: tuple[Cause, ...] = ()
    memory_mib: int | None = None

    @property
    def label(self) -> str:
        """Its name within its GPU: its number, or else its instance (``gi9-ci0``)."""
        return self.instance.replace("/", "-") if self.index is None else str(self.index)


@frozen
class Link:
    """Links of one device to another: ``count`` of them, joined.

    ``peer`` is the other's PCI address, or empty where they lead to a switch that joins all devices of the
    same ``Accelerator.island``. A ``count`` of 0 says that they lead there by way of others.
    """

    peer: str
    technology: Technology
    count: int


@frozen
class Accelerator:
    """One GPU: ``index`` as the vendor's tools count, ``address`` on the PCI bus, its nodes.

    ``device_class`` is the class of the kind that offers it: ``gpu``, whose name a profile chooses, or
    another family's own (``npu``, ``gaudi``). ``device_id`` is that of PCI (``0x56c0``), or empty.
    ``uuid`` is None while the driver does not know it yet, ``minor`` if it could not be read.
    An accelerator that is not ``usable`` is in no spec; ``problem`` says why. A ``partitioned`` one is
    offered as its ``partitions``, of which there may be none.

    Where it is: ``pci_path`` are the folders of /sys/devices above its own, from the root complex down
    (``pci0000:40``, ``0000:40:01.1``); ``numa_node`` is None where the kernel does not know it (-1);
    ``cpus`` are those next to it, as the kernel lists them (``0-15,64-79``). ``links`` lead to others;
    ``island`` is alike for those that a switch or a hive joins. ``health`` is unknown unless the daemon keeps
    it; any of ``causes`` makes it unhealthy. ``kernel_driver`` is the driver that has it, where several may
    (``i915``, ``xe``), else empty. ``memory_mib`` is its own memory, None where neither the kernel
    nor the vendor's library tells.
    """

    index: int
    address: str
    model: str
    uuid: str | None
    minor: int | None
    nodes: tuple[HostNode, ...]
    usable: bool
    problem: str = ""
    partitioned: bool = False
    partitions: tuple[Partition, ...] = ()
    device_class: str = "gpu"
    device_id: str = ""
    pci_path: tuple[str, ...] = ()
    numa_node: int | None = None
    cpus: str = ""
    links: tuple[Link, ...] = ()
    island: str = ""
    health: Health = "unknown"
    causes: tuple[Cause, ...] = ()
    kernel_driver: str = ""
    memory_mib: int | None = None


@frozen
class GroupDevice:
    """A device of a group: its name and its nodes."""

    name: str
    nodes: tuple[HostNode, ...]


@frozen
class Group:
    """A family of devices beside the GPUs, offered as the kind ``<vendor>/<device_class>``.

    A ``device_class`` with a slash is a whole kind, whose vendor part is another (vendors.registry.FURTHER).
    ``files`` are what every device of the family needs.
    """

    device_class: str
    devices: tuple[GroupDevice, ...]
    files: tuple[DriverFile, ...] = ()


@frozen
class Driver:
    """The running kernel driver: its version, its flavour, the machine.

    The flavour is ``open`` or ``proprietary`` of NVIDIA's, else ``in-tree`` or ``dkms``.
    ``architecture`` is the kernel's name (``x86_64``, ``aarch64``). ``cuda`` is the newest CUDA that NVIDIA's
    serves, by its own word (``12.4``), None where that is not known.
    """

    version: str
    flavour: str
    architecture: str
    cuda: str | None = None


@frozen
class DriverFile:
    """A file of the driver's user space.

    ``names`` are the names under which the dynamic loader or a library looks for it, relative to
    a library folder (``libcuda.so.1``, ``gbm/nvidia-drm_gbm.so``); ``targets`` are the fixed
    container paths of a file that software expects there.
    """

    kind: FileKind
    host_path: str
    capabilities: tuple[str, ...]
    names: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


@frozen
class ProbeResult:
    """One thing that discovery looked for, and the result.

    ``weight``: ``required`` (its capability cannot work without it), ``core`` (missing beside
    others of its capability is a fault), ``optional``. ``found`` has host paths; ``reason`` says why there
    are none, or what was ignored.
    """

    name: str
    kind: str
    capabilities: tuple[str, ...]
    weight: Weight
    found: tuple[str, ...]
    reason: str = ""


@frozen
class Inventory:
    """Everything that one vendor's driver offers on one host.

    ``mode`` is the kind of host: ``gpu``, ``wsl`` or ``csv``; ``management`` is a ``gpu`` host as its
    administrators see it.
    """

    vendor: str
    driver: Driver
    accelerators: tuple[Accelerator, ...]
    nodes: tuple[HostNode, ...]
    files: tuple[DriverFile, ...]
    sought: tuple[ProbeResult, ...]
    findings: tuple[Finding, ...]
    mode: str = "gpu"
    groups: tuple[Group, ...] = ()
