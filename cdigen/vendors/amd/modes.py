"""Read how a GPU is partitioned, and report where KFD and the kernel's files disagree.

``current_compute_partition`` and ``current_memory_partition`` have a word each (amdgpu_gfx.c, amdgpu_gmc.c).
The word and KFD's topology do not change together: between the two, a GPU says how it is split and KFD has
none of its parts, or not all.
"""

from __future__ import annotations

from cdigen.host.procfs import read_line, read_text
from cdigen.host.root import reason
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.model.findings import FindingCollector
    from cdigen.vendors.amd.listing import NumberedDevice

WHOLE = "SPX"
# How many devices a GPU is in each mode; in CPX it depends on the GPU: as many as it has compute dies.
COMPUTE_MODES: dict[str, int | None] = {WHOLE: 1, "DPX": 2, "TPX": 3, "QPX": 4, "CPX": None}
MEMORY_MODES = ("NPS1", "NPS2", "NPS3", "NPS4", "NPS6", "NPS8")
HINT = "is it being split right now? look again with 'cdigen inspect'; see 'dmesg | grep -e amdgpu -e kfd'"


@frozen
class PartitionModes:
    """How a GPU is split, in the kernel's words; empty where it cannot be, or does not say.

    ``can_split`` says that the kernel has a word for it, understood or not. GPUs of one ``device_id``, PCI's
    number of it, are split alike.
    """

    compute: str
    memory: str
    can_split: bool = False
    device_id: str = ""

    @property
    def profile(self) -> str:
        """The name of a partition's size as AMD's Kubernetes plugin has it: ``cpx_nps1``."""
        return "_".join(word.lower() for word in (self.compute, self.memory) if word)

    @property
    def is_split(self) -> bool:
        """Whether the GPU says that it is several devices."""
        return self.compute not in {"", WHOLE}


NO_MODES = PartitionModes(compute="", memory="")


def read_modes(host: Root, collector: FindingCollector, address: str, folder: str) -> PartitionModes:
    """Read how the GPU at ADDRESS, with its FOLDER in /sys, is split; a word that is none is a finding."""
    if not host.exists(folder):
        return NO_MODES
    return PartitionModes(
        compute=_mode(host, collector, address, f"{folder}/current_compute_partition", tuple(COMPUTE_MODES)),
        memory=_mode(host, collector, address, f"{folder}/current_memory_partition", MEMORY_MODES),
        can_split=host.exists(f"{folder}/current_compute_partition"),
        device_id=read_line(host, f"{folder}/device"),
    )


def _mode(host: Root, collector: FindingCollector, address: str, path: str, known: tuple[str, ...]) -> str:
    try:
        word = read_text(host, path).strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        problem = f"cannot be read: {reason(error)}"
    else:
        if word.upper() in known:
            return word.upper()
        problem = f"says {word[:40]!a}, which is none of {', '.join(known)}"
    text = f"GPU {address}: {path} {problem}; it is offered as it is found"
    collector.add("warning", "partition-unknown", path, text)
    return ""


def report_contradictions(
    collector: FindingCollector, gpus: Mapping[str, list[NumberedDevice]], modes: Mapping[str, PartitionModes]
) -> None:
    """Say of which of GPUS KFD has not as many devices as they say, or as others of their kind have."""
    most: dict[PartitionModes, int] = {}
    for address, entries in gpus.items():
        most[modes[address]] = max(most.get(modes[address], 0), _known(entries))
    for address, entries in gpus.items():
        said, known = modes[address], _known(entries)
        # Of a partition that is listed and that KFD does not know, there is a finding of its own.
        if not said.can_split or 0 < known < len(entries):
            continue
        folder = next(entry.device.folder for entry in entries if entry.device.slot is not None)
        path = f"{folder}/current_compute_partition"
        wanted = COMPUTE_MODES.get(said.compute)
        if not known or known != (wanted or known):
            word = f"says {said.compute}" if said.compute else "can be split"
            text = f"GPU {address} {word}, but KFD {_has(known)}"
            collector.add("error", "partition-contradiction", path, text, HINT)
        elif known < most[said]:
            # amdsmi issue 99: a fault of single GPUs in large fleets.
            text = (
                f"GPU {address} has {known} partitions in {said.compute}, others of its kind have "
                f"{most[said]}; what there is is offered, and counted as AMD's tools count it"
            )
            collector.add("error", "partition-missing", path, text, HINT)


def _known(entries: list[NumberedDevice]) -> int:
    return sum(entry.node is not None for entry in entries)


def _has(known: int) -> str:
    if not known:
        return "knows no part of it; it gets no device"
    return (
        f"has {known} partitions of it, which are offered" if known > 1 else "has one part, which is offered"
    )
