"""Read the partition modes of a GPU, and report differences between the modes and KFD's topology.

``current_compute_partition`` and ``current_memory_partition`` contain one word each (amdgpu_gfx.c,
amdgpu_gmc.c). The word and KFD's topology do not change at the same time. During a change, the file may
already contain the new mode while KFD lists only some or none of the partitions.
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
# Compute mode -> number of devices of the GPU. In CPX, it is the GPU's number of compute dies.
COMPUTE_MODES: dict[str, int | None] = {WHOLE: 1, "DPX": 2, "TPX": 3, "QPX": 4, "CPX": None}
MEMORY_MODES = ("NPS1", "NPS2", "NPS3", "NPS4", "NPS6", "NPS8")
HINT = "run 'cdigen inspect' after a mode change ends; see 'dmesg | grep -e amdgpu -e kfd'"


@frozen
class PartitionModes:
    """The partition modes of a GPU, in the kernel's words.

    A mode is empty if the GPU has no mode or an unknown mode. ``can_split`` is true if the kernel has a file
    with the compute mode. ``device_id`` is the PCI device number. GPUs with the same number and the same
    modes have the same number of partitions.
    """

    compute: str
    memory: str
    can_split: bool = False
    device_id: str = ""

    @property
    def profile(self) -> str:
        """The name of a partition's profile in AMD's Kubernetes plugin, such as ``cpx_nps1``."""
        return "_".join(word.lower() for word in (self.compute, self.memory) if word)

    @property
    def is_split(self) -> bool:
        """Whether the GPU's compute mode splits the GPU into several devices."""
        return self.compute not in {"", WHOLE}


NO_MODES = PartitionModes(compute="", memory="")


def read_modes(host: Root, collector: FindingCollector, address: str, folder: str) -> PartitionModes:
    """Return the modes of the GPU at ADDRESS; add a finding for each unknown word.

    FOLDER is the folder of the GPU in /sys.
    """
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
        problem = f"contains an unknown mode {word[:40]!a} (known: {', '.join(known)})"
    text = f"GPU {address}: {path} {problem}; cdigen uses the existing devices of the GPU"
    collector.add("warning", "partition-unknown", path, text)
    return ""


def report_contradictions(
    collector: FindingCollector, gpus: Mapping[str, list[NumberedDevice]], modes: Mapping[str, PartitionModes]
) -> None:
    """Add a finding for each GPU with a wrong number of devices in KFD.

    The number is wrong if the mode of the GPU requires a different number, or if another GPU of the same type
    and mode has more devices.
    """
    most: dict[PartitionModes, int] = {}
    for address, entries in gpus.items():
        most[modes[address]] = max(most.get(modes[address], 0), _known(entries))
    for address, entries in gpus.items():
        mode, known = modes[address], _known(entries)
        # If KFD does not list some of the GPU's devices, there is a separate finding for each of them.
        if not mode.can_split or 0 < known < len(entries):
            continue
        folder = next(entry.device.folder for entry in entries if entry.device.slot is not None)
        path = f"{folder}/current_compute_partition"
        expected = COMPUTE_MODES.get(mode.compute)
        if not known or known != (expected or known):
            word = f"is in mode {mode.compute}" if mode.compute else "can be partitioned"
            text = f"GPU {address} {word}, but KFD {_has(known)}"
            collector.add("error", "partition-contradiction", path, text, HINT)
        elif known < most[mode]:
            # amdsmi issue 99 describes this fault, which affects single GPUs in large fleets.
            text = (
                f"GPU {address} has {known} partitions in {mode.compute}, but another GPU of its type has "
                f"{most[mode]}; cdigen uses the existing partitions, with the numbers of AMD's tools"
            )
            collector.add("error", "partition-missing", path, text, HINT)


def _known(entries: list[NumberedDevice]) -> int:
    return sum(entry.node is not None for entry in entries)


def _has(known: int) -> str:
    if not known:
        return "lists no part of the GPU; the GPU gets no CDI device"
    return f"lists {known} partitions; cdigen uses them" if known > 1 else "lists one device; cdigen uses it"
