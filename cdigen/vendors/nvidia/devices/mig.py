"""Read MIG instances from the driver's capability files in /proc, and their numbers and UUIDs from NVML.

If NVML does not answer, the instances keep their last known names, as long as the kernel lists the same
instances. If there are no such names, cdigen names the instances by their ids. cdigen does not assign
numbers, because NVML may later report the same number for another instance.

A MIG instance is a pair of a GPU instance and a compute instance. A container needs the GPU's node and the
capability nodes of both instances (NVIDIA Multi-Instance GPU User Guide, "Device Nodes and Capabilities"). If
a node cannot be used, cdigen does not offer the MIG instance.
"""

from __future__ import annotations

from cdigen.model.findings import FindingCollector
from cdigen.model.inventory import Partition
from cdigen.model.saved import CONTRADICTION, PartitionName
from cdigen.vendors.nvidia.devices import caps
from cdigen.vendors.nvidia.kernel_module import is_uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.nvidia.devices.nodes import NvidiaNodeReader
    from cdigen.vendors.nvidia.nvml import NvmlGpuReply
    from cdigen.vendors.nvidia.nvml.document import NvmlGpu, NvmlMig

    # The id of a GPU instance, and the id of a compute instance in this GPU instance.
    Ids = tuple[int, int]


# The capabilities for the administration of MIG. They apply to all GPUs.
SHARED = ("config", "monitor")


class MigReader:
    """Reads the MIG instances of one host."""

    def __init__(self, context: DiscoveryContext, nodes: NvidiaNodeReader) -> None:
        self._host = context.host
        self._nodes = nodes
        self.collector = FindingCollector()
        self._minors = caps.read_minors(context.host, self.collector)
        # Minor of a capability -> name of the first capability with this minor. A process that opens the node
        # with this minor gets this capability.
        self._owners = {self._minors[name]: name for name in SHARED if name in self._minors}
        self._uuids: set[str] = set()

    def has_mig(self, minor: int) -> bool:
        """Return whether /proc has MIG capabilities for the GPU with the minor number MINOR."""
        return self._host.exists(f"{caps.CAPABILITIES}/gpu{minor}/mig")

    def gpu_instances(self, minor: int) -> list[int]:
        """Return the ids of the GPU instances in /proc for the GPU with the minor number MINOR."""
        return caps.numbered(self._host, f"gpu{minor}/mig", "gi")

    def partitions(
        self, index: int, minor: int, reply: NvmlGpuReply, before: tuple[PartitionName, ...] = ()
    ) -> tuple[Partition, ...]:
        """Return the MIG instances of the GPU with INDEX and MINOR, in the order of their numbers.

        REPLY is NVML's reply for the GPU. BEFORE are the last known names of the GPU's instances.
        """
        existing, answer = self._existing(minor), reply.answer
        is_answer = answer is not None and (
            not reply.unavailable_reason or answer.migs or answer.mig_mode is False
        )
        if answer is not None and is_answer and self._contradicts_mode(index, minor, answer):
            return ()
        migs = self._without_repetition(index, answer.migs) if answer is not None else []
        names = {(mig.gpu_instance, mig.compute_instance): _name(mig) for mig in migs}
        self._compare(index, existing, list(names), is_whole=not reply.unavailable_reason)
        if reply.unavailable_reason:
            names = self._completed(index, existing, names, reply, before)
        sizes = {(mig.gpu_instance, mig.compute_instance): mig.memory_mib for mig in migs}
        return tuple(
            self._partition((index, minor), ids, name, sizes.get(ids))
            for ids, name in names.items()
            if ids in existing
        )

    def _completed(
        self,
        index: int,
        existing: list[Ids],
        names_by_nvml: dict[Ids, PartitionName],
        reply: NvmlGpuReply,
        before: tuple[PartitionName, ...],
    ) -> dict[Ids, PartitionName]:
        """Return the names of all instances in EXISTING.

        A name is from NVML, from the last known names (BEFORE), or consists of the instance's ids. The
        function adds a finding if some names are not from NVML.
        """
        known = {name.instance: name for name in before}
        of_kernel = {ids: _instance(ids) for ids in existing}
        holds = (
            known.keys() == set(of_kernel.values())
            and all(known.get(name.instance, name) == name for name in names_by_nvml.values())
            and self._uuids.isdisjoint(
                name.uuid for name in before if name.uuid and name not in names_by_nvml.values()
            )
        )
        kept = known if holds else {}
        names = {
            ids: names_by_nvml.get(ids) or kept.get(instance) or _unnamed(instance)
            for ids, instance in of_kernel.items()
        }
        self._uuids.update(name.uuid for name in names.values() if name.uuid)
        unnamed = [name.instance for name in names.values() if name.index is None]
        if len(unnamed) + len(names_by_nvml.keys() & names.keys()) < len(names):
            self._report_unavailable(
                "mig-names-kept", index, reply, "its MIG instances keep their last known names from NVML"
            )
        if unnamed:
            what = f"MIG instances without a number or UUID are named by their ids: {', '.join(unnamed)}"
            self._report_unavailable("mig-not-named", index, reply, what)
        return dict(sorted(names.items(), key=lambda pair: (pair[1].index is None, pair[1].index, pair[0])))

    def _report_unavailable(self, rule: str, index: int, reply: NvmlGpuReply, consequence: str) -> None:
        self.collector.add(
            "error" if reply.was_queried else "info",
            rule,
            f"GPU {index}",
            f"GPU {index}: {reply.unavailable_reason}; {consequence}",
            "run 'nvidia-smi -L' and see its error" if reply.was_queried else "",
        )

    def _existing(self, minor: int) -> list[Ids]:
        folder = f"gpu{minor}/mig"
        return [
            (gi, ci)
            for gi in self.gpu_instances(minor)
            for ci in caps.numbered(self._host, f"{folder}/gi{gi}", "ci")
        ]

    def _contradicts_mode(self, index: int, minor: int, answer: NvmlGpu) -> bool:
        """Return whether the kernel and NVML report different MIG modes; if so, add a finding."""
        listed = self.gpu_instances(minor)
        if listed and not answer.mig_mode:
            instances = ", ".join(f"gi{gi}" for gi in listed)
            what = f"the kernel lists the GPU instances {instances}, but NVML reports that MIG mode is off"
        elif answer.mig_mode and not self.has_mig(minor):
            what = "NVML reports that MIG mode is on, but the kernel has no MIG capabilities for this GPU"
        else:
            return False
        self.collector.add(
            "error",
            CONTRADICTION,
            f"GPU {index}",
            f"GPU {index} and its MIG instances get no CDI devices: {what}",
            "if the MIG mode is being changed, run the command again later",
        )
        return True

    def _without_repetition(self, index: int, migs: tuple[NvmlMig, ...]) -> list[NvmlMig]:
        """Return MIGS without instances that repeat ids of this GPU, or a UUID of any GPU; add findings."""
        kept: dict[Ids, NvmlMig] = {}
        for mig in migs:
            ids = mig.gpu_instance, mig.compute_instance
            if ids in kept:
                self._contradiction(
                    index, *ids, f"NVML also lists this instance as {index}:{kept[ids].index}"
                )
            elif mig.uuid in self._uuids:
                self._contradiction(index, *ids, f"NVML reports the UUID {mig.uuid} twice")
            else:
                self._uuids.add(mig.uuid)
                kept[ids] = mig
        return list(kept.values())

    def _compare(self, index: int, kernel: list[Ids], nvml: list[Ids], *, is_whole: bool) -> None:
        """Add findings for instances that only the kernel or only NVML lists.

        If IS_WHOLE is false, NVML's reply is incomplete. In this case, instances that only the kernel lists
        are not reported.
        """
        for gi, ci in kernel:
            if is_whole and (gi, ci) not in nvml:
                self._contradiction(index, gi, ci, "the kernel lists this instance, but NVML does not")
        for gi, ci in nvml:
            if (gi, ci) not in kernel:
                self._contradiction(index, gi, ci, "NVML lists this instance, but the kernel does not")

    def _contradiction(self, index: int, gi: int, ci: int, what: str) -> None:
        self.collector.add(
            "error",
            CONTRADICTION,
            f"GPU {index}",
            f"MIG instance gi{gi}/ci{ci} of GPU {index} is left out: {what}",
            "if the MIG instances are being changed, run the command again later",
        )

    def _partition(
        self, gpu: tuple[int, int], ids: Ids, name: PartitionName, memory_mib: int | None
    ) -> Partition:
        (index, minor), (gi, ci) = gpu, ids
        # The reader reads both nodes even if the first node is missing. cdigen can then create both nodes.
        read = [self._capability_node(minor, below) for below in (f"gi{gi}", f"gi{gi}/ci{ci}")]
        nodes = [node for node, _ in read if node is not None]
        problem = next((problem for node, problem in read if node is None), "")
        partition = Partition(
            index=name.index,
            uuid=name.uuid,
            profile=name.profile,
            instance=name.instance,
            graphics=name.graphics,
            nodes=tuple(nodes),
            usable=not problem,
            problem=problem,
            memory_mib=memory_mib,
        )
        if problem:
            called = f"{index}:{partition.label}"
            self.collector.add(
                "error",
                "mig-instance-unusable",
                called,
                f"MIG instance {called} (gi{gi}/ci{ci}) gets no CDI device: {problem}",
                self._nodes.remedy(problem),
            )
        return partition

    def _capability_node(self, minor: int, below: str) -> tuple[HostNode | None, str]:
        """Return (node, "") for the capability BELOW, or (None, problem).

        BELOW is the capability's path below the folder ``mig`` of the GPU, such as ``gi9/ci0``.
        """
        name = f"gpu{minor}/{below}/access"
        path = f"{caps.CAPABILITIES}/gpu{minor}/mig/{below}/access"
        capability, problem = caps.read_capability(self._host, path, self._minors.get(name), self.collector)
        if capability is None:
            return None, problem
        owner = self._owners.setdefault(capability.minor, name)
        if owner != name:
            also = owner.removesuffix("/access")
            return None, f"the minor {capability.minor} of {below} is also the minor of {also}"
        return caps.read_node(self._nodes, capability)


def _instance(ids: Ids) -> str:
    return f"gi{ids[0]}/ci{ids[1]}"


def _name(mig: NvmlMig) -> PartitionName:
    return PartitionName(
        instance=_instance((mig.gpu_instance, mig.compute_instance)),
        index=mig.index,
        # The UUIDs of older drivers (MIG-GPU-.../gi/ci) are not valid device names.
        uuid=mig.uuid if is_uuid(mig.uuid, "MIG") else None,
        profile=mig.profile,
        graphics=mig.graphics,
    )


def _unnamed(instance: str) -> PartitionName:
    return PartitionName(instance=instance, index=None, uuid=None, profile="", graphics=False)
