"""The labels of AMD's labeller (``amd``) and of Intel's rules (``intel``). No I/O.

The sources are ROCm's k8s-device-plugin 1.31 (cmd/k8s-node-labeller) and
intel-device-plugins-for-kubernetes 0.36 (deployments/nfd/overlays/node-feature-rules).
"""

from __future__ import annotations

import re
from functools import partial

from cdigen.kubelet.labels.label_values import counted_labels, label_value
from cdigen.vendors.amd.resources import profile_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdigen.kubelet.labels.devices import LabelledDevice
    from cdigen.kubelet.labels.label_values import Label
    from cdigen.model.inventory import Accelerator, Driver

_AMD = "amd.com/gpu"
_INTEL = "gpu.intel.com"
_MIB = 1024
# The end of the model name of an AMD GPU that can be partitioned.
_MODES = re.compile(r" \([A-Z]+, NPS[0-9]+\)$")
# The model name of a GPU for which the driver has no name.
_NAMELESS = "AMD GPU"
# Intel's rules map a PCI device id to class, family and product. A value that is not in the rules is "".
_FLEX, _MAX, _ARC = "Flex_Series", "Max_Series", "A_Series"
_RULES = {
    "56c0": ("0380", _FLEX, "Flex_170"),
    "56c1": ("0380", _FLEX, "Flex_140"),
    "0bda": ("0380", _MAX, "Max_1100"),
    "0bd5": ("0380", _MAX, "Max_1550"),
    **dict.fromkeys(("0bd0", "0bd6", "0bd7", "0bd9", "0bdb"), ("0380", _MAX, "")),
    **{
        f"56{end}": ("0300", _ARC, "") for end in ("a0", "a1", "a3", "a4", "a5", "a6", "b0", "b1", "b2", "b3")
    },
    **{f"569{end}": ("0300", _ARC, "") for end in range(8)},
}


def amd(devices: Sequence[LabelledDevice], driver: Driver, *, has_driver: bool) -> list[Label]:
    """Return the labels of a node with the AMD devices DEVICES.

    Counts are numbers of GPUs, and a partitioned GPU is one GPU. HAS_DRIVER is set if DRIVER is loaded. Only
    a DKMS driver has a version. The driver that is part of the kernel has no version.
    """
    gpus = _gpus(devices)
    if not gpus:
        return []
    found = counted_labels(f"{_AMD}.device-id", [_number(gpu) for gpu in gpus])
    found += counted_labels(f"{_AMD}.product-name", map(_product, gpus), partial(label_value, blank="_"))
    found += counted_labels(f"{_AMD}.vram", map(_vram, gpus))
    found += counted_labels(f"{_AMD}.compute-memory-partition", map(_modes, gpus))
    if has_driver and driver.flavour == "dkms":
        found.append((f"{_AMD}.driver-version", label_value(driver.version)))
    return found


def intel(devices: Sequence[LabelledDevice]) -> list[Label]:
    """Return the labels of a node with the Intel devices DEVICES; each virtual function is a GPU."""
    numbers = [_number(gpu) for gpu in _gpus(devices)]
    if not numbers:
        return []
    rules = [_RULES.get(number, ("", "", "")) for number in numbers]
    found = [("intel.feature.node.kubernetes.io/gpu", "true"), (f"{_INTEL}/device.count", str(len(numbers)))]
    found += counted_labels(f"{_INTEL}/family", [family for _, family, _ in rules])
    found += counted_labels(f"{_INTEL}/product", [product for _, _, product in rules])
    for number in sorted(set(numbers) & _RULES.keys()):
        name = f"{_INTEL}/device-id.{_RULES[number][0]}-{number}"
        found += [(f"{name}.present", "true"), (f"{name}.count", str(numbers.count(number)))]
    return found


def _gpus(devices: Iterable[LabelledDevice]) -> list[Accelerator]:
    return list({(each.gpu.address, each.gpu.index): each.gpu for each in devices}.values())


def _number(gpu: Accelerator) -> str:
    return gpu.device_id.removeprefix("0x").lower()


def _product(gpu: Accelerator) -> str:
    return "" if gpu.model.startswith(_NAMELESS) else _MODES.sub("", gpu.model)


def _vram(gpu: Accelerator) -> str:
    return "" if gpu.memory_mib is None else f"{round(gpu.memory_mib / _MIB)}G"


def _modes(gpu: Accelerator) -> str:
    """Return the partition mode of GPU (``cpx_nps4``), or "" if GPU has no single mode."""
    profiles = {part.profile for part in gpu.partitions} if gpu.partitioned else {profile_of(gpu)}
    return profiles.pop() if len(profiles) == 1 else ""
