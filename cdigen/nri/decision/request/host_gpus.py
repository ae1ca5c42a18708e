"""``host_gpus_of``: pure functions for the NVIDIA GPUs of the host, their names and their properties."""

from __future__ import annotations

import re

from cdigen.model.names import full_pci_address
from cdigen.model.view import DEFAULT_KIND
from cdigen.nri.decision.request.refusal import InjectionRefusal
from cdigen.nri.decision.request.requirements import DriverFacts
from cdigen.value import frozen, replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.inventory import Accelerator, Inventory, Partition

# The vendor of the GPUs in NVIDIA_VISIBLE_DEVICES.
VENDOR = registry.vendor_of(DEFAULT_KIND, registry.VENDORS)
ALL = "all"
# The modes in which the driver is the kernel module nvidia. In these modes, the name of the device node ends
# with the minor number.
PCI_MODES = frozenset(("gpu", "management"))
# The start of the UUID of a GPU or a MIG instance.
_UUID_START = re.compile(r"(?:gpu|mig)-[0-9a-f][0-9a-f-]*", re.ASCII | re.IGNORECASE)
# The form of MIG UUIDs in drivers up to 460. It contains the GPU's UUID and the numbers of the instances.
_OLD_MIG = re.compile(r"mig-(gpu-[0-9a-f-]{36})/([0-9]{1,3})/([0-9]{1,3})", re.ASCII)


@frozen
class HostGpu:
    """A GPU or a MIG instance.

    ``names`` are the possible names in a spec, with the likely names first. ``nodes`` are the device nodes
    which prove that a container has the GPU. ``nodes`` is empty if the nodes are unknown. ``problem`` is the
    reason why no spec has the GPU. ``is_partitioned`` is true in MIG mode. ``instances`` are then the likely
    names of the MIG instances.
    """

    names: tuple[str, ...]
    facts: DriverFacts
    nodes: tuple[str, ...] = ()
    problem: str = ""
    is_partitioned: bool = False
    instances: tuple[str, ...] = ()


class HostGpus:
    """The GPUs of the host.

    ``problem`` is the reason why the GPUs are unknown. ``facts`` are the properties of the driver. ``models``
    has one usable GPU or MIG instance for each model. GPUs of one model have equal properties.
    """

    def __init__(
        self,
        *,
        problem: str = "",
        facts: DriverFacts | None = None,
        gpus: Iterable[HostGpu] = (),
    ) -> None:
        self.problem = problem
        self.facts = facts or DriverFacts()
        self.gpus = tuple(gpus)
        usable = [gpu for gpu in self.gpus if not gpu.problem and not gpu.is_partitioned]
        # If the nodes of one GPU are unknown, the nodes of all GPUs are unknown.
        known = all(gpu.nodes for gpu in usable)
        self._nodes = tuple(dict.fromkeys(node for gpu in usable for node in gpu.nodes)) if known else ()
        self.models = tuple({gpu.facts: gpu for gpu in reversed(usable)}.values())
        self._by_name: dict[str, HostGpu] = {}
        for gpu in self.gpus:
            for name in gpu.names:
                self._by_name.setdefault(name.lower(), gpu)

    def find(self, token: str, *, accepts_prefix: bool = False) -> HostGpu | None:
        """Return the GPU or MIG instance with the name TOKEN, or None.

        TOKEN is an index, a UUID, a PCI address or an older MIG UUID. If ACCEPTS_PREFIX is true, TOKEN may
        also be a unique start of a UUID.
        """
        if not self._by_name:
            return None
        found = self._by_name.get(token.lower()) or self._by_name.get(canonical(token))
        if (
            found is None
            and accepts_prefix
            and is_uuid_prefix(token)
            and len(uuids := self.uuids_with_prefix(token)) == 1
        ):
            return self._by_name[uuids[0].lower()]
        return found

    def uuids_with_prefix(self, token: str) -> tuple[str, ...]:
        """Return the UUIDs that start with TOKEN; upper and lower case are equal."""
        start = token.lower()
        return tuple(
            name
            for gpu in self.gpus
            for name in gpu.names
            if name.lower().startswith(start) and is_uuid_prefix(name)
        )

    def nodes(self, token: str, *, accepts_prefix: bool = False) -> tuple[str, ...]:
        """Return the device nodes of the GPU with the name TOKEN, or of all GPUs if TOKEN is ``all``.

        The result is empty if the nodes are unknown. ACCEPTS_PREFIX has the same meaning as for ``find``.
        """
        if token == ALL:
            return self._nodes
        gpu = self.find(token, accepts_prefix=accepts_prefix)
        return gpu.nodes if gpu else ()

    def require_known(self, requirements: tuple[tuple[str, str], ...]) -> None:
        """Raise InjectionRefusal for REQUIREMENTS (pairs of name and expression) if the GPUs are unknown."""
        if self.problem:
            names = ", ".join(name for name, _ in requirements[:3])
            raise InjectionRefusal("no_inventory", f"{names} cannot be checked: {self.problem}")


def is_uuid_prefix(token: str) -> bool:
    """Return whether TOKEN is a UUID or the start of a UUID.

    A unique start of a UUID identifies a GPU. CUDA_VISIBLE_DEVICES accepts such a start ("the first few
    characters of the UUID", docs.nvidia.com/deploy/mps, topic 5.2.1). nvidia-docker 1.0 also accepted a
    start. select_gpu_device of libnvidia-container accepts only whole UUIDs, in upper or lower case.
    """
    return bool(_UUID_START.fullmatch(token))


def canonical(token: str) -> str:
    """Return TOKEN in lower case; a PCI address is returned in the form of sysfs.

    An older MIG UUID is returned as ``UUID/giN/ciN``, with the UUID of the GPU.
    """
    lower = token.lower()
    if address := full_pci_address(lower):
        return address
    match = _OLD_MIG.fullmatch(lower)
    return f"{match[1]}/gi{int(match[2])}/ci{int(match[3])}" if match else lower


def host_gpus_of(inventory: Inventory | None, problem: str = "") -> HostGpus:
    """Return the GPUs in INVENTORY; PROBLEM is the reason if INVENTORY is None."""
    if inventory is None:
        return HostGpus(problem=problem or "the inventory has no NVIDIA GPUs")
    driver, api = inventory.driver.version, registry.driver_api(inventory.vendor)
    common = DriverFacts(cuda=api.version(inventory) if api else "", driver=driver)
    # In other modes, the minor number is not the number in the name of the device node.
    has_nodes = inventory.mode in PCI_MODES
    gpus: list[HostGpu] = []
    for gpu in inventory.accelerators:
        facts = common
        if api is not None:
            facts = replace(common, arch=api.architecture(gpu.model), brands=api.brands(gpu.model))
        nodes = (f"/dev/nvidia{gpu.minor}",) if has_nodes and gpu.minor is not None else ()
        instances = tuple(_instance(gpu, part, facts, nodes) for part in gpu.partitions)
        whole = HostGpu(
            names=_names(str(gpu.index), gpu.uuid, gpu.address, f"gpu{gpu.index}", _minor(gpu.minor)),
            facts=facts,
            nodes=nodes,
            problem="" if gpu.usable else gpu.problem or "the GPU cannot be used",
            is_partitioned=gpu.partitioned,
            instances=tuple(part.names[0] for part in instances),
        )
        gpus += [whole, *instances]
    return HostGpus(facts=common, gpus=gpus)


def _instance(gpu: Accelerator, part: Partition, facts: DriverFacts, nodes: tuple[str, ...]) -> HostGpu:
    index = f"{gpu.index}:{part.label}"
    uuid_470 = f"{gpu.uuid}/{part.instance}" if gpu.uuid else None
    return HostGpu(
        names=_names(index, part.uuid, f"mig{index}", uuid_470),
        facts=facts,
        nodes=(*nodes, *[node.path for node in part.nodes]) if nodes else (),
        problem="" if part.usable else part.problem or "the MIG instance cannot be used",
    )


def _minor(minor: int | None) -> str | None:
    return None if minor is None else f"minor{minor}"


def _names(*names: str | None) -> tuple[str, ...]:
    return tuple(name for name in names if name)
