"""Find the devices beside the GPUs: NVSwitches, IMEX channels, GDS, GDRCopy, InfiniBand, MIG's own.

``read_groups`` is the central name. A family is offered as a kind of its own, and only when its nodes
are there: who asks for a GPU does not get them. Which nodes belong to which family follows
nvidia-container-toolkit 1.20 (pkg/nvcdi: gated modes, lib-imex.go, management.go).
"""

from __future__ import annotations

import stat

from cdigen.host.procfs import number_behind
from cdigen.model.findings import Finding, FindingCollector
from cdigen.model.inventory import Group, GroupDevice
from cdigen.model.names import natural_key
from cdigen.value import frozen
from cdigen.vendors.nvidia import caps, files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.inventory import DriverFile, HostNode
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.nvidia.nodes import NvidiaNodeReader

ALL = "all"

# In the patterns below "#" stands for a number.
IMEX_CLASS = "imex-channel"
IMEX_CHANNELS = "/dev/nvidia-caps-imex-channels/channel#"


@frozen
class Family:
    """A family that is one device, ``all``: there if a node of ``own`` is; ``shared`` comes with it."""

    device_class: str
    own: tuple[str, ...]
    shared: tuple[str, ...] = ()


FAMILIES = (
    Family(device_class="nvswitch", own=("/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch#")),
    Family(device_class="gdrcopy", own=("/dev/gdrdrv",)),
    Family(device_class="gds", own=("/dev/nvidia-fs#",)),
    # rdma_cm comes with every InfiniBand stack; alone it is not an adapter.
    Family(device_class="mofed", own=("/dev/infiniband/uverbs#",), shared=("/dev/infiniband/rdma_cm",)),
)

# What libcufile reads: udev's database, by which it finds the disks, and its own configuration.
UDEV_DATABASE = "/run/udev"
CUFILE = "/etc/cufile.json"

# MIG's administration: (device, name of the capability).
MIG_ADMINISTRATION = (("mig-config", "config"), ("mig-monitor", "monitor"))

# The name by which pods of NVIDIA's gpu-operator ask for all of it (setNRIPluginAnnotation).
MANAGEMENT_KIND = "management.nvidia.com/gpu"
# Every node of the driver but those of the families that are asked for by themselves.
MANAGEMENT_PREFIX = "nvidia"
NOT_MANAGEMENT = ("nvidia-fs", "nvidia-nvswitch", "nvidia-nvlink")
MANAGEMENT_PATTERNS = ("/dev/nvidia-caps/nvidia-cap#", IMEX_CHANNELS)


def read_groups(
    context: DiscoveryContext, nodes: NvidiaNodeReader
) -> tuple[tuple[Group, ...], tuple[Finding, ...]]:
    """Read the families whose nodes are there, and say what is wrong with single nodes.

    A node that cannot be used is left out; a family of which no node can be used is not a group.
    """
    reader = _Reader(context, nodes)
    groups = (
        reader.imex_channels(),
        *(reader.family(family) for family in FAMILIES),
        reader.mig_administration(),
    )
    return tuple(group for group in groups if group is not None), tuple(reader.collector.findings)


def management_group(context: DiscoveryContext, nodes: NvidiaNodeReader) -> Group | None:
    """Read every node with which the driver and all of its GPUs are administered; None without any.

    What is not a character device, such as the folder /dev/nvidia-caps, is passed over.
    """
    names = sorted(context.dev.names("/dev"), key=natural_key)
    paths = [
        *(
            f"/dev/{name}"
            for name in names
            if name.startswith(MANAGEMENT_PREFIX) and not name.startswith(NOT_MANAGEMENT)
        ),
        *(path for pattern in MANAGEMENT_PATTERNS for path in _listed(context.dev, pattern)),
    ]
    read = (nodes.read(path, role="management")[0] for path in paths)
    found = tuple(node for node in read if node is not None)
    return _single("management", found)


class _Reader:
    """Reads the families of one host; ``collector`` gathers the findings."""

    def __init__(self, context: DiscoveryContext, nodes: NvidiaNodeReader) -> None:
        self._context = context
        self._nodes = nodes
        self.collector = FindingCollector()

    def imex_channels(self) -> Group | None:
        """Read the IMEX channels: each is a device, named by its number."""
        channels = self._usable(IMEX_CLASS, _listed(self._context.dev, IMEX_CHANNELS))
        prefix = IMEX_CHANNELS.removesuffix("#")
        devices = tuple(GroupDevice(name=node.path.removeprefix(prefix), nodes=(node,)) for node in channels)
        return Group(device_class=IMEX_CLASS, devices=devices) if devices else None

    def family(self, family: Family) -> Group | None:
        """Read a family that is one device."""
        own = self._usable(family.device_class, _all_listed(self._context.dev, family.own))
        if not own:
            return None
        shared = self._usable(family.device_class, _all_listed(self._context.dev, family.shared))
        beside = self._gds_files() if family.device_class == "gds" else ()
        return _single(family.device_class, (*own, *shared), beside)

    def _has_mig(self) -> bool:
        """Return whether any GPU has MIG; the nodes of its administration are there without, too."""
        host = self._context.host
        folders = (name for name in host.names(caps.CAPABILITIES) if name.startswith("gpu"))
        return any(host.exists(f"{caps.CAPABILITIES}/{name}/mig") for name in folders)

    def mig_administration(self) -> Group | None:
        """Read the two capabilities by which MIG is administered; one without a node is left out.

        The minors stand in the capabilities' own files and in mig-minors; two that differ are
        not to be trusted. An unreadable mig-minors is reported with the instances (mig.py).
        """
        if not self._has_mig():
            return None
        minors = caps.read_minors(self._context.host, FindingCollector())
        devices = []
        for name, capability in MIG_ADMINISTRATION:
            node, problem = self._administration_node(capability, minors.get(capability))
            if node is not None:
                devices.append(GroupDevice(name=name, nodes=(node,)))
            elif problem:
                message = f"the device {name} is left out: {problem}"
                self.collector.add(
                    "info", "mig-admin-node-missing", name, message, "'nvidia-smi' makes the node"
                )
        return Group(device_class="mig", devices=tuple(devices)) if devices else None

    def _administration_node(self, capability: str, listed: int | None) -> tuple[HostNode | None, str]:
        """Return the node of a capability, or what is wrong; nothing where the driver has none such."""
        path = f"{caps.CAPABILITIES}/mig/{capability}"
        if listed is None and not self._context.host.exists(path):
            return None, ""
        minor, mode, problem = caps.read_minor(self._context.host, path, listed, self.collector)
        return (None, problem) if minor is None else caps.read_node(self._nodes, minor, mode)

    def _usable(self, device_class: str, paths: list[str]) -> list[HostNode]:
        """Return the nodes at PATHS, all of which are listed; one that is unusable is a finding."""
        usable = []
        for path in paths:
            node, problem = self._nodes.read(path, role=device_class)
            if node is not None:
                usable.append(node)
                continue
            self.collector.add(
                "warning",
                "family-node-unusable",
                self._context.dev.host_path(path),
                f"{problem}; {device_class} is served without it",
                "udev or the driver's service makes such nodes; remove what stands in its place",
            )
        return usable

    def _gds_files(self) -> tuple[DriverFile, ...]:
        """Return what GPUDirect Storage needs beside its nodes."""
        # None of it is of the driver's packages.
        unusable = "GPUDirect Storage is served without it", "see 'gdscheck -p'"
        search = files.FileSearch(self._context.host, "config", *unusable)
        if real := search.check(UDEV_DATABASE, stat.S_ISDIR):
            search.take(real, (), (UDEV_DATABASE,))
        root = self._context.driver if self._context.driver.exists(CUFILE) else self._context.host
        own = files.FileSearch(root, "config", *unusable)
        if real := own.check(CUFILE, stat.S_ISREG):
            own.take(real, (), (CUFILE,))
        self.collector.findings += [*search.findings, *own.findings]
        return (*search.files, *own.files)


def _single(
    device_class: str, nodes: tuple[HostNode, ...], files: tuple[DriverFile, ...] = ()
) -> Group | None:
    if not nodes:
        return None
    return Group(device_class=device_class, devices=(GroupDevice(name=ALL, nodes=nodes),), files=files)


def _all_listed(dev: Root, patterns: tuple[str, ...]) -> list[str]:
    return [path for pattern in patterns for path in _listed(dev, pattern)]


def _listed(dev: Root, pattern: str) -> list[str]:
    """Return the paths of a folder's entries that PATTERN names, as people count."""
    folder, _, name = pattern.rpartition("/")
    prefix, numbered, _ = name.partition("#")
    found = [
        entry
        for entry in dev.names(folder)
        if (number_behind(prefix, entry) is not None if numbered else entry == name)
    ]
    return [f"{folder}/{entry}" for entry in sorted(found, key=natural_key)]
