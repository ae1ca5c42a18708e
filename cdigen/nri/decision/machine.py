"""The host's NVIDIA GPUs under every name, and their facts for requirements: ``machine_of``. Pure."""

from __future__ import annotations

import re

from cdigen.nri.decision.requirements import Facts
from cdigen.value import frozen
from cdigen.vendors.nvidia.cuda import served
from cdigen.vendors.nvidia.model_names import arch_of, brands_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.inventory import Accelerator, Inventory, Partition

VENDOR = "nvidia"
ALL = "all"
# Where the driver is the kernel module nvidia, minors are numbers of nodes.
PCI_MODES = frozenset(("gpu", "management"))
# 0000:65:00.0, as sysfs writes it; NVML's eight digits of a domain; without a domain, as lspci.
_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.ASCII)
# How a UUID may begin, of a GPU or an instance.
_UUID_START = re.compile(r"(?:gpu|mig)-[0-9a-f][0-9a-f-]*", re.ASCII | re.IGNORECASE)
# Of drivers up to 460: the GPU's UUID and the numbers of the instances.
_OLD_MIG = re.compile(r"mig-(gpu-[0-9a-f-]{36})/([0-9]{1,3})/([0-9]{1,3})", re.ASCII)


@frozen
class Gpu:
    """A GPU or a part of one: ``names`` it may have in a spec, the likely ones first.

    ``nodes`` are those that show that a container has it, none where that is not known. ``problem`` says why
    no spec has it; ``parts`` are the likely names of its instances in MIG mode.
    """

    names: tuple[str, ...]
    facts: Facts
    nodes: tuple[str, ...] = ()
    problem: str = ""
    is_partitioned: bool = False
    parts: tuple[str, ...] = ()


class Machine:
    """The host's GPUs; ``problem`` is empty where they are known, ``facts`` what is known of the driver."""

    def __init__(
        self, *, problem: str = "", facts: Facts | None = None, gpus: Iterable[Gpu] = (), driver: str = ""
    ) -> None:
        self.problem = problem
        self.facts = facts or Facts()
        self.gpus = tuple(gpus)
        self.driver = driver
        usable = [gpu for gpu in self.gpus if not gpu.problem and not gpu.is_partitioned]
        # None of a GPU that is not known means that not all are known.
        known = all(gpu.nodes for gpu in usable)
        self._nodes = tuple(dict.fromkeys(node for gpu in usable for node in gpu.nodes)) if known else ()
        self._models = tuple({gpu.facts: gpu for gpu in reversed(usable)}.values())
        self._by_name: dict[str, Gpu] = {}
        for gpu in self.gpus:
            for name in gpu.names:
                self._by_name.setdefault(name.lower(), gpu)

    def find(self, token: str, *, begun: bool = False) -> Gpu | None:
        """Return the GPU that TOKEN names: by index, UUID, PCI address or as MIG's older UUIDs did.

        BEGUN: the beginning of a UUID is enough where no other begins so.
        """
        if not self._by_name:
            return None
        found = self._by_name.get(token.lower()) or self._by_name.get(canonical(token))
        if found is None and begun and starts_uuid(token) and len(uuids := self.starting(token)) == 1:
            return self._by_name[uuids[0].lower()]
        return found

    def starting(self, token: str) -> tuple[str, ...]:
        """Return the UUIDs that begin with TOKEN, which is the beginning of one."""
        start = token.lower()
        return tuple(
            name
            for gpu in self.gpus
            for name in gpu.names
            if name.lower().startswith(start) and starts_uuid(name)
        )

    def nodes(self, token: str, *, begun: bool = False) -> tuple[str, ...]:
        """Return the nodes of the GPU that TOKEN names, of every GPU for ``all``; empty: not known.

        BEGUN is as for ``find``.
        """
        if token == ALL:
            return self._nodes
        gpu = self.find(token, begun=begun)
        return gpu.nodes if gpu else ()

    def models(self) -> tuple[Gpu, ...]:
        """Return one GPU or instance that a container can have for each model: their facts are alike."""
        return self._models


def starts_uuid(token: str) -> bool:
    """Return whether TOKEN is a UUID, or the beginning of one that names a GPU where no other begins so.

    So it is for CUDA_VISIBLE_DEVICES ("the first few characters of the UUID", docs.nvidia.com/deploy/mps,
    topic 5.2.1), and was in nvidia-docker 1.0; libnvidia-container's select_gpu_device takes whole UUIDs
    alone, in either case.
    """
    return bool(_UUID_START.fullmatch(token))


def canonical(token: str) -> str:
    """Return TOKEN in lower case, a PCI address as sysfs has it."""
    lower = token.lower()
    match = _PCI.fullmatch(lower)
    if match:
        domain, bus, device, function = match.groups()
        return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"
    match = _OLD_MIG.fullmatch(lower)
    return f"{match[1]}/gi{int(match[2])}/ci{int(match[3])}" if match else lower


def machine_of(inventory: Inventory | None, problem: str = "") -> Machine:
    """Return the machine with the GPUs of INVENTORY; without one PROBLEM says why."""
    if inventory is None:
        return Machine(problem=problem or "the inventory has no NVIDIA GPUs")
    driver = inventory.driver.version
    common = Facts(cuda=served(inventory), driver=driver)
    # Elsewhere minors are not the numbers of nodes.
    has_nodes = inventory.mode in PCI_MODES
    gpus: list[Gpu] = []
    for gpu in inventory.accelerators:
        facts = Facts(
            cuda=common.cuda, driver=common.driver, arch=arch_of(gpu.model), brands=brands_of(gpu.model)
        )
        nodes = (f"/dev/nvidia{gpu.minor}",) if has_nodes and gpu.minor is not None else ()
        parts = tuple(_part(gpu, part, facts, nodes) for part in gpu.partitions)
        whole = Gpu(
            names=_names(str(gpu.index), gpu.uuid, gpu.address, f"gpu{gpu.index}", _minor(gpu.minor)),
            facts=facts,
            nodes=nodes,
            problem="" if gpu.usable else gpu.problem or "it cannot be used",
            is_partitioned=gpu.partitioned,
            parts=tuple(part.names[0] for part in parts),
        )
        gpus += [whole, *parts]
    return Machine(facts=common, gpus=gpus, driver=driver)


def _part(gpu: Accelerator, part: Partition, facts: Facts, nodes: tuple[str, ...]) -> Gpu:
    index = f"{gpu.index}:{part.label}"
    old = f"{gpu.uuid}/{part.instance}" if gpu.uuid else None
    return Gpu(
        names=_names(index, part.uuid, f"mig{index}", old),
        facts=facts,
        nodes=(*nodes, *[node.path for node in part.nodes]) if nodes else (),
        problem="" if part.usable else part.problem or "it cannot be used",
    )


def _minor(minor: int | None) -> str | None:
    return None if minor is None else f"minor{minor}"


def _names(*names: str | None) -> tuple[str, ...]:
    return tuple(name for name in names if name)
