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
from cdigen.vendors.nvidia.kernel import is_uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Severity
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.base import Places
    from cdigen.vendors.nvidia.nodes import NodeReader
    from cdigen.vendors.nvidia.nvml import NvmlGpu, NvmlMig


# The capabilities that all GPUs share; whoever has them administers MIG.
SHARED = ("config", "monitor")


class MigReader:
    """Reads the instances of one look at the host."""

    def __init__(self, places: Places, nodes: NodeReader) -> None:
        self._host = places.host
        self._nodes = nodes
        self._minors, findings = caps.read_minors(places.host)
        self.findings: list[Finding] = list(findings)
        # Whose each capability minor is: opening its node grants what belongs to the first of these.
        self._owners = {self._minors[name]: name for name in SHARED if name in self._minors}
        self._uuids: set[str] = set()

    def has_mig(self, minor: int) -> bool:
        """Return whether the kernel shows MIG capabilities of the GPU with this minor."""
        return self._host.exists(f"{caps.CAPABILITIES}/gpu{minor}/mig")

    def gpu_instances(self, minor: int) -> list[int]:
        """Return the GPU instances that the kernel lists for the GPU with this minor."""
        return caps.numbered(self._host, f"gpu{minor}/mig", "gi")

    def partitions(self, index: int, minor: int, answer: NvmlGpu | None) -> tuple[Partition, ...]:
        """Return the instances of the GPU with this index and minor.

        ANSWER is what NVML says of the GPU, None where it was not asked or did not answer: then the
        instances are numbered in the order of their ids and have no UUID. Those of which NVML fails to
        tell are left out: their number is not known.
        """
        existing = self._existing(minor)
        if answer is None or (answer.error and not answer.migs and answer.mig_mode is not False):
            known: list[tuple[int, tuple[int, int], NvmlMig | None]] = [
                (number, ids, None) for number, ids in enumerate(existing)
            ]
            if known:
                self._say(
                    "info",
                    "mig-not-named",
                    f"GPU {index}",
                    f"GPU {index}: NVML {'was not asked' if answer is None else 'does not name them'}; MIG "
                    "instances have no UUIDs and count by their ids",
                )
        elif self._contradicts_mode(index, minor, answer):
            known = []
        else:
            known = [
                (mig.index, (mig.gpu_instance, mig.compute_instance), mig)
                for mig in self._without_repetition(index, answer.migs)
            ]
            self._compare(index, existing, [ids for _, ids, _ in known], fails=bool(answer.error))
        return tuple(
            self._partition((index, minor), number, ids, mig) for number, ids, mig in known if ids in existing
        )

    def _existing(self, minor: int) -> list[tuple[int, int]]:
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
        self._say(
            "warning",
            "mig-contradiction",
            f"GPU {index}",
            f"GPU {index} is not offered as a whole, and none of its MIG instances is: {what}",
            "run it again when MIG is no longer being switched",
        )
        return True

    def _without_repetition(self, index: int, migs: tuple[NvmlMig, ...]) -> list[NvmlMig]:
        """Return those of MIGS that are the first of their ids and, on all GPUs, of their UUID."""
        kept: dict[tuple[int, int], NvmlMig] = {}
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

    def _compare(
        self, index: int, kernel: list[tuple[int, int]], nvml: list[tuple[int, int]], *, fails: bool
    ) -> None:
        for gi, ci in kernel:
            if (gi, ci) not in nvml:
                does = "fails to tell all about this GPU" if fails else "does not"
                self._contradiction(index, gi, ci, f"the kernel has it, NVML {does}")
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
            # Older drivers' UUIDs (MIG-GPU-.../gi/ci) can be no device's name.
            uuid=mig.uuid if mig and is_uuid(mig.uuid, "MIG") else None,
            profile=mig.profile if mig else "",
            instance=f"gi{gi}/ci{ci}",
            graphics=bool(mig and mig.graphics),
            nodes=tuple(nodes),
            usable=not problem,
            problem=problem,
        )

    def _capability_node(self, minor: int, below: str) -> tuple[HostNode | None, str]:
        """Return the node of a capability, or what is wrong: minors that differ, a node that is missing."""
        name = f"gpu{minor}/{below}/access"
        listed = self._minors.get(name)
        try:
            access, findings = caps.read_access(
                self._host, caps.access_path(f"gpu{minor}/mig/{below}"), listed
            )
        except OSError as error:
            return None, f"the access file of {below} cannot be read: {reason(error)}"
        # Compute instances of one GPU instance share its file.
        self.findings.extend(finding for finding in findings if finding not in self.findings)
        own = access.get("DeviceFileMinor", listed)
        if own is None:
            return None, f"the kernel does not tell the minor of {below}"
        if listed is not None and own != listed:
            return None, f"the minor of {below} is {own} in its access file and {listed} in mig-minors"
        owner = self._owners.setdefault(own, name)
        if owner != name:
            return None, f"the minor {own} of {below} is that of {owner.removesuffix('/access')} as well"
        return self._nodes.read(
            caps.node_path(own),
            role="capability",
            numbers=self._nodes.of(caps.DRIVER_NAME, own),
            mode=access.get("DeviceFileMode"),
        )

    def _say(self, severity: Severity, rule: str, path: str, message: str, hint: str = "") -> None:
        self.findings.append(Finding(severity=severity, rule=rule, path=path, message=message, hint=hint))
