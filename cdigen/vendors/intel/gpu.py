"""Read the GPUs of i915 and xe: their cards and render nodes, and udev's names of these by PCI address.

The index counts the GPUs that a driver of Intel's has, by their PCI addresses. So do Intel's tools: xpu-smi
sets ZE_ENABLE_PCI_ID_DEVICE_ORDER, with which the compute runtime sorts by domain, bus, device and function
(shared/source/execution_environment/execution_environment.cpp, comparePciIdBusNumber). A GPU that cannot be
served keeps its index.

Intel's software finds GPUs by udev's names (/dev/dri/by-path/pci-0000:03:00.0-render). oneCCL opens what
is in /dev/dri/by-path and gives up without the folder (src/common/global/ze/ze_fd_manager.cpp, oneCCL
issue 121), and the compute runtime looks there before it tries /dev/dri/renderD128 and on
(shared/source/os_interface/linux/drm_neo.cpp, Drm::discoverDevices). In a container they are nodes of their
own, made from the real ones: CDI refuses a link as the source of a node. Only names that the host has are
given, because a runtime without root binds what lies at the same path on the host.
"""

from __future__ import annotations

import re

from cdigen.host.procfs import mib, number_behind, read_line
from cdigen.model.inventory import Accelerator
from cdigen.value import replace
from cdigen.vendors.intel.presence import DRIVERS, GPU, VFIO_DRIVERS, WORDS
from cdigen.vendors.intel.products import MODELS
from cdigen.vendors.kernel import drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.host.root import Root
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.intel.pci import PciFunction, VirtualFunction
    from cdigen.vendors.kernel.scan import NodeScan

# There only while xe has found a GPU's own firmware broken (drivers/gpu/drm/xe/xe_survivability_mode.c).
SURVIVABILITY = "survivability_mode"


def read_gpus(
    scan: NodeScan, functions: Iterable[PciFunction], virtual: Mapping[str, VirtualFunction]
) -> tuple[Accelerator, ...]:
    """Read the GPUs that are bound to i915 or xe; each problem is a finding, and costs no other GPU."""
    names = _read_names(scan.dev)
    return tuple(
        _read(scan, function, index, model_of(function, virtual.get(function.address)), names)
        for index, function in enumerate(served_gpus(functions))
    )


def served_gpus(functions: Iterable[PciFunction]) -> list[PciFunction]:
    """Return which of FUNCTIONS are GPUs that are bound to i915 or xe, in the order of their indices."""
    return [each for each in functions if each.device_class == GPU and not is_unbound(each)]


def is_unbound(function: PciFunction) -> bool:
    """Return whether FUNCTION is bound to no driver of Intel's; one with nodes has a driver, named or not."""
    is_nameless = not function.driver and bool(function.entries & {"drm", "accel"})
    return function.driver not in DRIVERS and not is_nameless


def model_of(function: PciFunction, virtual: VirtualFunction | None = None) -> str:
    """Return the product name of FUNCTION, and of which GPU it is a virtual function."""
    word = "Intel GPU" if function.device_class == GPU else WORDS[function.device_class]
    model = MODELS.get(function.device_id, f"{word} {function.device_id}".strip())
    if virtual is None:
        return model
    ordinal = "" if virtual.number is None else f" {virtual.number}"
    return f"{model}, virtual function{ordinal} of {virtual.parent}"


def report_unbound(scan: NodeScan, functions: Iterable[PciFunction], *, vfio: bool) -> None:
    """Report the devices that no driver of Intel's has; VFIO: those for virtual machines are offered."""
    given_away: dict[str, list[str]] = {}
    every = tuple(functions)
    served = {function.address for function in every if not is_unbound(function)}
    for function in every:
        if not is_unbound(function) or (vfio and function.driver in VFIO_DRIVERS):
            continue
        if _is_placeholder(function, served):
            continue
        if function.driver:
            given_away.setdefault(function.driver, []).append(function.address)
        else:
            scan.collector.add(
                "info",
                "device-not-bound",
                function.address,
                f"{function.word} ({model_of(function)}) is bound to no driver and gets no device",
                _remedy(function),
            )
    for driver, addresses in given_away.items():
        is_one = len(addresses) == 1
        scan.collector.add(
            "info",
            "device-not-bound",
            driver,
            f"{', '.join(addresses)}: bound to {driver}, and {'gets' if is_one else 'get'} no device",
            "'vendor_options: {intel: {vfio: true}}' in the configuration offers GPUs of VFIO"
            if driver in VFIO_DRIVERS
            else "",
        )


def _is_placeholder(function: PciFunction, served: set[str]) -> bool:
    """Return whether FUNCTION is the second function of an old integrated GPU, which i915 never binds.

    Source: drivers/gpu/drm/i915/i915_pci.c, i915_pci_probe ("placeholder for multi-head").
    """
    first = f"{function.address[:-1]}0"
    return not function.driver and "physfn" not in function.entries and first in served


def _remedy(function: PciFunction) -> str:
    if function.device_class != GPU:
        return "see 'dmesg' and 'modinfo intel_vpu habanalabs': is the module loaded, and its firmware there?"
    number = function.device_id.removeprefix("0x")
    return (
        "see 'dmesg | grep -e i915 -e xe'; a kernel too old for it takes it with "
        f"'xe.force_probe={number}' (or i915.force_probe) on its command line"
    )


def _read(
    scan: NodeScan, function: PciFunction, index: int, model: str, names: dict[str, tuple[str, ...]]
) -> Accelerator:
    """Return a GPU; one without a node that it must have is unusable."""
    where = function.address or function.folder
    named = f"GPU {index} ({where})"
    minors = drm.minors(scan.host, function.folder)
    nodes: tuple[HostNode, ...] = ()
    problem, hint = "", ""
    if SURVIVABILITY in function.entries:
        rule = "gpu-in-survivability-mode"
        problem = f"{function.driver} keeps it in survivability mode, because its firmware is broken"
        hint = "flash its firmware ('xpu-smi updatefw', or fwupd), then reboot"
    elif not minors:
        rule, hint = "gpu-without-drm", "see 'dmesg | grep -e i915 -e xe'"
        problem = f"{function.driver or 'its driver'} shows no DRM device of it"
    else:
        rule, hint = "gpu-node-missing", drm.UDEV_HINT
        nodes, where, problem = _nodes(scan, function, named, minors, names)
    if problem:
        scan.collector.add("error", rule, where, f"{named} gets no device: {problem}", hint)
    return Accelerator(
        index=index,
        address=function.address,
        model=model,
        uuid=None,
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
    """Return the memory of all tiles in MiB as xe tells it (xe_tile_sysfs.c), else None; i915 tells none."""
    tiles = [name for name in host.names(folder) if number_behind("tile", name) is not None]
    sizes = [mib(read_line(host, f"{folder}/{tile}/physical_vram_size_bytes")) for tile in tiles]
    return sum(size for size in sizes if size) if sizes and all(sizes) else None


def _nodes(
    scan: NodeScan,
    function: PciFunction,
    named: str,
    minors: tuple[drm.DrmMinor, ...],
    names: dict[str, tuple[str, ...]],
) -> tuple[tuple[HostNode, ...], str, str]:
    """Return the nodes of the GPU that is NAMED so, or none, of which one and why.

    Programs compute and draw by the render node; a GPU that has one, and whose node cannot be used, is
    unusable. A card that is missing beside it costs displays alone.
    """
    nodes: list[HostNode] = []
    has_render = any(minor.role == "render" for minor in minors)
    for minor in minors:
        node, problem = scan.minor(function.folder, minor)
        where = scan.dev.host_path(minor.path)
        if node is not None:
            nodes.extend(_with_names(node, names))
        elif minor.role == "render" or not has_render:
            return (), where, problem
        else:
            text = f"{named}: {problem}; it is served without its card, which displays need"
            scan.collector.add("warning", "drm-node-missing", where, text, drm.UDEV_HINT)
    return tuple(nodes), "", ""


BY_PATH = "/dev/dri/by-path"
# As udev's 60-drm.rules writes them.
_NAME = re.compile(r"(?:pci|platform)-[0-9A-Za-z:._-]{1,80}-(card|render)")


def _read_names(dev: Root) -> dict[str, tuple[str, ...]]:
    """Return the paths in /dev/dri/by-path by the node to which each leads, as the host names it."""
    names: dict[str, tuple[str, ...]] = {}
    for name in dev.names(BY_PATH):
        if _NAME.fullmatch(name) is None:
            continue
        path = f"{BY_PATH}/{name}"
        try:
            real = dev.host_path(dev.resolve(path))
        except OSError:
            # The link of a node that is gone; udev removes it in a moment.
            continue
        names[real] = (*names.get(real, ()), path)
    return names


def _with_names(node: HostNode, names: dict[str, tuple[str, ...]]) -> tuple[HostNode, ...]:
    """Return NODE, and once more for each of its NAMES that says what it is: a card, or a render node."""
    fitting = (path for path in names.get(node.host_path, ()) if path.endswith(f"-{node.role}"))
    return (node, *(replace(node, path=path) for path in fitting))
