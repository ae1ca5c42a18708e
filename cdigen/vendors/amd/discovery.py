"""Read the inventory of amdgpu's GPUs and amdxdna's NPUs (``discover``)."""

from __future__ import annotations

import re

from cdigen.host import sysfs
from cdigen.host.procfs import number_behind, read_line
from cdigen.model.errors import HostError
from cdigen.model.inventory import Accelerator, Inventory
from cdigen.vendors.amd.gpus import DRIVER, AmdGpuReader
from cdigen.vendors.amd.listing import MODULE
from cdigen.vendors.kernel.drm import devices as drm
from cdigen.vendors.kernel.modules import read_driver
from cdigen.vendors.kernel.pci.names import pci_name
from cdigen.vendors.kernel.pci.place import placed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import DriverFile, ProbeResult
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.kernel.nodes import NodeReader

# The rules of findings about a GPU or partition that has no CDI device.
_OF_GPUS = {
    *("gpu-node-missing", "gpu-lost", "gpu-without-kfd", "control-node-missing"),
    *("partition-without-kfd", "partition-without-gpu", "partition-contradiction"),
}
_OF_NODES = {"gpu-node-missing", "control-node-missing", "accel-node-missing", "accel-without-node"}
# The PCI vendor of AMD's processors.
PROCESSORS = 0x1022
# PCI device number -> model (drivers/accel/amdxdna/amdxdna_pci_drv.c, pci_ids).
NPU_MODELS = {"0x1502": "Ryzen AI NPU (Phoenix, Hawk Point)", "0x17f0": "Ryzen AI NPU (Strix, Krackan)"}
# The SR-IOV physical functions of NPUs: the value of ``device_type`` (AMDXDNA_DEV_TYPE_PF in amd/xdna-driver,
# August 2026, amdxdna_accel.h), and the PCI device numbers (is_pf_dev in amdxdna_pci_drv.c) for releases of
# the driver without this file.
_PHYSICAL_TYPE, _PHYSICAL_IDS = "2", frozenset(("0x17f2", "0x1b0b"))
_PHYSICAL = "npu-physical-function"
# The auxiliary bus prefixes the name of a driver with the name of its module: amdxdna.amdxdna. A device on
# this bus has a name such as xilinx_aie.amdxdna.0 (amdxdna_aux_drv.c).
_AUXILIARY_DRIVERS = "/sys/bus/auxiliary/drivers"
_AUXILIARY_DEVICE = re.compile(r"[0-9A-Za-z_]+\.amdxdna\.[0-9]+", re.ASCII)


def discover(context: DiscoveryContext, *, libraries: bool) -> Inventory:
    """Return the inventory of the devices of amdgpu and amdxdna, or raise HostError.

    If LIBRARIES is true, the inventory also contains the host's ROCm libraries. The kinds of the HostError
    are no-gpu, no-nodes, no-usable-device and driver-not-loaded.
    """
    scan = drm.NodeScan(context)
    npus = read_npus(scan)
    has_gpus = context.host.exists(MODULE)
    driver = read_driver(context.host, "amdgpu" if has_gpus else "amdxdna")
    try:
        gpus = AmdGpuReader(scan).read() if has_gpus else ()
        if not any(npu.usable for npu in npus):
            _require_usable(gpus, npus, scan.collector.findings, has_gpus=has_gpus)
    except HostError as error:
        error.driver = driver.version
        raise
    files: tuple[DriverFile, ...] = ()
    searched: tuple[ProbeResult, ...] = ()
    if libraries:
        from cdigen.vendors.amd.libraries import find_libraries  # noqa: PLC0415 - only with the option

        files, searched = find_libraries(context, driver, scan.collector)
    return Inventory(
        vendor="amd",
        driver=driver,
        accelerators=placed(context.host, (*gpus, *npus)),
        files=files,
        searched=searched,
        findings=tuple(scan.collector.findings),
    )


def read_nodes(context: DiscoveryContext) -> NodeReader:
    """Return a reader that has read all nodes of the host's AMD devices."""
    scan = drm.NodeScan(context)
    read_npus(scan)
    if context.host.exists(MODULE):
        AmdGpuReader(scan).read()
    return scan.nodes


def _require_usable(
    gpus: tuple[Accelerator, ...], npus: tuple[Accelerator, ...], findings: list[Finding], *, has_gpus: bool
) -> None:
    if not gpus and not npus:
        physical = next((finding for finding in findings if finding.rule == _PHYSICAL), None)
        if physical is not None:
            raise HostError(physical.message, hint=physical.hint, kind="no-usable-device")
        modules = f"amdgpu is loaded ({MODULE})" if has_gpus else "amdxdna alone is loaded"
        raise HostError(
            f"no GPU: the module {modules}, but has no device",
            hint="see 'lspci -d 1002:' and 'dmesg | grep amdgpu'"
            if has_gpus
            else "see 'lspci -d 1022:' and 'dmesg | grep amdxdna'",
            kind="no-gpu" if has_gpus else "driver-not-loaded",
        )
    if any(gpu.usable for gpu in gpus):
        return
    wrong = [finding for finding in findings if finding.severity == "error"]
    # Findings about KFD's topology may come before the finding that a GPU is unusable.
    first = next((finding for finding in wrong if finding.rule in _OF_GPUS), wrong[0] if wrong else None)
    accelerators = (*gpus, *npus)
    why = first.message if first else f"{accelerators[0].address}: {accelerators[0].problem}"
    what = f"the {len(gpus)} GPUs of amdgpu" if gpus else f"the {len(npus)} NPUs of amdxdna"
    raise HostError(
        f"none of {what} can be used: {why}",
        hint=first.hint if first else DRIVER,
        kind="no-nodes" if first and first.rule in _OF_NODES else "no-usable-device",
    )


def read_npus(scan: drm.NodeScan) -> tuple[Accelerator, ...]:
    """Return the NPUs that are bound to amdxdna; add a finding for each problem.

    Each NPU has one accelerator node (drivers/accel/amdxdna creates no other nodes). The NPUs on the PCI bus
    come first, in the order of their addresses. The NPUs on the auxiliary bus follow. The index is the
    position in this order.

    The physical function of an SR-IOV NPU also has an accelerator node, but programs cannot create buffers
    with this node. Only the virtual functions are NPUs. The physical function gets no index.
    """
    host = scan.host
    folders = {address: f"{sysfs.PCI_DRIVERS}/amdxdna/{address}" for address in sysfs.bound(host, "amdxdna")}
    physical = {address for address, folder in folders.items() if _is_physical(host, folder)}
    for address in sorted(physical):
        _report_physical(scan, address, folders[address])
    places = [(address, folder) for address, folder in folders.items() if address not in physical]
    places += [("", folder) for folder in _auxiliary_folders(host)]
    return tuple(_read_npu(scan, index, *place) for index, place in enumerate(places))


def _auxiliary_folders(host: Root) -> list[str]:
    """Return the folders of the NPUs on the auxiliary bus, such as those of Versal SoCs."""
    drivers = [name for name in host.names(_AUXILIARY_DRIVERS) if name.partition(".")[0] == "amdxdna"]
    found = ((driver, name) for driver in drivers for name in host.names(f"{_AUXILIARY_DRIVERS}/{driver}"))
    devices = [(driver, name) for driver, name in found if _AUXILIARY_DEVICE.fullmatch(name)]
    devices.sort(key=lambda device: number_behind(device[1].rpartition(".")[0] + ".", device[1]) or 0)
    return [f"{_AUXILIARY_DRIVERS}/{driver}/{name}" for driver, name in devices]


def _is_physical(host: Root, folder: str) -> bool:
    """Return whether the NPU at FOLDER is an SR-IOV physical function."""
    is_listed = read_line(host, f"{folder}/device") in _PHYSICAL_IDS
    return is_listed or read_line(host, f"{folder}/device_type") == _PHYSICAL_TYPE


def _report_physical(scan: drm.NodeScan, address: str, folder: str) -> None:
    hint = ""
    if not any(name.startswith("virtfn") for name in scan.host.names(folder)):
        hint = f"create virtual functions: 'echo 1 > {sysfs.PCI_DEVICES}/{address}/sriov_numvfs'"
    text = (
        f"NPU {address} gets no CDI device: it is an SR-IOV physical function, "
        "and only its virtual functions can be used"
    )
    scan.collector.add("info", _PHYSICAL, address, text, hint)


def _listed_name(host: Root, device_id: str) -> str:
    name = pci_name(host, PROCESSORS, device_id)
    return f"AMD {name}" if name else ""


def _read_npu(scan: drm.NodeScan, index: int, address: str, folder: str) -> Accelerator:
    """Return the NPU at FOLDER in /sys. ADDRESS is empty for an NPU on the auxiliary bus."""
    device_id = read_line(scan.host, f"{folder}/device") if address else ""
    device = Accelerator(
        index=index,
        address=address,
        model=NPU_MODELS.get(device_id)
        or _listed_name(scan.host, device_id)
        or f"AMD NPU {device_id}".rstrip(),
        device_class="npu",
        device_id=device_id,
    )
    minor = next(iter(drm.minors(scan.host, folder, "accel")), None)
    return scan.accelerator(device, folder, minor, word="NPU", driver="amdxdna")
