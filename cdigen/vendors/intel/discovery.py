"""Read the inventory of Intel's devices (``discover``)."""

from __future__ import annotations

from cdigen.model.errors import HostError
from cdigen.model.inventory import Inventory
from cdigen.vendors.intel.accel import read_gaudis, read_meis, read_npus
from cdigen.vendors.intel.gpu import read_gpus, report_unbound, served_gpus
from cdigen.vendors.intel.pci import read_functions, virtual_functions
from cdigen.vendors.intel.presence import DRIVERS, no_device
from cdigen.vendors.intel.vfio import read_vfio_gpus
from cdigen.vendors.kernel.drm.devices import NodeScan
from cdigen.vendors.kernel.modules import read_driver
from cdigen.vendors.kernel.pci.place import placed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Accelerator
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.intel.pci import PciFunction
    from cdigen.vendors.kernel.nodes import NodeReader

# The rules of findings about missing nodes.
_NODE_RULES = {"gpu-node-missing", "accel-node-missing", "vfio-node-missing"}


def discover(context: DiscoveryContext, *, vfio: bool) -> Inventory:
    """Return the inventory of the host; raise HostError if no container can use a device.

    If VFIO is true, the inventory also contains the GPUs for virtual machines. The kinds of the HostError are
    driver-not-loaded, no-nodes and no-usable-device.
    """
    scan, found, accelerators = _read(context, vfio=vfio)
    findings = tuple(scan.collector.findings)
    driver = read_driver(context.host, _module(found))
    try:
        _require_devices(context.host, accelerators, findings)
    except HostError as error:
        if accelerators:
            error.driver = driver.version
        raise
    return Inventory(
        vendor="intel", driver=driver, accelerators=placed(context.host, accelerators), findings=findings
    )


def read_nodes(context: DiscoveryContext, *, vfio: bool) -> NodeReader:
    """Return a reader that has read all nodes of the host's Intel devices."""
    return _read(context, vfio=vfio)[0].nodes


def _read(
    context: DiscoveryContext, *, vfio: bool
) -> tuple[NodeScan, tuple[PciFunction, ...], tuple[Accelerator, ...]]:
    scan = NodeScan(context)
    found = read_functions(context.host, scan.collector)
    virtual = virtual_functions(context.host, found, scan.collector)
    gpus = read_gpus(scan, found, virtual)
    meis = read_meis(scan, zip(served_gpus(found), gpus, strict=True))
    others = (*meis, *read_npus(scan, found), *read_gaudis(scan, found))
    machines = read_vfio_gpus(scan, found, virtual, len(gpus)) if vfio else ()
    report_unbound(scan, found, vfio=vfio)
    return scan, found, (*gpus, *machines, *others)


def _module(found: Iterable[PciFunction]) -> str:
    """Return the driver for the inventory, which is the first driver in DRIVERS with a device."""
    having = {function.driver for function in found}
    return next((driver for driver in DRIVERS if driver in having), next(iter(DRIVERS)))


def _require_devices(
    host: Root, accelerators: tuple[Accelerator, ...], findings: tuple[Finding, ...]
) -> None:
    if any(accelerator.usable for accelerator in accelerators):
        return
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise HostError(
            f"none of Intel's {len(accelerators)} devices can be used: {errors[0].message}",
            hint=errors[0].hint,
            kind="no-nodes" if errors[0].rule in _NODE_RULES else "no-usable-device",
        )
    if findings:
        raise HostError(findings[0].message, hint=findings[0].hint, kind="driver-not-loaded")
    raise no_device(host)
