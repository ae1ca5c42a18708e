"""Accelerators that are no GPUs: which node of /dev/accel is whose.

The kernel lists it in the device's folder (``accel/accel0``). The driver of Gaudi that Intel ships apart
from the kernel, in its older releases, makes devices of no bus instead, each with the address of its own in
``pci_addr``.
"""

from __future__ import annotations

from cdigen.host.procfs import read_text
from cdigen.host.sysfs import pci_address
from cdigen.model.inventory import Accelerator
from cdigen.vendors.intel.gpu import model_of
from cdigen.vendors.intel.tables import WORDS
from cdigen.vendors.kernel import drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.host.root import Root
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.intel.pci import PciFunction
    from cdigen.vendors.intel.scan import NodeScan

CLASS = "/sys/class/accel"


def find_minor(host: Root, function: PciFunction) -> drm.DrmMinor | None:
    """Return the accelerator node of FUNCTION as the kernel names it, None where it lists none."""
    minors = drm.minors(host, function.folder, "accel")
    if minors:
        return minors[0]
    for name in host.names(CLASS):
        digits = name.removeprefix("accel")
        is_one = digits != name and digits.isascii() and digits.isdigit() and len(digits) <= 7
        if is_one and _is_of(host, f"{CLASS}/{name}/device", function):
            numbers = drm.device_numbers(host, f"{CLASS}/{name}/dev")
            return drm.DrmMinor(
                name=name,
                role="accel",
                number=int(digits),
                path=f"/dev/accel/{name}",
                capabilities=(),
                numbers=numbers,
            )
    return None


def read_accelerator(
    scan: NodeScan,
    function: PciFunction,
    index: int,
    minor: drm.DrmMinor | None,
    others: Callable[[drm.DrmMinor], tuple[HostNode, ...]],
) -> Accelerator:
    """Read FUNCTION with its node MINOR, without which it is unusable, and what OTHERS it has."""
    problem = "its driver shows no node of it"
    node = None
    if minor is not None:
        node, problem = scan.minor(function, minor)
    if node is None:
        scan.collector.add(
            "error",
            "accel-node-missing" if minor else "accel-without-node",
            scan.dev.host_path(minor.path) if minor else function.address or function.folder,
            f"{WORDS[function.device_class]} {index} ({function.address or function.folder}) gets no device: "
            f"{problem}",
            drm.UDEV_HINT if minor else f"see 'dmesg | grep {function.driver or 'accel'}'",
        )
    return Accelerator(
        index=index,
        address=function.address,
        model=model_of(function),
        uuid=None,
        minor=minor.number if minor else None,
        nodes=(node, *others(minor)) if node and minor else (),
        usable=node is not None,
        problem="" if node else problem,
        device_class=function.device_class,
        device_id=function.device_id,
    )


def _is_of(host: Root, folder: str, function: PciFunction) -> bool:
    """Return whether the device at FOLDER is FUNCTION."""
    if folder == function.folder:
        return True
    try:
        return bool(function.address) and pci_address(read_text(host, f"{folder}/pci_addr").strip()) == (
            function.address
        )
    except OSError:
        return False
