"""The labels of Intel's node feature rules (``LABELS``). No I/O.

The source is intel-device-plugins-for-kubernetes 0.36 (deployments/nfd/overlays/node-feature-rules).
"""

from __future__ import annotations

from cdigen.vendors.labels import counted_labels, device_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.labels import Label, LabelSource

_INTEL = "gpu.intel.com"
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


def labels(source: LabelSource) -> list[Label]:
    """Return the labels of a node with the GPUs of SOURCE; each virtual function is a GPU."""
    numbers = [device_number(gpu) for gpu in source.whole_devices()]
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


LABELS = labels
