"""The labels of AMD's labeller (``LABELS``). No I/O.

The source is ROCm's k8s-device-plugin 1.31 (cmd/k8s-node-labeller).
"""

from __future__ import annotations

from functools import partial

from cdigen.vendors.amd.resources import MODES, profile_of
from cdigen.vendors.labels import counted_labels, device_number, label_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator
    from cdigen.vendors.labels import Label, LabelSource

_AMD = "amd.com/gpu"
_MIB = 1024
# The model name of a GPU for which the driver has no name.
_NAMELESS = "AMD GPU"


def labels(source: LabelSource) -> list[Label]:
    """Return the labels of a node with the GPUs of SOURCE.

    Counts are numbers of GPUs, and a partitioned GPU is one GPU. Only a DKMS driver has a version. The driver
    that is part of the kernel has no version.
    """
    gpus, driver = source.whole_devices(), source.inventory.driver
    if not gpus:
        return []
    found = counted_labels(f"{_AMD}.device-id", map(device_number, gpus))
    found += counted_labels(f"{_AMD}.product-name", map(_product, gpus), partial(label_value, blank="_"))
    found += counted_labels(f"{_AMD}.vram", map(_vram, gpus))
    found += counted_labels(f"{_AMD}.compute-memory-partition", map(_modes, gpus))
    if source.has_driver and driver.flavour == "dkms":
        found.append((f"{_AMD}.driver-version", label_value(driver.version)))
    return found


def _product(gpu: Accelerator) -> str:
    return "" if gpu.model.startswith(_NAMELESS) else MODES.sub("", gpu.model)


def _vram(gpu: Accelerator) -> str:
    return "" if gpu.memory_mib is None else f"{round(gpu.memory_mib / _MIB)}G"


def _modes(gpu: Accelerator) -> str:
    """Return the partition mode of GPU (``cpx_nps4``), or "" if GPU has no single mode."""
    profiles = {part.profile for part in gpu.partitions} if gpu.partitioned else {profile_of(gpu)}
    return profiles.pop() if len(profiles) == 1 else ""


LABELS = labels
