"""The inventory: the devices and driver files of a host, in terms that apply to every vendor.

Discovery returns the inventory, and ``edits`` converts the inventory to specs. ``inventory_json`` writes the
inventory as JSON. cdigen generates the same spec from this JSON on any other machine.

``host_path`` is a path on the host. ``path`` and ``targets`` are paths in a container. Capabilities are the
driver capabilities of NVIDIA_DRIVER_CAPABILITIES (compute, utility, graphics, video, display, ngx). An empty
tuple means that every container needs the file or node.
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.model.findings import Finding
    from cdigen.model.health import Cause, Health

    FileKind = Literal[
        "library", "library32", "binary", "firmware", "config", "config32", "module", "socket", "pipe"
    ]
    Weight = Literal["required", "core", "optional"]

SCHEMA_VERSION = 1


@frozen
class HostNode:
    """A character device of the host; ``role`` is its purpose (``gpu``, ``control``, ``render``).

    ``mode`` contains only the permission bits.
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
    """A partition of a GPU, such as a MIG instance of NVIDIA or an XCP of AMD; each partition is a device.

    - ``index``: the number of the partition within the GPU. None means that only the vendor's library reports
      the number, and that the library does not respond.
    - ``profile``: the vendor's name for the partition's size (``1g.10gb``).
    - ``instance``: the driver's name for the partition (``gi1/ci0``).
    - ``graphics``: whether the partition has graphics engines.
    - ``nodes``: all nodes of the partition if it has an ``address``. If ``address`` is empty, ``nodes`` are
      only the nodes that the partition needs in addition to the nodes of the GPU.
    - ``ordinal``: the number of the partition among all devices, if the vendor's tools have such numbers.
    - ``health`` and ``causes``: the health and the causes of the partition and of its GPU together.
    - ``memory_mib``: None if neither the kernel nor the vendor's library reports the memory size.
    - ``excluded``: the row of the configuration that excludes the partition, or empty.
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
    excluded: str = ""

    @property
    def label(self) -> str:
        """The name within the GPU: ``index``, or ``instance`` (``gi9-ci0``) if there is no index."""
        return self.instance.replace("/", "-") if self.index is None else str(self.index)


@frozen
class Link:
    """The links of a ``technology`` (``nvlink``) from one device to another; ``count`` is their number.

    ``peer`` is the PCI address of the other device. An empty ``peer`` means a switch that connects all
    devices of the same ``Accelerator.island``. A ``count`` of 0 means a connection through other devices.
    """

    peer: str
    technology: str
    count: int


@frozen
class Accelerator:
    """One GPU, or one accelerator of another class.

    Identity:

    - ``index``: the number of the accelerator in the vendor's tools.
    - ``address``: the address on the PCI bus. ``device_id`` is the PCI device ID (``0x56c0``), or empty.
    - ``device_class``: the class in the CDI kind. For GPUs, the profile can set another class. Other
      accelerators have a fixed class (``npu``, ``gaudi``).
    - ``uuid``: None until the driver has read the UUID.
    - ``minor``: None if cdigen could not read the minor number.
    - ``kernel_driver``: the bound driver if several drivers are possible (``i915``, ``xe``), else empty.
    - ``memory_mib``: None if neither the kernel nor the vendor's library reports the memory size.

    State:

    - ``usable``: if false, all specs omit the accelerator, and ``problem`` is the reason.
    - ``partitioned``: if true, the specs contain the ``partitions`` instead of the accelerator.
      ``partitions`` may be empty.
    - ``excluded``: the row of the configuration (``devices: {exclude}``) that excludes the accelerator, which
      is then not usable; or empty.
    - ``health``: ``unknown`` if the daemon does not record the health. Any of ``causes`` makes the
      accelerator unhealthy.

    Topology:

    - ``pci_path``: the folders of /sys/devices above the accelerator's folder, from the root complex down
      (``pci0000:40``, ``0000:40:01.1``).
    - ``numa_node``: None if the kernel reports no node (-1).
    - ``cpus``: the nearest CPUs, in the kernel's list format (``0-15,64-79``).
    - ``links``: the links to other accelerators. All accelerators on one switch or in one XGMI hive
      have the same ``island``.
    """

    index: int
    address: str
    model: str
    uuid: str | None = None
    minor: int | None = None
    nodes: tuple[HostNode, ...] = ()
    usable: bool = False
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
    excluded: str = ""


@frozen
class GroupDevice:
    """A named device of a group, with its nodes."""

    name: str
    nodes: tuple[HostNode, ...]


@frozen
class Group:
    """Devices other than GPUs that have the same kind, ``<vendor>/<device_class>``.

    A ``device_class`` with a slash is a complete kind with another vendor (``VendorRow.cdi_vendors``).
    Every device of the group needs the ``files``.
    """

    device_class: str
    devices: tuple[GroupDevice, ...]
    files: tuple[DriverFile, ...] = ()


@frozen
class Driver:
    """The running kernel driver: its version, its flavour and the machine's architecture.

    ``flavour`` is ``open`` or ``proprietary`` for NVIDIA, and ``in-tree`` or ``dkms`` for other vendors.
    ``architecture`` is the kernel's name (``x86_64``, ``aarch64``). ``cuda`` is the newest CUDA version that
    NVIDIA's driver reports as supported (``12.4``), or None if that version is unknown.
    """

    version: str
    flavour: str
    architecture: str
    cuda: str | None = None


@frozen
class DriverFile:
    """A file of the driver's user space.

    ``names`` are the names that the dynamic loader or a library searches, relative to a library folder
    (``libcuda.so.1``, ``gbm/nvidia-drm_gbm.so``). ``targets`` are the fixed container paths at which software
    expects the file.
    """

    kind: FileKind
    host_path: str
    capabilities: tuple[str, ...]
    names: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


@frozen
class ProbeResult:
    """One file, node or folder that discovery searched, and the result of the search.

    ``weight`` is ``required``, ``core`` or ``optional``. A capability does not work without its ``required``
    objects. A missing ``core`` object is a fault if other objects of its capability are present. ``found``
    lists the host paths. ``reason`` explains an empty ``found``, or names ignored files.
    """

    name: str
    kind: str
    capabilities: tuple[str, ...]
    weight: Weight
    found: tuple[str, ...]
    reason: str = ""


@frozen
class Inventory:
    """The devices and files of one vendor's driver on one host.

    ``mode`` is the kind of host: ``gpu``, ``wsl``, or ``csv`` (a Tegra board, whose driver files are listed
    in CSV files). ``management`` means a ``gpu`` host with the devices for administrators.
    """

    vendor: str
    driver: Driver
    accelerators: tuple[Accelerator, ...] = ()
    nodes: tuple[HostNode, ...] = ()
    files: tuple[DriverFile, ...] = ()
    searched: tuple[ProbeResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    mode: str = "gpu"
    groups: tuple[Group, ...] = ()

    @property
    def is_undivided(self) -> bool:
        """Whether the driver presents all GPUs as one device, as on WSL and Tegra hosts."""
        return self.mode in {"wsl", "csv"}
