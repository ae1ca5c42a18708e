"""Find what prevents programs in containers from using AMD's GPUs, whether discovery found these or not."""

from __future__ import annotations

from cdigen.host import sysfs
from cdigen.host.procfs import read_text
from cdigen.model.findings import Finding
from cdigen.vendors.kernel import drm
from cdigen.vendors.kernel.modules import firmware_names, is_loaded
from cdigen.vendors.kernel.nodes import is_root_only

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.model.findings import Severity
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.vendors.base import DiscoveryContext

PCI_VENDOR = 0x1002


def diagnostics(context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
    """Return what is wrong with the nodes' groups and modes, and with GPUs that amdgpu does not drive."""
    nodes = _nodes(inventory) if inventory is not None else ()
    return (*drm.root_only_nodes(nodes), *_closed_kfd(nodes), *_not_driven(context.host))


def _nodes(inventory: Inventory) -> tuple[HostNode, ...]:
    every = [
        node
        for gpu in inventory.accelerators
        for nodes in (gpu.nodes, *(part.nodes for part in gpu.partitions))
        for node in nodes
    ]
    return tuple(dict.fromkeys(every))


def _closed_kfd(nodes: tuple[HostNode, ...]) -> Iterator[Finding]:
    """Say that whoever may open the render nodes may not open KFD's: his programs find no GPU."""
    for kfd in (node for node in nodes if node.role == "control"):
        if is_root_only(kfd):
            text = f"only root can open {kfd.host_path} (mode {kfd.mode:04o}): nobody else can compute"
            yield _finding("warning", "kfd-mode", kfd.host_path, text, drm.GROUP_HINT)


def _not_driven(host: Root) -> Iterator[Finding]:
    """Report the AMD GPUs that amdgpu does not drive, and what is known of why."""
    found = sysfs.pci_devices(host, vendor=PCI_VENDOR, classes=sysfs.ACCELERATORS)
    free = [address for address, driver in found if not driver]
    for address, driver in found:
        if driver not in {"", "amdgpu"}:
            path = f"{sysfs.PCI_DEVICES}/{address}"
            text = f"GPU {address} is bound to the driver {driver}, not to amdgpu, and gets no device"
            yield _finding("info", "gpu-not-bound", path, text, "")
    if not free:
        return
    addresses = ", ".join(free)
    path = f"{sysfs.PCI_DEVICES}/{free[0]}"
    if "nomodeset" in _kernel_parameters(host):
        text = f"GPU {addresses} has no driver: the kernel was started with nomodeset, which amdgpu obeys"
        yield _finding("warning", "gpu-not-bound", path, text, "start it without")
    elif not is_loaded(host, "amdgpu"):
        text = f"GPU {addresses} is on the PCI bus, but the module amdgpu is not loaded"
        yield _finding("warning", "gpu-not-bound", path, text, "'modprobe amdgpu' loads it")
    elif not firmware_names(host, "amdgpu"):
        text = (
            f"amdgpu has not taken GPU {addresses}, and there is no firmware for it in /lib/firmware/amdgpu"
        )
        hint = "install it: Debian's firmware-amd-graphics, Fedora's amd-gpu-firmware, others' linux-firmware"
        yield _finding("warning", "firmware-missing", path, text, hint)
    else:
        text = f"amdgpu is loaded, but has not taken GPU {addresses}"
        hint = "see 'dmesg | grep amdgpu': often a file of the firmware is missing"
        yield _finding("warning", "gpu-not-bound", path, text, hint)


def _kernel_parameters(host: Root) -> list[str]:
    # What a boot loader was given may hold tabs and ends of lines.
    try:
        return read_text(host, "/proc/cmdline").split()
    except OSError:
        return []


def _finding(severity: Severity, rule: str, path: str, message: str, hint: str) -> Finding:
    return Finding(severity=severity, rule=rule, path=path, message=message, hint=hint)
