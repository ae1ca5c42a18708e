"""Read the GPUs and their nodes from /proc/driver/nvidia, /sys and /dev, and further values from NVML.

The index of a GPU is the same as in NVML. The nvidia driver's GPUs are numbered in the order of their PCI
addresses, without the GPUs that the driver excludes (NVML API reference, nvmlDeviceGetCount_v2 and
GetHandleByIndex_v2). An unusable GPU keeps its index, so that the names of other GPUs do not change.
"""

from __future__ import annotations

from cdigen.host import sysfs
from cdigen.host.containers import is_guest
from cdigen.host.procfs import number_behind, read_line, read_text
from cdigen.host.root import reason, shown
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding, FindingCollector
from cdigen.model.inventory import Accelerator
from cdigen.value import replace
from cdigen.vendors.kernel.drm import devices as drm
from cdigen.vendors.nvidia.devices import flavour
from cdigen.vendors.nvidia.devices.flavour import PCI_CLASSES, PCI_DRIVER, PCI_VENDOR
from cdigen.vendors.nvidia.devices.mig import MigReader
from cdigen.vendors.nvidia.devices.numbers import differing
from cdigen.vendors.nvidia.devices.unified_memory import unified_memory_mib
from cdigen.vendors.nvidia.files.tables import CONTROL_NODES, GRAPHICS, MISSING_CONTROL_NODE
from cdigen.vendors.nvidia.kernel_module import is_uuid, parse_lines, read_driver, remedy
from cdigen.vendors.nvidia.nvml import not_queried

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.model.inventory import HostNode
    from cdigen.model.saved import GpuPartitionNames, PartitionName
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.nvidia.devices.nodes import NvidiaNodeReader
    from cdigen.vendors.nvidia.nvml import NvmlGpuReply, NvmlReply

    # A function that queries NVML. It is called at most once.
    Probe = Callable[[], NvmlReply]
    # A function that returns the last known names of MIG instances of the running driver.
    Memory = Callable[[], tuple[GpuPartitionNames, ...]]

GPUS = "/proc/driver/nvidia/gpus"
MAX_MINOR = 0xFFFFF
# The rules of findings about GPUs that the driver does not use.
EXCLUDED, NOT_BOUND = "gpu-excluded", "gpu-not-bound"


class NvidiaGpuReader:
    """Reads the GPUs of one host. ``findings`` has all findings of the reader."""

    def __init__(
        self,
        context: DiscoveryContext,
        nodes: NvidiaNodeReader,
        probe: Probe = not_queried,
        memory: Memory = lambda: (),
    ) -> None:
        self._context = context
        self._nodes = nodes
        self._probe = probe
        self._memory = memory
        self._mig = MigReader(context, nodes)
        self._udev_names = drm.udev_names(context.dev)
        self.collector = FindingCollector()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings about GPUs, about MIG instances, and about files in /proc that list device numbers."""
        return (*self._nodes.findings, *self.collector.findings, *self._mig.collector.findings)

    def read(self) -> tuple[Accelerator, ...]:
        """Return all GPUs of the nvidia driver except excluded GPUs, in the order of their indexes.

        A broken GPU is unusable, and has a finding. If a GPU is bound to the driver and the driver does not
        list the GPU, the GPU has fallen off the bus. If the driver lists a GPU that is bound to no driver,
        the driver is removing the GPU. Such GPUs also keep their indexes. The function raises HostError if
        the driver's list cannot be read and /sys shows no GPU that is bound to the driver.
        """
        bound = sysfs.pci_devices(self._context.host, vendor=PCI_VENDOR, classes=PCI_CLASSES)
        listed, problem = self._addresses()
        known = {address for _, address in listed}
        free = {address for address, driver in bound if not driver}
        lost = [("", address) for address, driver in bound if driver == PCI_DRIVER and address not in known]
        if problem and not lost:
            raise HostError(problem, hint=self.collector.findings[-1].hint, kind="no-gpu")
        found = [
            (folder, address, information)
            for folder, address in sorted((*listed, *lost), key=lambda pair: sysfs.pci_key(pair[1]) or ())
            if not self._is_excluded(address, information := self._information(folder))
        ]
        accelerators = [
            self._removed(index, address)
            if address in free
            else self._accelerator(index, address, folder, information)
            if folder
            else self._lost(index, address, problem, is_foreign=bool(listed) and is_guest(self._context.host))
            for index, (folder, address, information) in enumerate(found)
        ]
        self._name_unbound(bound, {accelerator.address for accelerator in accelerators})
        return tuple(self._without_repetition(self._with_nvml(accelerators)))

    def read_control_nodes(self) -> tuple[HostNode, ...]:
        """Return the nodes that all GPUs share.

        The function adds a finding for each missing node. The weight of the node determines the severity.
        """
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
                MISSING_CONTROL_NODE,
                self._context.dev.host_path(path),
                problem,
                self._nodes.remedy(problem, role) if required else "",
            )
        return tuple(nodes)

    def _addresses(self) -> tuple[list[tuple[str, str]], str]:
        """Return pairs (folder, PCI address) from the driver's list of GPUs, and the list's problem or ""."""
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
            message = f"{shown(name)!r} is not a PCI address; the entry is skipped"
            self.collector.add("warning", "gpu-address-unknown", shown(f"{GPUS}/{name}"), message)
        return found, ""

    def _lost(self, index: int, address: str, problem: str, *, is_foreign: bool) -> Accelerator:
        """Return the unusable GPU at ADDRESS, which is bound to the driver and not in the driver's list.

        If the list could not be read, PROBLEM is the reason, and already has a finding. If PROBLEM is empty,
        the GPU has fallen off the bus, and the function adds a finding. If IS_FOREIGN is true, the host is a
        container, and NVIDIA's runtime has hidden the GPU from the container.
        """
        if is_foreign and not problem:
            problem = f"the GPU is not in {GPUS} of this container"
            self.collector.add("info", "gpu-lost", address, f"GPU {index} ({address}): {problem}")
        if not problem:
            problem = f"the GPU is bound to the driver {PCI_DRIVER}, but is not in {GPUS}"
            message = f"GPU {index} ({address}) gets no CDI device: {problem}"
            hint = "see 'dmesg | grep -e NVRM -e Xid'; if the GPU has fallen off the bus, reboot the host"
            self.collector.add("error", "gpu-lost", address, message, hint)
        return _accelerator(index, address, None, (), problem)

    def _removed(self, index: int, address: str) -> Accelerator:
        """Return the unusable GPU at ADDRESS, which is in the driver's list and bound to no driver.

        The driver waits until no program uses the GPU, and lists the GPU until then (open-gpu-kernel-modules
        580, kernel-open/nvidia/nv-pci.c, nv_pci_remove_helper).
        """
        problem = f"the GPU is in {GPUS}, but bound to no driver: the driver is removing it"
        message = f"GPU {index} ({address}) gets no CDI device: {problem}"
        hint = (
            "end the programs that use the GPU; if it is not bound to the driver again then, reboot the host"
        )
        self.collector.add("error", "gpu-lost", address, message, hint)
        return _accelerator(index, address, None, (), problem)

    def _information(self, folder: str) -> dict[str, str]:
        if not folder:
            return {}
        path = f"{GPUS}/{folder}/information"
        problem = "no 'Device Minor' line"
        try:
            values = parse_lines(read_text(self._context.host, path))
        except OSError as error:
            values, problem = {}, reason(error)
        if "Device Minor" not in values:
            self._unreadable(path, f"{path} does not describe a GPU: {problem}; the GPU gets no CDI device")
        return values

    def _is_excluded(self, address: str, information: dict[str, str]) -> bool:
        excluded = information.get("GPU Excluded", "No").lower() == "yes"
        if excluded:
            message = f"GPU {address} is excluded by the driver's configuration and gets no CDI device"
            self.collector.add("info", EXCLUDED, address, message)
        return excluded

    def _accelerator(self, index: int, address: str, folder: str, information: dict[str, str]) -> Accelerator:
        self._require_device(index, address, folder)
        minor = self._minor(information, f"{GPUS}/{folder}/information")
        uuid = information.get("GPU UUID", "").lower().replace("gpu-", "GPU-", 1)
        nodes = self._gpu_nodes(index, address, minor) if minor is not None else ()
        problem = "its device node is missing" if minor is not None else "its minor is unknown"
        gpu = _accelerator(index, address, minor, nodes, "" if nodes else problem)
        model = information.get("Model", "")
        return replace(
            gpu,
            model=model,
            uuid=uuid if is_uuid(uuid) else None,
            memory_mib=unified_memory_mib(self._context.host, model),
        )

    def _require_device(self, index: int, address: str, folder: str) -> None:
        """Add a finding if the GPU is not in /sys. For example, a container can have an incomplete /sys."""
        paths = (f"{sysfs.PCI_DEVICES}/{name}" for name in (address, folder))
        if not any(map(self._context.host.exists, paths)):
            self.collector.add(
                "warning",
                "gpu-without-device",
                address,
                f"GPU {index} ({address}) is in {GPUS}, but not in {sysfs.PCI_DEVICES}: its links, graphics "
                "nodes and health are not known",
                "in a container, mount the host's own /sys",
            )

    def _minor(self, information: dict[str, str], path: str) -> int | None:
        text = information.get("Device Minor")
        if text is None:
            return None
        minor = number_behind("", text)
        if minor is not None and minor <= MAX_MINOR:
            return minor
        message = f"{path} has 'Device Minor: {text[:40]}', which is not a number; the GPU gets no CDI device"
        self._unreadable(path, message)
        return None

    def _gpu_nodes(self, index: int, address: str, minor: int) -> tuple[HostNode, ...]:
        """Return the GPU's nvidia node and DRM nodes, or an empty tuple if the nvidia node is unusable."""
        own, problem = self._nodes.read(f"/dev/nvidia{minor}", role="gpu", numbers=self._nodes.gpu(minor))
        if own is None:
            where = self._context.dev.host_path(f"/dev/nvidia{minor}")
            message = f"GPU {index} ({address}) gets no CDI device: {problem}"
            self.collector.add("error", "gpu-node-missing", where, message, self._nodes.remedy(problem))
            return ()
        nodes = [own]
        for drm_minor in drm.minors(self._context.host, f"{sysfs.PCI_DEVICES}/{address}"):
            # The kernel creates DRM nodes. Therefore, cdigen does not create them.
            numbers = drm.node_numbers(drm_minor.numbers, make=False)
            node, problem = self._nodes.read(
                drm_minor.path, role=drm_minor.role, capabilities=GRAPHICS, numbers=numbers
            )
            if node is not None:
                nodes.extend(drm.with_udev_names(node, self._udev_names))
                continue
            where = self._context.dev.host_path(drm_minor.path)
            message = f"GPU {index} ({address}): {problem}; graphics programs do not find the GPU"
            self.collector.add("warning", "drm-node-missing", where, message)
        return tuple(nodes)

    def _without_repetition(self, accelerators: list[Accelerator]) -> list[Accelerator]:
        """Remove repeated UUIDs, make GPUs with a repeated minor unusable, add findings; return the GPUs."""
        by_minor: dict[int, int] = {}
        by_uuid: dict[str, int] = {}
        served = []
        for each in accelerators:
            accelerator, problem = each, ""
            if each.minor is not None and by_minor.setdefault(each.minor, each.index) != each.index:
                problem = f"its minor number {each.minor} is also the number of GPU {by_minor[each.minor]}"
                accelerator = replace(each, nodes=(), partitions=(), usable=False, problem=problem)
            elif each.uuid is not None and by_uuid.setdefault(each.uuid, each.index) != each.index:
                problem = f"its UUID is also the UUID of GPU {by_uuid[each.uuid]}"
                accelerator = replace(each, uuid=None, problem=problem)
            if problem:
                message = f"GPU {each.index} ({each.address}): {problem}"
                hint = "the kernel module has failed: reload it or reboot"
                self.collector.add("error", "gpu-repeated", each.address, message, hint)
            served.append(accelerator)
        return served

    def _name_unbound(self, bound: tuple[tuple[str, str], ...], served: set[str]) -> None:
        for address, driver in bound:
            if driver == PCI_DRIVER or address in served:
                continue
            if driver:
                message = (
                    f"GPU {address} is bound to the driver {driver}, not to nvidia, and gets no CDI device"
                )
                self.collector.add("info", NOT_BOUND, address, message)
                continue
            message = f"GPU {address} is bound to no driver and gets no CDI device"
            self.collector.add("warning", NOT_BOUND, address, message, self._unbound_hint(address))

    def _unbound_hint(self, address: str) -> str:
        """Return the next step for the GPU at ADDRESS, which the loaded driver has not bound."""
        host = self._context.host
        number = flavour.device_number(host, address)
        if why := flavour.unsupported(read_driver(host).flavour, number):
            return why
        log = f"see 'dmesg | grep -e NVRM -e {address}'"
        # The kernel's Documentation/ABI/testing/sysfs-devices-removable.
        if read_line(host, f"{sysfs.PCI_DEVICES}/{address}/removable") != "removable":
            return log
        return f"if this external GPU was disconnected while the driver was loaded, reboot the host; {log}"

    def _with_nvml(self, accelerators: list[Accelerator]) -> list[Accelerator]:
        """Return ACCELERATORS with the values that only NVML has.

        These values are the UUID of a GPU before its first use, the MIG mode, and the names of MIG instances.
        The function queries NVML only if a GPU needs such a value, because the start of NVML can resume GPUs.
        """
        needs = [
            each
            for each in accelerators
            if each.usable
            and (each.uuid is None or (each.minor is not None and self._mig.has_mig(each.minor)))
        ]
        reply = self._probe() if needs else not_queried()
        answers = (reply.of(each.address).answer for each in accelerators)
        numbers = {answer.address: answer.index for answer in answers if answer and answer.address}
        for finding in differing(accelerators, numbers):
            self.collector.findings.append(finding)
        return [
            self._completed(each, reply.of(each.address)) if each.usable else each for each in accelerators
        ]

    def _completed(self, accelerator: Accelerator, reply: NvmlGpuReply) -> Accelerator:
        answer = reply.answer
        uuid = accelerator.uuid or (answer.uuid if answer and is_uuid(answer.uuid or "") else None)
        if uuid is None:
            self.collector.add(
                "warning",
                "uuid-unknown",
                f"{GPUS}/{accelerator.address}/information",
                f"GPU {accelerator.index} ({accelerator.address}) has no UUID yet; its CDI device has no "
                "name with the UUID",
                "run 'nvidia-smi -L': the driver reports the UUID after the first use of the GPU",
            )
        if uuid != accelerator.uuid:
            accelerator = replace(accelerator, uuid=uuid)
        return self._partitioned(accelerator, reply)

    def _names_before(self, gpu: Accelerator) -> tuple[PartitionName, ...]:
        """Return the last known names of the MIG instances of GPU."""
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
        """Return GPU with its MIG instances if MIG is on, else GPU. The sources are NVML and the kernel."""
        answer = reply.answer
        is_on = bool(answer and answer.mig_mode)
        if gpu.minor is None or not (is_on or self._mig.has_mig(gpu.minor)):
            return gpu
        before = self._names_before(gpu) if reply.unavailable_reason else ()
        partitions = self._mig.partitions(gpu.index, gpu.minor, reply, before)
        listed = self._mig.gpu_instances(gpu.minor)
        if not (is_on or listed):
            return gpu
        if not any(partition.usable for partition in partitions):
            has = (
                f"has no usable MIG instance: {partitions[0].problem}"
                if partitions
                else f"has {'GPU instances, but no usable MIG instance' if listed else 'no MIG instances'}"
            )
            self.collector.add(
                "warning",
                "mig-empty",
                gpu.address,
                f"GPU {gpu.index} ({gpu.address}) gets no CDI device: it is in MIG mode and {has}",
                self._nodes.remedy(partitions[0].problem)
                if partitions
                else f"create instances ('nvidia-smi mig -i {gpu.index} -cgi ... -C') or disable MIG mode",
            )
        return replace(gpu, partitioned=True, partitions=partitions)

    def _unreadable(self, path: str, message: str) -> None:
        hint = "see 'dmesg | grep NVRM' for the cause"
        self.collector.add("error", "gpu-information-unreadable", path, message, hint)


def _accelerator(
    index: int, address: str, minor: int | None, nodes: tuple[HostNode, ...], problem: str
) -> Accelerator:
    return Accelerator(
        index=index, address=address, model="", minor=minor, nodes=nodes, usable=bool(nodes), problem=problem
    )
