"""Read Intel's accelerators other than GPUs: NPUs of intel_vpu and Gaudis of habanalabs.

Each has one node in /dev/accel, which the kernel lists in the device's folder (``accel/accel0``). Older
releases of the Gaudi driver that Intel ships apart from the kernel make devices that are on no bus instead,
each with its PCI address in ``pci_addr``.

The index of NPUs counts them by their PCI addresses (drivers/accel/ivpu makes no other node). That of a Gaudi
is the number of its node: HABANA_VISIBLE_DEVICES counts so, by which Intel's runtime and device plugin
choose. A Gaudi without a node takes a number that no other has.
"""

from __future__ import annotations

from itertools import count

from cdigen.host.procfs import read_text
from cdigen.host.sysfs import pci_address
from cdigen.model.inventory import Accelerator
from cdigen.vendors.intel.gpu import is_unbound, model_of
from cdigen.vendors.intel.tables import GAUDI, NPU, WORDS
from cdigen.vendors.kernel import drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
    """Read FUNCTION with its node MINOR, without which it is unusable, and the nodes that OTHERS adds."""
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


def read_npus(scan: NodeScan, functions: Iterable[PciFunction]) -> tuple[Accelerator, ...]:
    """Read the NPUs that are bound to their driver; each problem is a finding."""
    served = [each for each in functions if each.device_class == NPU and not is_unbound(each)]
    return tuple(
        read_accelerator(scan, function, index, find_minor(scan.host, function), lambda _: ())
        for index, function in enumerate(served)
    )


def read_gaudis(scan: NodeScan, functions: Iterable[PciFunction]) -> tuple[Accelerator, ...]:
    """Read the Gaudis that are bound to their driver, by their indices; each problem is a finding."""
    served = [
        (function, find_minor(scan.host, function))
        for function in functions
        if function.device_class == GAUDI and not is_unbound(function)
    ]
    taken: set[int] = {minor.number for _, minor in served if minor}
    free = (number for number in count() if number not in taken)
    read = []
    used: set[int] = set()
    for function, minor in served:
        # Where two list one node, NodeReader.claim decides; their indices differ all the same.
        index = minor.number if minor and minor.number not in used else next(free)
        used.add(index)
        others = _Others(scan, function)
        read.append(read_accelerator(scan, function, index, minor, others.read))
    return tuple(sorted(read, key=lambda gaudi: gaudi.index))


class _Others:
    """Reads the nodes that a Gaudi has besides its own."""

    def __init__(self, scan: NodeScan, function: PciFunction) -> None:
        self._look = scan
        self._function = function

    def read(self, minor: drm.DrmMinor) -> tuple[HostNode, ...]:
        """Return the control node and the network's nodes, those that exist."""
        return (*self._control(minor), *self._network())

    def _control(self, minor: drm.DrmMinor) -> Iterator[HostNode]:
        """Yield the node by which a Gaudi that is in use is asked (hl-smi, hlthunk); accel_controlD0.

        The driver makes it with a number of its own in the class of accelerators (habanalabs/common/device.c,
        cdev_sysfs_debugfs_add).
        """
        name = f"accel_controlD{minor.number}"
        is_listed = self._look.host.exists(f"{CLASS}/{name}")
        numbers = drm.device_numbers(self._look.host, f"{CLASS}/{name}/dev")
        node, problem = self._look.node(self._function, f"/dev/accel/{name}", "control", numbers)
        if node is not None:
            yield node
        elif is_listed or self._look.dev.exists(f"/dev/accel/{name}"):
            self._say("gaudi-control-node-unusable", f"/dev/accel/{name}", problem, "hl-smi will not find it")

    def _network(self) -> Iterator[HostNode]:
        """Yield the nodes of a Gaudi's own network ports, which only some setups have (RoCE by verbs)."""
        if "infiniband_verbs" not in self._function.entries:
            return
        folder = f"{self._function.folder}/infiniband_verbs"
        for name in self._look.host.names(folder):
            digits = name.removeprefix("uverbs")
            if digits == name or not (digits.isascii() and digits.isdigit()):
                continue
            numbers = drm.device_numbers(self._look.host, f"{folder}/{name}/dev")
            path = f"/dev/infiniband/{name}"
            node, problem = self._look.node(self._function, path, "network", numbers)
            if node is not None:
                yield node
            else:
                self._say(
                    "gaudi-network-node-unusable", path, problem, "it cannot reach other hosts by verbs"
                )

    def _say(self, rule: str, path: str, problem: str, consequence: str) -> None:
        where = self._look.dev.host_path(path)
        message = f"Gaudi {self._function.address}: {problem}; {consequence}"
        self._look.collector.add("warning", rule, where, message, drm.UDEV_HINT)
