"""Read the GPUs and their nodes from /proc/driver/nvidia, /sys and /dev; NVML adds what these lack.

The index is NVML's: GPUs of the nvidia driver in the order of their PCI addresses, those that the
driver excludes left out (NVML API reference, nvmlDeviceGetCount_v2 and GetHandleByIndex_v2). A GPU
that cannot be served keeps its index, so the names of the others do not move.
"""

from __future__ import annotations

from cdigen.host import sysfs
from cdigen.host.procfs import number_behind, read_text
from cdigen.host.root import reason, shown
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding, FindingCollector
from cdigen.model.inventory import Accelerator
from cdigen.value import replace
from cdigen.vendors.base import no_names
from cdigen.vendors.kernel import drm
from cdigen.vendors.nvidia.kernel_module import is_uuid, parse_lines, remedy
from cdigen.vendors.nvidia.mig import MigReader
from cdigen.vendors.nvidia.nvml import not_asked
from cdigen.vendors.nvidia.tables import CONTROL_NODES, GRAPHICS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.model.inventory import HostNode
    from cdigen.model.partition_names import GpuPartitionNames, PartitionName
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.nvidia.nodes import NvidiaNodeReader
    from cdigen.vendors.nvidia.nvml import NvmlGpuReply, NvmlReply

    # Asks NVML, at most once.
    Probe = Callable[[], NvmlReply]
    # What of the running driver's GPUs is remembered.
    Memory = Callable[[], tuple[GpuPartitionNames, ...]]

GPUS = "/proc/driver/nvidia/gpus"
PCI_DRIVER = "nvidia"
PCI_VENDOR = 0x10DE
PCI_CLASSES = (0x0300, 0x0302)  # VGA and 3D controllers (PCI Code and ID Assignment, class 03)
MAX_MINOR = 0xFFFFF


class NvidiaGpuReader:
    """Reads the GPUs of one host; ``collector`` gathers the findings."""

    def __init__(
        self,
        context: DiscoveryContext,
        nodes: NvidiaNodeReader,
        probe: Probe = not_asked,
        memory: Memory = no_names,
    ) -> None:
        self._context = context
        self._nodes = nodes
        self._probe = probe
        self._memory = memory
        self._mig = MigReader(context, nodes)
        self.collector = FindingCollector()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found wrong with GPUs, MIG instances and what the kernel says of nodes."""
        return (*self._nodes.findings, *self.collector.findings, *self._mig.collector.findings)

    def read(self) -> tuple[Accelerator, ...]:
        """Read every GPU of the nvidia driver; one that is broken is unusable, with a finding.

        They come in the order of their index, excluded GPUs left out. A GPU that is bound to the
        driver and that the driver does not list has fallen off the bus: it keeps its index, too.
        Raises HostError where the driver's list cannot be read and no GPU is known without it.
        """
        bound = sysfs.pci_devices(self._context.host, vendor=PCI_VENDOR, classes=PCI_CLASSES)
        listed, problem = self._addresses()
        known = {address for _, address in listed}
        lost = [("", address) for address, driver in bound if driver == PCI_DRIVER and address not in known]
        if problem and not lost:
            raise HostError(problem, hint=self.collector.findings[-1].hint, kind="no-gpu")
        found = [
            (folder, address, information)
            for folder, address in sorted((*listed, *lost), key=lambda pair: sysfs.pci_key(pair[1]) or ())
            if not self._is_excluded(address, information := self._information(folder))
        ]
        accelerators = [
            self._accelerator(index, address, folder, information)
            if folder
            else self._lost(index, address, problem)
            for index, (folder, address, information) in enumerate(found)
        ]
        self._name_unbound(bound, {accelerator.address for accelerator in accelerators})
        return tuple(self._without_repetition(self._with_nvml(accelerators)))

    def read_control_nodes(self) -> tuple[HostNode, ...]:
        """Read the nodes that all GPUs share; a missing one is a finding by its weight."""
        nodes: list[HostNode] = []
        for path, role, capabilities, weight in CONTROL_NODES:
            numbers = self._nodes.control(role)
            node, problem = self._nodes.read(path, role=role, capabilities=capabilities, numbers=numbers)
            if node is not None:
                nodes.append(node)
                continue
            required = weight == "required"
            self.collector.add(
                "error" if required else "info",
                "control-node-missing",
                self._context.dev.host_path(path),
                problem,
                "'nvidia-modprobe -c 0 -u -m' makes the nodes" if required else "",
            )
        return tuple(nodes)

    def _addresses(self) -> tuple[list[tuple[str, str]], str]:
        """Return the folders of GPUs and their addresses, and why none could be listed."""
        found: list[tuple[str, str]] = []
        try:
            names = self._context.host.listdir(GPUS)
        except (FileNotFoundError, NotADirectoryError):
            return [], ""
        except OSError as error:
            problem = f"{GPUS} cannot be read: {reason(error)}"
            self.collector.add("error", "gpu-information-unreadable", GPUS, problem, remedy(error))
            return [], problem
        for name in names:
            address = sysfs.pci_address(name)
            if address is not None:
                found.append((name, address))
                continue
            self.collector.add(
                "warning",
                "gpu-address-unknown",
                shown(f"{GPUS}/{name}"),
                f"{shown(name)!r} is not a PCI address; the entry is passed over",
            )
        return found, ""

    def _lost(self, index: int, address: str, problem: str) -> Accelerator:
        """Return the GPU at ADDRESS that is bound to the driver, but not listed by it.

        PROBLEM says why nothing is listed, which was reported; else the GPU has fallen off the bus.
        """
        if not problem:
            problem = f"it is bound to the driver {PCI_DRIVER}, but {GPUS} does not list it"
            self.collector.add(
                "error",
                "gpu-lost",
                address,
                f"GPU {index} ({address}) gets no device: {problem}",
                "see 'dmesg | grep -e NVRM -e Xid': it may have fallen off the bus; a reboot brings it back",
            )
        return _accelerator(index, address, None, (), problem)

    def _information(self, folder: str) -> dict[str, str]:
        if not folder:
            return {}
        path = f"{GPUS}/{folder}/information"
        problem = "it holds no 'Device Minor' line"
        try:
            values = parse_lines(read_text(self._context.host, path))
        except OSError as error:
            values, problem = {}, reason(error)
        if "Device Minor" not in values:
            self._unreadable(path, f"{path} does not describe a GPU: {problem}; this GPU gets no device")
        return values

    def _is_excluded(self, address: str, information: dict[str, str]) -> bool:
        excluded = information.get("GPU Excluded", "No").lower() == "yes"
        if excluded:
            message = f"GPU {address} is excluded by the driver's configuration and gets no device"
            self.collector.add("info", "gpu-excluded", address, message)
        return excluded

    def _accelerator(self, index: int, address: str, folder: str, information: dict[str, str]) -> Accelerator:
        self._require_device(index, address, folder)
        minor = self._minor(information, f"{GPUS}/{folder}/information")
        uuid = information.get("GPU UUID", "").lower().replace("gpu-", "GPU-", 1)
        nodes = self._gpu_nodes(index, address, minor) if minor is not None else ()
        problem = "its device node is missing" if minor is not None else "its minor is unknown"
        gpu = _accelerator(index, address, minor, nodes, "" if nodes else problem)
        return replace(gpu, model=information.get("Model", ""), uuid=uuid if is_uuid(uuid) else None)

    def _require_device(self, index: int, address: str, folder: str) -> None:
        """Add a finding where /sys does not have the GPU, as in a container with a /sys that is not whole."""
        paths = (f"{sysfs.PCI_DEVICES}/{name}" for name in (address, folder))
        if not any(map(self._context.host.exists, paths)):
            self.collector.add(
                "warning",
                "gpu-without-device",
                address,
                f"GPU {index} ({address}) is in {GPUS}, and not in {sysfs.PCI_DEVICES}: nothing is known of "
                "its links, graphics nodes and health",
                "in a container, mount the host's own /sys",
            )

    def _minor(self, information: dict[str, str], path: str) -> int | None:
        text = information.get("Device Minor")
        if text is None:
            return None
        minor = number_behind("", text)
        if minor is not None and minor <= MAX_MINOR:
            return minor
        message = f"{path} has 'Device Minor: {text[:40]}', which is not a number; this GPU gets no device"
        self._unreadable(path, message)
        return None

    def _gpu_nodes(self, index: int, address: str, minor: int) -> tuple[HostNode, ...]:
        """Return a GPU's own node and its DRM nodes; nothing where its own cannot be used."""
        own, problem = self._nodes.read(f"/dev/nvidia{minor}", role="gpu", numbers=self._nodes.gpu(minor))
        if own is None:
            self.collector.add(
                "error",
                "gpu-node-missing",
                self._context.dev.host_path(f"/dev/nvidia{minor}"),
                f"GPU {index} ({address}): {problem}; this GPU gets no device",
                f"'nvidia-modprobe -c {minor}' makes it",
            )
            return ()
        nodes = [own]
        for drm_minor in drm.minors(self._context.host, f"{sysfs.PCI_DEVICES}/{address}"):
            # The kernel makes these itself, so they are never made here.
            numbers = drm.node_numbers(drm_minor.numbers, make=False)
            node, problem = self._nodes.read(
                drm_minor.path, role=drm_minor.role, capabilities=GRAPHICS, numbers=numbers
            )
            if node is not None:
                nodes.append(node)
                continue
            self.collector.add(
                "warning",
                "drm-node-missing",
                self._context.dev.host_path(drm_minor.path),
                f"GPU {index} ({address}): {problem}; graphics programs will not find the GPU",
                "is udev running?",
            )
        return tuple(nodes)

    def _without_repetition(self, accelerators: list[Accelerator]) -> list[Accelerator]:
        """Return the GPUs as they may be served together: no minor and no UUID stands for two of them."""
        by_minor: dict[int, int] = {}
        by_uuid: dict[str, int] = {}
        served = []
        for each in accelerators:
            accelerator, problem = each, ""
            if each.minor is not None and by_minor.setdefault(each.minor, each.index) != each.index:
                problem = f"its minor {each.minor} is that of GPU {by_minor[each.minor]}"
                accelerator = replace(each, nodes=(), partitions=(), usable=False, problem=problem)
            elif each.uuid is not None and by_uuid.setdefault(each.uuid, each.index) != each.index:
                problem = f"its UUID is that of GPU {by_uuid[each.uuid]}"
                accelerator = replace(each, uuid=None, problem=problem)
            if problem:
                self.collector.add(
                    "error",
                    "gpu-repeated",
                    each.address,
                    f"GPU {each.index} ({each.address}): {problem}",
                    "the kernel module is in a bad state: reload it or reboot",
                )
            served.append(accelerator)
        return served

    def _name_unbound(self, bound: tuple[tuple[str, str], ...], served: set[str]) -> None:
        for address, driver in bound:
            if driver == PCI_DRIVER or address in served:
                continue
            holder = f"is bound to the driver {driver}" if driver else "is bound to no driver"
            message = f"GPU {address} {holder}, not to nvidia, and gets no device"
            self.collector.add("info", "gpu-not-bound", address, message)

    def _with_nvml(self, accelerators: list[Accelerator]) -> list[Accelerator]:
        """Add what only NVML knows: UUIDs before first use, MIG modes, the instances' names.

        NVML is asked only if a GPU lacks something that it could tell: its start-up can wake GPUs.
        """
        needs = [
            each
            for each in accelerators
            if each.usable
            and (each.uuid is None or (each.minor is not None and self._mig.has_mig(each.minor)))
        ]
        reply = self._probe() if needs else not_asked()
        self._compare_numbers(accelerators, reply)
        return [
            self._completed(each, reply.of(each.address)) if each.usable else each for each in accelerators
        ]

    def _compare_numbers(self, accelerators: list[Accelerator], reply: NvmlReply) -> None:
        """Say which GPUs NVML numbers otherwise than by the order of their addresses, as we do."""
        others = [
            f"{each.address} is GPU {each.index} here and {answer.index} there"
            for each in accelerators
            if (answer := reply.of(each.address).answer) is not None and answer.index != each.index
        ]
        if others:
            self.collector.add(
                "warning",
                "gpu-numbers-differ",
                GPUS,
                f"NVML and nvidia-smi number the GPUs otherwise: {', '.join(others)}",
                "name GPUs by their UUIDs or addresses ('names' of a profile), which are the same everywhere",
            )

    def _completed(self, accelerator: Accelerator, reply: NvmlGpuReply) -> Accelerator:
        answer = reply.answer
        uuid = accelerator.uuid or (answer.uuid if answer and is_uuid(answer.uuid or "") else None)
        if uuid is None:
            self.collector.add(
                "warning",
                "uuid-unknown",
                f"{GPUS}/{accelerator.address}/information",
                f"GPU {accelerator.index} ({accelerator.address}) has no UUID yet; it is offered by its "
                "index only",
                "its first use makes it known, for example 'nvidia-smi -L'",
            )
        if uuid != accelerator.uuid:
            accelerator = replace(accelerator, uuid=uuid)
        return self._partitioned(accelerator, reply)

    def _names_before(self, gpu: Accelerator) -> tuple[PartitionName, ...]:
        """Return the names that NVML gave the instances of GPU at last."""
        return next(
            (
                known.partitions
                for known in self._memory()
                if (known.address, known.minor) == (gpu.address, gpu.minor)
                and (known.uuid == gpu.uuid or None in {known.uuid, gpu.uuid})
            ),
            (),
        )

    def _partitioned(self, gpu: Accelerator, reply: NvmlGpuReply) -> Accelerator:
        """Return GPU with its MIG instances: as such, and never as a whole, where any side says so."""
        answer = reply.answer
        is_on = bool(answer and answer.mig_mode)
        if gpu.minor is None or not (is_on or self._mig.has_mig(gpu.minor)):
            return gpu
        before = self._names_before(gpu) if reply.silence else ()
        partitions = self._mig.partitions(gpu.index, gpu.minor, reply, before)
        listed = self._mig.gpu_instances(gpu.minor)
        if not (is_on or listed):
            return gpu
        if not any(partition.usable for partition in partitions):
            has = (
                f"none of its instances can be used: {partitions[0].problem}"
                if partitions
                else f"has {'GPU instances, but none that can be offered' if listed else 'no instances'}"
            )
            self.collector.add(
                "warning",
                "mig-empty",
                gpu.address,
                f"GPU {gpu.index} ({gpu.address}) is in MIG mode and {has}; it gets no device",
                "'nvidia-smi' makes missing nodes, and so does 'create_nodes: true' in the configuration"
                if partitions
                else f"make instances ('nvidia-smi mig -i {gpu.index} -cgi ... -C') or leave MIG mode",
            )
        return replace(gpu, partitioned=True, partitions=partitions)

    def _unreadable(self, path: str, message: str) -> None:
        hint = "see 'dmesg | grep NVRM' for what happened to it"
        self.collector.add("error", "gpu-information-unreadable", path, message, hint)


def _accelerator(
    index: int, address: str, minor: int | None, nodes: tuple[HostNode, ...], problem: str
) -> Accelerator:
    return Accelerator(
        index=index,
        address=address,
        model="",
        uuid=None,
        minor=minor,
        nodes=nodes,
        usable=bool(nodes),
        problem=problem,
    )
