"""AMD's and Intel's labels, by the names of AMD's labeller and of Intel's rules: ``amd``, ``intel``. Pure.

Sources: k8s-device-plugin of ROCm 1.31, cmd/k8s-node-labeller; intel-device-plugins-for-kubernetes 0.36,
deployments/nfd/overlays/node-feature-rules.
"""

from __future__ import annotations

import re
from functools import partial

from cdigen.kubelet.labels.words import fitting, spread
from cdigen.vendors.amd.resources import profile_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdigen.kubelet.labels.devices import LabelledDevice
    from cdigen.kubelet.labels.words import Label
    from cdigen.model.inventory import Accelerator, Driver

_AMD = "amd.com/gpu"
_INTEL = "gpu.intel.com"
_MIB = 1024
# How the model of a GPU of AMD's ends that could be split, and begins where the driver has no name of it.
_MODES = re.compile(r" \([A-Z]+, NPS[0-9]+\)$")
_NAMELESS = "AMD GPU"
# Of Intel's rules: PCI number -> class, family, product; an empty one is not in them.
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
    """Return the labels of a node with DEVICES of AMD's; counts are of GPUs, however they are split.

    HAS_DRIVER: DRIVER is the one that runs; that of the kernel itself has no version of its own.
    """
    gpus = _gpus(devices)
    if not gpus:
        return []
    found = spread(f"{_AMD}.device-id", [_number(gpu) for gpu in gpus])
    found += spread(f"{_AMD}.product-name", map(_product, gpus), partial(fitting, blank="_"))
    found += spread(f"{_AMD}.vram", map(_vram, gpus))
    found += spread(f"{_AMD}.compute-memory-partition", map(_modes, gpus))
    if has_driver and driver.flavour == "dkms":
        found.append((f"{_AMD}.driver-version", fitting(driver.version)))
    return found


def intel(devices: Sequence[LabelledDevice]) -> list[Label]:
    """Return the labels of a node with DEVICES of Intel's; virtual functions count as the GPUs they are."""
    numbers = [_number(gpu) for gpu in _gpus(devices)]
    if not numbers:
        return []
    rules = [_RULES.get(number, ("", "", "")) for number in numbers]
    found = [("intel.feature.node.kubernetes.io/gpu", "true"), (f"{_INTEL}/device.count", str(len(numbers)))]
    found += spread(f"{_INTEL}/family", [family for _, family, _ in rules])
    found += spread(f"{_INTEL}/product", [product for _, _, product in rules])
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
    """Return how GPU is split (``cpx_nps4``), "" where it cannot be, or its parts are not alike."""
    profiles = {part.profile for part in gpu.partitions} if gpu.partitioned else {profile_of(gpu)}
    return profiles.pop() if len(profiles) == 1 else ""
