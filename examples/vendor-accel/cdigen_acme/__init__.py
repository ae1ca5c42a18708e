"""Acme's NPUs for cdigen: a vendor that another package adds.

Acme does not exist. Its fictional kernel module ``acme_npu`` shows each NPU as
/sys/bus/pci/drivers/acme_npu/<address>/accel/accelN, with the node /dev/accel/accelN. Its fictional library
uses the NPUs in ACME_VISIBLE_DEVICES. Everything else is real: `pip install` of this folder adds ``acme`` to
the values of ``cdigen --vendor``. The module ``optional`` has the optional members of the vendor.
"""

from __future__ import annotations

from cdigen.host.sysfs import pci_key
from cdigen.model.cdi import ContainerEdits, Device, Draft, Payload
from cdigen.model.errors import HostError
from cdigen.model.findings import FindingCollector
from cdigen.model.inventory import Accelerator, DriverFile, Inventory
from cdigen.vendors.base import VisibleDevices, Watches
from cdigen.vendors.classes import by_class
from cdigen.vendors.kernel.drm import devices as drm
from cdigen.vendors.kernel.modules import is_loaded, read_driver
from cdigen.vendors.kernel.nodes import NodeReader, device_nodes, gids
from cdigen_acme import optional
from cdigen_acme.optional import DEVICE_CLASS, DRIVER, MODULE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import HostNode
    from cdigen.model.profile import Profile
    from cdigen.vendors.context import DiscoveryContext, VendorOption

# The folders of Acme's installer and of distributions, and the name that programs are linked with.
LIBRARY_FOLDERS = ("/opt/acme/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")
LIBRARY = "libacme_npu.so.1"
# Acme's images have /opt/acme/lib64 in LD_LIBRARY_PATH.
PREFIX = "/opt/acme"
VISIBLE = "ACME_VISIBLE_DEVICES"
RUN_DOCTOR = "see 'cdigen doctor'"


class Acme:
    """The vendor ``acme``, with the members of ``cdigen.vendors.base.Vendor``."""

    NAME = "acme"
    CDI_VENDOR = "acme.example"
    # The naming npu is Acme's own. It has the same names as Acme's tools, such as npu0.
    NAMINGS: tuple[str, ...] = ("index", "pci", "npu")
    OPTIONS: tuple[VendorOption, ...] = ()
    MODULES: tuple[str, ...] = (MODULE,)
    PCI_VENDORS: tuple[int, ...] = (0xACE0,)
    # With this table, cdigen's NRI plugin injects devices into a pod that sets ACME_VISIBLE_DEVICES=0,1.
    VISIBLE_DEVICES = (
        VisibleDevices(
            variables=(VISIBLE,),
            kinds=(f"acme.example/{DEVICE_CLASS}",),
            allocated_kinds=r"(?:.+\.)?acme\.example/.+",
            nodes=r"/dev/accel/accel[0-9]+",
        ),
    )
    RESOURCES = optional.RESOURCES
    HEALTH = optional.HEALTH
    LINKS = optional.LINKS
    LABELS = staticmethod(optional.labels)

    def discover(self, context: DiscoveryContext) -> Inventory:
        """Return the inventory; raise HostError of the kind driver-not-loaded, no-gpu or no-nodes."""
        if not is_loaded(context.host, MODULE):
            raise HostError(
                f"Acme's kernel module is not loaded: /sys/module/{MODULE} does not exist",
                hint=f"load it with 'modprobe {MODULE}'",
                kind="driver-not-loaded",
            )
        collector = FindingCollector()
        npus = _read_npus(context.host, _reader(context), collector)
        if not npus:
            raise HostError(
                f"no NPU: the module {MODULE} has no device",
                hint=f"see 'lspci -d ace0:' and 'dmesg | grep {MODULE}'",
                kind="no-gpu",
            )
        if not any(npu.usable for npu in npus):
            first = collector.findings[0]
            raise HostError(f"no NPU can be used: {first.message}", hint=first.hint, kind="no-nodes")
        return Inventory(
            vendor=self.NAME,
            driver=read_driver(context.host, MODULE),
            accelerators=npus,
            files=_libraries(context.driver),
            findings=tuple(collector.findings),
        )

    def edits(self, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
        """Return the draft of acme.example/npu with the profile for NPUs, or with the first profile."""
        kind = f"{self.CDI_VENDOR}/{DEVICE_CLASS}"
        return tuple(
            Draft(
                kind=kind,
                devices=_devices(npus, profile.names or self.NAMINGS),
                edits=ContainerEdits(),
                payload=_payload(inventory, profile),
                profile=profile,
            )
            for device_class, profile, npus in by_class(inventory.accelerators, profiles)
            if device_class == DEVICE_CLASS
        )

    def watches(self, context: DiscoveryContext) -> Watches:
        """Return the nodes, the library, and the driver's list of its devices."""
        libraries = (f"{context.driver.outer}{folder}/{LIBRARY}" for folder in LIBRARY_FOLDERS)
        return Watches(
            files=(f"{context.dev.outer}/dev/accel/*", *libraries),
            polled=(f"{context.host.outer}{DRIVER}",),
            subsystems=("pci", "module", "accel"),
        )

    def missing_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
        """Return the device nodes to create, with their numbers and modes."""
        return drm.with_groups(context.host, _read(context).missing)

    def wrong_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
        """Return the correct node for each device node with wrong numbers or of a wrong type."""
        return drm.with_groups(context.host, _read(context).wrong)

    def diagnostics(self, context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:  # noqa: ARG002
        """Return no findings, because cdigen's general checks are sufficient for these NPUs."""
        return ()


VENDOR = Acme()


def _libraries(driver: Root) -> tuple[DriverFile, ...]:
    """Return the library if the host has it. On other hosts, images must contain the library."""
    for folder in LIBRARY_FOLDERS:
        if driver.exists(f"{folder}/{LIBRARY}"):
            path = driver.host_path(driver.resolve(f"{folder}/{LIBRARY}"))
            return (DriverFile(kind="library", host_path=path, capabilities=("compute",), names=(LIBRARY,)),)
    return ()


def _devices(npus: tuple[Accelerator, ...], namings: tuple[str, ...]) -> tuple[Device, ...]:
    """Return a device for each name of each NPU, and the device ``all`` with all NPUs."""
    usable = [npu for npu in npus if npu.usable]
    devices = []
    for npu in usable:
        names = {"index": str(npu.index), "pci": npu.address, "npu": f"npu{npu.index}"}
        own = (names[naming] for naming in namings if naming in names)
        devices += [Device(name=name, edits=_edits(npu)) for name in own]
    # cdigen's own `all` would not contain the variable, because its values differ between the devices.
    return (*devices, Device(name="all", edits=_edits(*usable))) if devices else ()


def _payload(inventory: Inventory, profile: Profile) -> Payload | None:
    """Return the payload with the library, or None if the host has none or PROFILE does not select it."""
    files = tuple(file for file in inventory.files if profile.includes(file))
    if not files:
        return None
    driver = inventory.driver
    return Payload(
        vendor=inventory.vendor,
        version=driver.version,
        architecture=driver.architecture,
        files=files,
        prefix=PREFIX,
    )


def _edits(*npus: Accelerator) -> ContainerEdits:
    nodes = device_nodes(node for npu in npus for node in npu.nodes)
    visible = f"{VISIBLE}={','.join(str(npu.index) for npu in npus)}"
    return ContainerEdits(env=(visible,), device_nodes=nodes, additional_gids=gids(nodes))


def _reader(context: DiscoveryContext) -> NodeReader:
    return NodeReader(context.dev, drm.NODE_CREATION)


def _read(context: DiscoveryContext) -> NodeReader:
    """Return a reader that has read the nodes of all NPUs."""
    reader = _reader(context)
    _read_npus(context.host, reader, FindingCollector())
    return reader


def _read_npus(host: Root, reader: NodeReader, collector: FindingCollector) -> tuple[Accelerator, ...]:
    """Return the NPUs in the order of their addresses; add a finding for each unusable NPU."""
    addresses = sorted(filter(pci_key, host.names(DRIVER)), key=lambda name: pci_key(name) or ())
    return tuple(_read_npu(host, reader, collector, *item) for item in enumerate(addresses))


def _read_npu(
    host: Root, reader: NodeReader, collector: FindingCollector, index: int, address: str
) -> Accelerator:
    minor = next(iter(drm.minors(host, f"{DRIVER}/{address}", "accel")), None)
    node, problem = None, "the driver lists no device node"
    if minor is not None:
        # The folder identifies the NPU. If two NPUs list a node, the node belongs only to the first NPU.
        node, problem = drm.read_node(reader, minor, f"{DRIVER}/{address}")
    if node is None:
        message = f"NPU {index} ({address}) gets no CDI device: {problem}"
        collector.add("error", "acme-npu-unusable", address, message, RUN_DOCTOR if minor else "see 'dmesg'")
    return Accelerator(
        index=index,
        address=address,
        model="Acme NPU",
        minor=minor.number if minor else None,
        nodes=(node,) if node else (),
        usable=node is not None,
        problem=problem,
        device_class=DEVICE_CLASS,
    )
