"""Find devices other than GPUs: NVSwitches, IMEX channels, GDS, GDRCopy, InfiniBand, MIG administration.

``read_groups`` is the main function. A family is a type of such devices, and has its own CDI kind. A group is
the usable devices of a family on the host. A family without usable nodes has no group and no kind. The CDI
device of a GPU does not contain the nodes of the families. The families have the same nodes as in
nvidia-container-toolkit 1.20 (pkg/nvcdi: gated modes, lib-imex.go, management.go).
"""

from __future__ import annotations

import stat

from cdigen.host.procfs import number_behind
from cdigen.model.findings import Finding, FindingCollector
from cdigen.model.inventory import Group, GroupDevice
from cdigen.model.names import natural_key
from cdigen.value import frozen
from cdigen.vendors.nvidia.devices import caps
from cdigen.vendors.nvidia.files import driver_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.inventory import DriverFile, HostNode
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.nvidia.devices.nodes import NvidiaNodeReader

ALL = "all"

# In the patterns below, "#" means any number.
IMEX_CLASS = "imex-channel"
IMEX_CHANNELS = "/dev/nvidia-caps-imex-channels/channel#"


@frozen
class Family:
    """A family with a single CDI device, ``all``.

    The device exists if a node in ``own`` exists. The device has the nodes in ``own`` and in ``shared``.
    """

    device_class: str
    own: tuple[str, ...]
    shared: tuple[str, ...] = ()


FAMILIES = (
    Family(device_class="nvswitch", own=("/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch#")),
    Family(device_class="gdrcopy", own=("/dev/gdrdrv",)),
    Family(device_class="gds", own=("/dev/nvidia-fs#",)),
    # rdma_cm exists with every InfiniBand stack, even if the host has no InfiniBand adapter.
    Family(device_class="mofed", own=("/dev/infiniband/uverbs#",), shared=("/dev/infiniband/rdma_cm",)),
)

# libcufile of GPUDirect Storage finds the disks with udev's database, and reads the configuration CUFILE.
UDEV_DATABASE = "/run/udev"
CUFILE = "/etc/cufile.json"

# The devices for the administration of MIG: (name of the device, name of the capability).
MIG_ADMINISTRATION = (("mig-config", "config"), ("mig-monitor", "monitor"))

# The nodes for administration are all nodes of the driver, except nodes that containers request separately.
MANAGEMENT_PREFIX = "nvidia"
NOT_MANAGEMENT = ("nvidia-fs", "nvidia-nvswitch", "nvidia-nvlink")
MANAGEMENT_PATTERNS = ("/dev/nvidia-caps/nvidia-cap#", IMEX_CHANNELS)


def read_groups(
    context: DiscoveryContext, nodes: NvidiaNodeReader
) -> tuple[tuple[Group, ...], tuple[Finding, ...]]:
    """Return one group per family with usable nodes, and the findings for unusable nodes."""
    reader = _Reader(context, nodes)
    groups = (
        reader.imex_channels(),
        *(reader.family(family) for family in FAMILIES),
        reader.mig_administration(),
    )
    return tuple(group for group in groups if group is not None), tuple(reader.collector.findings)


def management_group(context: DiscoveryContext, nodes: NvidiaNodeReader) -> Group | None:
    """Return the group with all nodes for the administration of GPUs, or None if there are no such nodes.

    Files that are not character devices are left out, such as the folder /dev/nvidia-caps.
    """
    names = sorted(context.dev.names("/dev"), key=natural_key)
    paths = [
        *(
            f"/dev/{name}"
            for name in names
            if name.startswith(MANAGEMENT_PREFIX) and not name.startswith(NOT_MANAGEMENT)
        ),
        *_listed(context.dev, *MANAGEMENT_PATTERNS),
    ]
    read = (nodes.read(path, role="management")[0] for path in paths)
    return _single("management", tuple(node for node in read if node is not None))


class _Reader:
    """Reads the families of one host; ``collector`` gathers the findings."""

    def __init__(self, context: DiscoveryContext, nodes: NvidiaNodeReader) -> None:
        self._context = context
        self._nodes = nodes
        self.collector = FindingCollector()

    def imex_channels(self) -> Group | None:
        """Return the group of IMEX channels. Each channel is a device, and its number is the name."""
        channels = self._usable(IMEX_CLASS, _listed(self._context.dev, IMEX_CHANNELS))
        prefix = IMEX_CHANNELS.removesuffix("#")
        devices = tuple(GroupDevice(name=node.path.removeprefix(prefix), nodes=(node,)) for node in channels)
        return Group(device_class=IMEX_CLASS, devices=devices) if devices else None

    def family(self, family: Family) -> Group | None:
        """Return the group of FAMILY, or None if the family has no usable node."""
        own = self._usable(family.device_class, _listed(self._context.dev, *family.own))
        if not own:
            return None
        shared = self._usable(family.device_class, _listed(self._context.dev, *family.shared))
        beside = self._gds_files() if family.device_class == "gds" else ()
        return _single(family.device_class, (*own, *shared), beside)

    def _has_mig(self) -> bool:
        """Return whether any GPU has MIG. The nodes for the administration of MIG also exist without MIG."""
        host = self._context.host
        folders = (name for name in host.names(caps.CAPABILITIES) if name.startswith("gpu"))
        return any(host.exists(f"{caps.CAPABILITIES}/{name}/mig") for name in folders)

    def mig_administration(self) -> Group | None:
        """Return the group of the two capabilities for the administration of MIG, or None.

        A capability without a usable node is left out. The minor of a capability is in the capability's file
        and in mig-minors. If the two minors differ, the capability is left out. mig.py adds the finding for
        an unreadable mig-minors.
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
                    "info", "mig-admin-node-missing", name, message, self._nodes.remedy(problem)
                )
        return Group(device_class="mig", devices=tuple(devices)) if devices else None

    def _administration_node(self, capability: str, listed: int | None) -> tuple[HostNode | None, str]:
        """Return (node, "") for CAPABILITY, or (None, problem).

        If the driver does not have the capability, the result is (None, "").
        """
        path = f"{caps.CAPABILITIES}/mig/{capability}"
        if listed is None and not self._context.host.exists(path):
            return None, ""
        found, problem = caps.read_capability(self._context.host, path, listed, self.collector)
        return (None, problem) if found is None else caps.read_node(self._nodes, found)

    def _usable(self, device_class: str, paths: list[str]) -> list[HostNode]:
        """Return the usable nodes at PATHS; add a finding for each unusable node."""
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
                f"{problem}; the devices of {device_class} do not contain this node",
                "remove the file at this path; udev or the driver's service creates the node",
            )
        return usable

    def _gds_files(self) -> tuple[DriverFile, ...]:
        """Return the files that GPUDirect Storage needs in addition to its nodes."""
        # The driver's packages do not contain these files.
        unusable = "the device of GPUDirect Storage does not contain this file", "see 'gdscheck -p'"
        search = driver_files.FileSearch(self._context.host, "config", *unusable)
        if real := search.check(UDEV_DATABASE, stat.S_ISDIR):
            search.take(real, (), (UDEV_DATABASE,))
        root = self._context.driver if self._context.driver.exists(CUFILE) else self._context.host
        own = driver_files.FileSearch(root, "config", *unusable)
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


def _listed(dev: Root, *patterns: str) -> list[str]:
    """Return the paths that match a pattern in PATTERNS. The paths of each pattern are in natural order.

    Only the last name in a pattern can have "#".
    """
    paths: list[str] = []
    for pattern in patterns:
        folder, _, name = pattern.rpartition("/")
        prefix, numbered, _ = name.partition("#")
        found = (
            entry
            for entry in dev.names(folder)
            if (number_behind(prefix, entry) is not None if numbered else entry == name)
        )
        paths += [f"{folder}/{entry}" for entry in sorted(found, key=natural_key)]
    return paths
