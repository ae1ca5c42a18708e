"""Report problems of AMD's devices that discovery does not report.

The problems are wrong groups and modes of device nodes, GPUs and NPUs without a driver, and a firmware that
amdxdna rejects.
"""

from __future__ import annotations

from cdigen.host import sysfs
from cdigen.host.kernelmodules import NO_MODESET, module_exclusions
from cdigen.host.procfs import read_line
from cdigen.model.findings import Finding
from cdigen.vendors.amd.discovery import NPU_MODELS, PROCESSORS
from cdigen.vendors.amd.gpus import PCI_VENDOR
from cdigen.vendors.kernel.drm import devices as drm
from cdigen.vendors.kernel.log_messages import kernel_messages
from cdigen.vendors.kernel.modules import firmware_names, is_loaded, loading_step
from cdigen.vendors.kernel.nodes import all_nodes, is_root_only

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.model.findings import Severity
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.vendors.context import DiscoveryContext

# drivers/accel/amdxdna/aie2_pci.c, aie2_check_protocol.
_NPU_LOG, _REJECTED = "amdxdna ", "ncompatible firmware protocol"
_NPU_HINT = (
    "install kernel and linux-firmware of the same release of the distribution (or of amd/xdna-driver), and "
    "reboot"
)


def diagnostics(context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
    """Return findings for wrong groups and modes of nodes, unbound devices, and the firmware of NPUs."""
    every = (node for gpu in inventory.accelerators for node in all_nodes(gpu)) if inventory else ()
    nodes = tuple(dict.fromkeys(every))
    return (
        *drm.root_only_nodes(nodes),
        *_closed_kfd(nodes),
        *_not_driven(context.host),
        *_refused_firmware(context.host),
        *_npus_without_driver(context.host),
    )


def _refused_firmware(host: Root) -> Iterator[Finding]:
    """Yield a finding if amdxdna has rejected the firmware of an NPU."""
    if not is_loaded(host, "amdxdna"):
        return
    rejected = [text for text in kernel_messages(host, (_NPU_LOG,)) if _REJECTED in text]
    if rejected:
        text = f"amdxdna rejected the firmware of the NPU: the kernel log has {rejected[-1]!r}"
        yield _finding("warning", "npu-firmware", "/lib/firmware/amdnpu", text, _NPU_HINT)


def _npus_without_driver(host: Root) -> Iterator[Finding]:
    """Yield a finding for the NPUs that amdxdna supports, but does not drive."""
    found = sysfs.pci_devices(host, vendor=PROCESSORS, classes=(sysfs.SIGNAL_PROCESSOR,))
    free = [
        address
        for address, driver in found
        if not driver and read_line(host, f"{sysfs.PCI_DEVICES}/{address}/device") in NPU_MODELS
    ]
    if free:
        is_idle = is_loaded(host, "amdxdna")
        state = "amdxdna is loaded, but is not bound to it" if is_idle else "the module amdxdna is not loaded"
        hint = f"see 'dmesg | grep amdxdna'; {_NPU_HINT}" if is_idle else loading_step(host, "amdxdna")
        text = f"NPU {', '.join(free)} gets no CDI device: {state}"
        yield _finding("warning", "npu-not-bound", f"{sysfs.PCI_DEVICES}/{free[0]}", text, hint)


def _closed_kfd(nodes: tuple[HostNode, ...]) -> Iterator[Finding]:
    """Yield a finding if only root can open /dev/kfd. Programs of other users then find no GPU."""
    for kfd in (node for node in nodes if node.role == "control"):
        if is_root_only(kfd):
            text = f"only root can open {kfd.host_path} (mode {kfd.mode:04o}): other users cannot compute"
            yield _finding("warning", "kfd-mode", kfd.host_path, text, drm.GROUP_HINT)


def _not_driven(host: Root) -> Iterator[Finding]:
    """Yield findings for the AMD GPUs that amdgpu does not drive, with the known causes."""
    found = sysfs.pci_devices(host, vendor=PCI_VENDOR, classes=sysfs.ACCELERATORS)
    free = [address for address, driver in found if not driver]
    for address, driver in found:
        if driver not in {"", "amdgpu"}:
            path = f"{sysfs.PCI_DEVICES}/{address}"
            text = f"GPU {address} is bound to the driver {driver}, not to amdgpu, and gets no CDI device"
            yield _finding("info", "gpu-not-bound", path, text, "")
    if not free:
        return
    addresses = ", ".join(free)
    path = f"{sysfs.PCI_DEVICES}/{free[0]}"
    excluded = module_exclusions(host, "amdgpu")
    if any(found.command == NO_MODESET for found in excluded):
        text = f"GPU {addresses} has no driver: the kernel parameter nomodeset disables amdgpu"
        yield _finding("warning", "gpu-not-bound", path, text, excluded[0].remedy("amdgpu"))
    elif not is_loaded(host, "amdgpu"):
        text = f"GPU {addresses} is on the PCI bus, but the module amdgpu is not loaded"
        hint = excluded[0].remedy("amdgpu") if excluded else loading_step(host, "amdgpu")
        yield _finding("warning", "gpu-not-bound", path, text, hint)
    elif not firmware_names(host, "amdgpu"):
        text = f"amdgpu is not bound to GPU {addresses}, and /lib/firmware/amdgpu has no firmware for it"
        hint = "install firmware-amd-graphics (Debian), amd-gpu-firmware (Fedora) or linux-firmware (others)"
        yield _finding("warning", "firmware-missing", path, text, hint)
    else:
        text = f"amdgpu is loaded, but is not bound to GPU {addresses}"
        hint = "run 'dmesg | grep amdgpu'; often a firmware file is missing"
        yield _finding("warning", "gpu-not-bound", path, text, hint)


def _finding(severity: Severity, rule: str, path: str, message: str, hint: str) -> Finding:
    return Finding(severity=severity, rule=rule, path=path, message=message, hint=hint)
