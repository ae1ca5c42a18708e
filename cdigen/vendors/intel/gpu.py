"""Read the GPUs of i915 and xe, with their cards, their render nodes, and udev's names for these nodes.

The index is the position in the order of PCI addresses among the GPUs of Intel's drivers. Intel's tools use
the same order. xpu-smi sets ZE_ENABLE_PCI_ID_DEVICE_ORDER. With this variable, the compute runtime sorts GPUs
by domain, bus, device and function (shared/source/execution_environment/execution_environment.cpp,
comparePciIdBusNumber). An unusable GPU keeps its index.

Intel's software finds GPUs by udev's names (/dev/dri/by-path/pci-0000:03:00.0-render). oneCCL opens the
entries of /dev/dri/by-path and fails without this folder (src/common/global/ze/ze_fd_manager.cpp, oneCCL
issue 121). The compute runtime searches this folder first, and then tries /dev/dri/renderD128 and the
following numbers (shared/source/os_interface/linux/drm_neo.cpp, Drm::discoverDevices).

In a container, each of udev's names is a separate device node instead of a link, because CDI rejects a link
as the source of a node. cdigen writes only names that exist on the host. For a node with such a name, a
rootless runtime binds the host's file with this name.
"""

from __future__ import annotations

from cdigen.host.procfs import mib, number_behind, read_line
from cdigen.model.inventory import Accelerator
from cdigen.vendors.intel.pci import MODELS
from cdigen.vendors.intel.presence import DRIVERS, GPU, VFIO_DRIVERS, WORDS
from cdigen.vendors.kernel.drm import devices as drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.host.root import Root
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.intel.pci import PciFunction, VirtualFunction

# This file exists only if xe finds that the GPU's firmware is broken
# (drivers/gpu/drm/xe/xe_survivability_mode.c).
SURVIVABILITY = "survivability_mode"


def read_gpus(
    scan: drm.NodeScan, functions: Iterable[PciFunction], virtual: Mapping[str, VirtualFunction]
) -> tuple[Accelerator, ...]:
    """Return the GPUs that are bound to i915 or xe; add a finding for each problem.

    A problem of a GPU does not affect other GPUs.
    """
    names = drm.udev_names(scan.dev)
    return tuple(
        _read(scan, function, index, model_of(function, virtual.get(function.address)), names)
        for index, function in enumerate(served_gpus(functions))
    )


def served_gpus(functions: Iterable[PciFunction]) -> list[PciFunction]:
    """Return the GPUs in FUNCTIONS that are bound to i915 or xe, in the order of the index."""
    return [each for each in functions if each.device_class == GPU and not is_unbound(each)]


def is_unbound(function: PciFunction) -> bool:
    """Return whether FUNCTION is not bound to an Intel driver.

    A function with nodes has a driver, even if the name of the driver is not known.
    """
    is_nameless = not function.driver and bool(function.entries & {"drm", "accel"})
    return function.driver not in DRIVERS and not is_nameless


def model_of(function: PciFunction, virtual: VirtualFunction | None = None) -> str:
    """Return the product name of FUNCTION. For a virtual function, the name contains the parent GPU."""
    word = "Intel GPU" if function.device_class == GPU else WORDS[function.device_class]
    model = MODELS.get(function.device_id) or function.listed_name or f"{word} {function.device_id}".strip()
    if virtual is None:
        return model
    ordinal = "" if virtual.number is None else f" {virtual.number}"
    return f"{model}, virtual function{ordinal} of {virtual.parent}"


def report_unbound(scan: drm.NodeScan, functions: Iterable[PciFunction], *, vfio: bool) -> None:
    """Add findings for devices that are not bound to an Intel driver.

    If VFIO is true, devices for virtual machines get no finding, because cdigen offers them.
    """
    by_driver: dict[str, list[str]] = {}
    every = tuple(functions)
    served = {function.address for function in every if not is_unbound(function)}
    for function in every:
        if not is_unbound(function) or (vfio and function.driver in VFIO_DRIVERS):
            continue
        if _is_placeholder(function, served):
            continue
        if function.driver:
            by_driver.setdefault(function.driver, []).append(function.address)
        else:
            scan.collector.add(
                "info",
                "device-not-bound",
                function.address,
                f"{function.word} ({model_of(function)}) is bound to no driver and gets no CDI device",
                _remedy(function),
            )
    for driver, addresses in by_driver.items():
        is_one = len(addresses) == 1
        scan.collector.add(
            "info",
            "device-not-bound",
            driver,
            f"{', '.join(addresses)}: bound to {driver}, and {'gets' if is_one else 'get'} no CDI device",
            "for GPUs of VFIO, set 'vendor_options: {intel: {vfio: true}}' in the configuration"
            if driver in VFIO_DRIVERS
            else "",
        )


def _is_placeholder(function: PciFunction, served: set[str]) -> bool:
    """Return whether FUNCTION is the second function of an old integrated GPU.

    i915 never binds to this function (drivers/gpu/drm/i915/i915_pci.c, i915_pci_probe, "placeholder for
    multi-head").
    """
    first = f"{function.address[:-1]}0"
    return not function.driver and "physfn" not in function.entries and first in served


def _remedy(function: PciFunction) -> str:
    if function.device_class != GPU:
        return "load the module intel_vpu or habanalabs and install its firmware; see 'dmesg'"
    number = function.device_id.removeprefix("0x")
    return (
        "see 'dmesg | grep -e i915 -e xe'; an old kernel needs the parameter "
        f"'xe.force_probe={number}' (or i915.force_probe) for this GPU"
    )


def _read(
    scan: drm.NodeScan, function: PciFunction, index: int, model: str, names: dict[str, tuple[str, ...]]
) -> Accelerator:
    """Return the GPU of FUNCTION. If a required node cannot be used, the GPU is unusable."""
    where = function.address or function.folder
    named = f"GPU {index} ({where})"
    minors = drm.minors(scan.host, function.folder)
    nodes: tuple[HostNode, ...] = ()
    problem, hint = "", ""
    if SURVIVABILITY in function.entries:
        rule = "gpu-in-survivability-mode"
        problem = f"{function.driver} keeps the GPU in survivability mode, because its firmware is broken"
        hint = "flash the GPU's firmware ('xpu-smi updatefw', or fwupd), then reboot"
    elif not minors:
        rule, hint = "gpu-without-drm", "see 'dmesg | grep -e i915 -e xe'"
        problem = f"{function.driver or 'the driver'} lists no DRM device for the GPU"
    else:
        nodes, where, problem = _nodes(scan, function, named, minors, names)
        rule, hint = "gpu-node-missing", scan.nodes.remedy()
    if problem:
        scan.collector.add("error", rule, where, f"{named} gets no CDI device: {problem}", hint)
    return Accelerator(
        index=index,
        address=function.address,
        model=model,
        minor=minors[0].number if minors else None,
        nodes=nodes,
        usable=bool(nodes),
        problem=problem,
        device_class=GPU,
        device_id=function.device_id,
        kernel_driver=function.driver,
        memory_mib=_memory_mib(scan.host, function.folder),
    )


def _memory_mib(host: Root, folder: str) -> int | None:
    """Return the memory of all tiles in MiB, or None if the size is not known.

    xe reports the size of each tile (xe_tile_sysfs.c). i915 does not report it.
    """
    tiles = [name for name in host.names(folder) if number_behind("tile", name) is not None]
    sizes = [mib(read_line(host, f"{folder}/{tile}/physical_vram_size_bytes")) for tile in tiles]
    return sum(size for size in sizes if size) if sizes and all(sizes) else None


def _nodes(
    scan: drm.NodeScan,
    function: PciFunction,
    named: str,
    minors: tuple[drm.DrmMinor, ...],
    names: dict[str, tuple[str, ...]],
) -> tuple[tuple[HostNode, ...], str, str]:
    """Return (nodes, "", "") for the GPU.

    If a required node cannot be used, return ((), path, problem) with the path and the problem of this node.
    NAMED is the name of the GPU in messages. Programs compute and render with the render node. Therefore, a
    GPU is unusable if it has a render node that cannot be used. If a GPU has a render node and its card
    cannot be used, only displays are affected.
    """
    nodes: list[HostNode] = []
    has_render = any(minor.role == "render" for minor in minors)
    for minor in minors:
        node, problem = scan.minor(function.folder, minor)
        where = scan.dev.host_path(minor.path)
        if node is not None:
            nodes.extend(drm.with_udev_names(node, names))
        elif minor.role == "render" or not has_render:
            return (), where, problem
        else:
            text = f"the CDI device of {named} lacks the card node and cannot drive displays: {problem}"
            scan.collector.add("warning", "drm-node-missing", where, text, scan.nodes.remedy())
    return tuple(nodes), "", ""
