"""Read MIG instances from the kernel's capability files, with numbers and UUIDs from NVML.

Where it does not, the names that it gave before hold as long as the kernel has the same instances; others
are named for what they are. A number is never counted here: it could be another instance's tomorrow.

An instance is a pair of a GPU instance and a compute instance. A container needs the GPU's node and
the capability nodes of both; an instance that lacks one is left out, never offered in part. Source:
NVIDIA Multi-Instance GPU User Guide, "Device Nodes and Capabilities".
"""

from __future__ import annotations

from cdigen.model.findings import FindingCollector
from cdigen.model.inventory import Partition
from cdigen.model.partition_names import CONTRADICTION, PartitionName
from cdigen.vendors.nvidia import caps
from cdigen.vendors.nvidia.kernel_module import is_uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.nvidia.nodes import NvidiaNodeReader
    from cdigen.vendors.nvidia.nvml import NvmlGpuReply
    from cdigen.vendors.nvidia.nvml.document import NvmlGpu, NvmlMig

    # A GPU instance and a compute instance in it.
    Ids = tuple[int, int]


# The capabilities that all GPUs share; whoever has them administers MIG.
SHARED = ("config", "monitor")


class MigReader:
    """Reads the instances of one host."""

    def __init__(self, context: DiscoveryContext, nodes: NvidiaNodeReader) -> None:
        self._host = context.host
        self._nodes = nodes
        self.collector = FindingCollector()
        self._minors = caps.read_minors(context.host, self.collector)
        # Whose each capability minor is: opening its node grants what belongs to the first of these.
        self._owners = {self._minors[name]: name for name in SHARED if name in self._minors}
        self._uuids: set[str] = set()

    def has_mig(self, minor: int) -> bool:
        """Return whether the kernel shows MIG capabilities of the GPU with this minor."""
        return self._host.exists(f"{caps.CAPABILITIES}/gpu{minor}/mig")

    def gpu_instances(self, minor: int) -> list[int]:
        """Return the GPU instances that the kernel lists for the GPU with this minor."""
        return caps.numbered(self._host, f"gpu{minor}/mig", "gi")

    def partitions(
        self, index: int, minor: int, reply: NvmlGpuReply, before: tuple[PartitionName, ...] = ()
    ) -> tuple[Partition, ...]:
        """Return the instances of the GPU with this index and minor, in the order of their numbers.

        REPLY is what NVML says of the GPU, BEFORE the names that it gave its instances at last.
        """
        existing, answer = self._existing(minor), reply.answer
        is_answer = answer is not None and (not reply.silence or answer.migs or answer.mig_mode is False)
        if answer is not None and is_answer and self._contradicts_mode(index, minor, answer):
            return ()
        migs = self._without_repetition(index, answer.migs) if answer is not None else []
        names = {(mig.gpu_instance, mig.compute_instance): _name(mig) for mig in migs}
        self._compare(index, existing, list(names), is_whole=not reply.silence)
        if reply.silence:
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
        told: dict[Ids, PartitionName],
        reply: NvmlGpuReply,
        before: tuple[PartitionName, ...],
    ) -> dict[Ids, PartitionName]:
        """Return names of all EXISTING instances, of which NVML has TOLD some; say where they come from."""
        known = {name.instance: name for name in before}
        of_kernel = {ids: _instance(ids) for ids in existing}
        holds = (
            known.keys() == set(of_kernel.values())
            and all(known.get(name.instance, name) == name for name in told.values())
            and self._uuids.isdisjoint(
                name.uuid for name in before if name.uuid and name not in told.values()
            )
        )
        kept = known if holds else {}
        names = {
            ids: told.get(ids) or kept.get(instance) or _unnamed(instance)
            for ids, instance in of_kernel.items()
        }
        self._uuids.update(name.uuid for name in names.values() if name.uuid)
        unnamed = [name.instance for name in names.values() if name.index is None]
        if len(unnamed) + len(told.keys() & names.keys()) < len(names):
            self._silent(
                "mig-names-kept", index, reply, "its MIG instances keep the names that NVML gave before"
            )
        if unnamed:
            what = f"MIG instances without a number or UUID are named for what they are: {', '.join(unnamed)}"
            self._silent("mig-not-named", index, reply, what)
        return dict(sorted(names.items(), key=lambda pair: (pair[1].index is None, pair[1].index, pair[0])))

    def _silent(self, rule: str, index: int, reply: NvmlGpuReply, consequence: str) -> None:
        self.collector.add(
            "error" if reply.was_asked else "info",
            rule,
            f"GPU {index}",
            f"GPU {index}: {reply.silence}; {consequence}",
            "see whether 'nvidia-smi -L' answers" if reply.was_asked else "",
        )

    def _existing(self, minor: int) -> list[Ids]:
        folder = f"gpu{minor}/mig"
        return [
            (gi, ci)
            for gi in self.gpu_instances(minor)
            for ci in caps.numbered(self._host, f"{folder}/gi{gi}", "ci")
        ]

    def _contradicts_mode(self, index: int, minor: int, answer: NvmlGpu) -> bool:
        """Return whether kernel and NVML disagree on whether the GPU is in MIG mode at all; say so."""
        listed = self.gpu_instances(minor)
        if listed and not answer.mig_mode:
            instances = ", ".join(f"gi{gi}" for gi in listed)
            what = f"the kernel lists its GPU instances {instances}, NVML has MIG off"
        elif answer.mig_mode and not self.has_mig(minor):
            what = "NVML has MIG on, the kernel shows no MIG capabilities of it"
        else:
            return False
        self.collector.add(
            "error",
            CONTRADICTION,
            f"GPU {index}",
            f"GPU {index} is not offered as a whole, and none of its MIG instances is: {what}",
            "run it again when MIG is no longer being switched",
        )
        return True

    def _without_repetition(self, index: int, migs: tuple[NvmlMig, ...]) -> list[NvmlMig]:
        """Return those of MIGS that are the first of their ids and, on all GPUs, of their UUID."""
        kept: dict[Ids, NvmlMig] = {}
        for mig in migs:
            ids = mig.gpu_instance, mig.compute_instance
            if ids in kept:
                self._contradiction(index, *ids, f"NVML names it as {index}:{kept[ids].index} already")
            elif mig.uuid in self._uuids:
                self._contradiction(index, *ids, f"NVML has its UUID {mig.uuid} twice")
            else:
                self._uuids.add(mig.uuid)
                kept[ids] = mig
        return list(kept.values())

    def _compare(self, index: int, kernel: list[Ids], nvml: list[Ids], *, is_whole: bool) -> None:
        """Say what only one of them has; an NVML that has not told all (IS_WHOLE) may have more."""
        for gi, ci in kernel:
            if is_whole and (gi, ci) not in nvml:
                self._contradiction(index, gi, ci, "the kernel has it, NVML does not")
        for gi, ci in nvml:
            if (gi, ci) not in kernel:
                self._contradiction(index, gi, ci, "NVML has it, the kernel does not")

    def _contradiction(self, index: int, gi: int, ci: int, what: str) -> None:
        self.collector.add(
            "error",
            CONTRADICTION,
            f"GPU {index}",
            f"MIG instance gi{gi}/ci{ci} of GPU {index} is left out: {what}",
            "run it again when the instances are no longer being changed",
        )

    def _partition(
        self, gpu: tuple[int, int], ids: Ids, name: PartitionName, memory_mib: int | None
    ) -> Partition:
        (index, minor), (gi, ci) = gpu, ids
        # Both are looked at in any case, so that both are known where they have to be made.
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
                f"MIG instance {called} (gi{gi}/ci{ci}) gets no device: {problem}",
                "'nvidia-smi' makes the nodes, and so does 'create_nodes: true' in the configuration",
            )
        return partition

    def _capability_node(self, minor: int, below: str) -> tuple[HostNode | None, str]:
        """Return the node of a capability, or what is wrong: minors that differ, a node that is missing."""
        name = f"gpu{minor}/{below}/access"
        path = f"{caps.CAPABILITIES}/gpu{minor}/mig/{below}/access"
        own, mode, problem = caps.read_minor(self._host, path, self._minors.get(name), self.collector)
        if own is None:
            return None, problem
        owner = self._owners.setdefault(own, name)
        if owner != name:
            return None, f"the minor {own} of {below} is that of {owner.removesuffix('/access')} as well"
        return caps.read_node(self._nodes, own, mode)


def _instance(ids: Ids) -> str:
    return f"gi{ids[0]}/ci{ids[1]}"


def _name(mig: NvmlMig) -> PartitionName:
    return PartitionName(
        instance=_instance((mig.gpu_instance, mig.compute_instance)),
        index=mig.index,
        # Older drivers' UUIDs (MIG-GPU-.../gi/ci) can be no device's name.
        uuid=mig.uuid if is_uuid(mig.uuid, "MIG") else None,
        profile=mig.profile,
        graphics=mig.graphics,
    )


def _unnamed(instance: str) -> PartitionName:
    return PartitionName(instance=instance, index=None, uuid=None, profile="", graphics=False)
