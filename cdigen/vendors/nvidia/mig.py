"""MIG instances: from the kernel's capability files, with NVML's numbers and UUIDs where it answers.

An instance is a pair of a GPU instance and a compute instance. A container needs the GPU's node and
the capability nodes of both; an instance that lacks one is left out, never offered in part. Source:
NVIDIA Multi-Instance GPU User Guide, "Device Nodes and Capabilities".
"""

from __future__ import annotations

from cdigen.host.root import reason
from cdigen.model.findings import Finding
from cdigen.model.inventory import Partition
from cdigen.vendors.nvidia import caps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Severity
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.base import Places
    from cdigen.vendors.nvidia.nodes import NodeReader
    from cdigen.vendors.nvidia.nvml import NvmlGpu, NvmlMig


class MigReader:
    """Reads the instances of one look at the host."""

    def __init__(self, places: Places, nodes: NodeReader) -> None:
        self._host = places.host
        self._nodes = nodes
        self._minors, findings = caps.read_minors(places.host)
        self.findings: list[Finding] = list(findings)

    def has_mig(self, minor: int) -> bool:
        """Return whether the kernel shows MIG capabilities of the GPU with this minor."""
        return self._host.exists(f"{caps.CAPABILITIES}/gpu{minor}/mig")

    def partitions(self, index: int, minor: int, answer: NvmlGpu | None) -> tuple[Partition, ...]:
        """Return the instances of the GPU with this index and minor.

        ANSWER is what NVML says of the GPU, None where it was not asked or did not answer: then the
        instances are numbered in the order of their ids and have no UUID.
        """
        existing = self._existing(minor)
        if answer is None:
            known: list[tuple[int, tuple[int, int], NvmlMig | None]] = [
                (number, ids, None) for number, ids in enumerate(existing)
            ]
            if known:
                self._say(
                    "info",
                    "mig-not-named",
                    f"GPU {index}",
                    f"GPU {index}: NVML was not asked; MIG instances have no UUIDs and count by their ids",
                )
        else:
            known = [(mig.index, (mig.gpu_instance, mig.compute_instance), mig) for mig in answer.migs]
            self._compare(index, existing, [ids for _, ids, _ in known])
        return tuple(
            self._partition((index, minor), number, ids, mig) for number, ids, mig in known if ids in existing
        )

    def _existing(self, minor: int) -> list[tuple[int, int]]:
        folder = f"gpu{minor}/mig"
        return [
            (gi, ci)
            for gi in caps.numbered(self._host, folder, "gi")
            for ci in caps.numbered(self._host, f"{folder}/gi{gi}", "ci")
        ]

    def _compare(self, index: int, kernel: list[tuple[int, int]], nvml: list[tuple[int, int]]) -> None:
        for gi, ci in kernel:
            if (gi, ci) not in nvml:
                self._contradiction(index, gi, ci, "the kernel has it, NVML does not")
        for gi, ci in nvml:
            if (gi, ci) not in kernel:
                self._contradiction(index, gi, ci, "NVML has it, the kernel does not")

    def _contradiction(self, index: int, gi: int, ci: int, what: str) -> None:
        self._say(
            "warning",
            "mig-contradiction",
            f"GPU {index}",
            f"MIG instance gi{gi}/ci{ci} of GPU {index} is left out: {what}",
            "run it again when the instances are no longer being changed",
        )

    def _partition(
        self, gpu: tuple[int, int], number: int, ids: tuple[int, int], mig: NvmlMig | None
    ) -> Partition:
        (index, minor), (gi, ci) = gpu, ids
        # Both are looked at in any case, so that both are known where they have to be made.
        read = [self._capability_node(minor, below) for below in (f"gi{gi}", f"gi{gi}/ci{ci}")]
        nodes = [node for node, _ in read if node is not None]
        problem = next((problem for node, problem in read if node is None), "")
        if problem:
            self._say(
                "error",
                "mig-instance-unusable",
                f"{index}:{number}",
                f"MIG instance {index}:{number} (gi{gi}/ci{ci}) gets no device: {problem}",
                "'nvidia-smi' makes the nodes, and so does 'create_nodes: true' in the configuration",
            )
        return Partition(
            index=number,
            uuid=mig.uuid if mig else None,
            profile=mig.profile if mig else "",
            instance=f"gi{gi}/ci{ci}",
            graphics=bool(mig and mig.graphics),
            nodes=tuple(nodes),
            usable=not problem,
            problem=problem,
        )

    def _capability_node(self, minor: int, below: str) -> tuple[HostNode | None, str]:
        """Return the node of a capability, or what is wrong: minors that differ, a node that is missing."""
        listed = self._minors.get(f"gpu{minor}/{below}/access")
        try:
            access = caps.read_access(self._host, f"gpu{minor}/mig/{below}")
        except OSError as error:
            if listed is None:
                return None, f"the access file of {below} cannot be read: {reason(error)}"
            access = {}
        own = access.get("DeviceFileMinor", listed)
        if own is None:
            return None, f"the kernel does not tell the minor of {below}"
        if listed is not None and own != listed:
            return None, f"the minor of {below} is {own} in its access file and {listed} in mig-minors"
        return self._nodes.read(
            caps.node_path(own),
            role="capability",
            numbers=self._nodes.of(caps.DRIVER_NAME, own),
            mode=access.get("DeviceFileMode"),
        )

    def _say(self, severity: Severity, rule: str, path: str, message: str, hint: str = "") -> None:
        self.findings.append(Finding(severity=severity, rule=rule, path=path, message=message, hint=hint))
