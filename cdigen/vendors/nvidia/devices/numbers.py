"""Compare cdigen's numbers of the GPUs with those of NVML."""

from __future__ import annotations

from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.model.inventory import Accelerator

RULE = "gpu-numbers-differ"
_GPUS = "/proc/driver/nvidia/gpus"


def differing(accelerators: Iterable[Accelerator], numbers: Mapping[str, int]) -> tuple[Finding, ...]:
    """Return the finding on ACCELERATORS with another number in NUMBERS, NVML's numbers by PCI address."""
    others = [
        f"{each.address} is GPU {each.index} in cdigen and {numbers[each.address]} in NVML"
        for each in accelerators
        if numbers.get(each.address, each.index) != each.index
    ]
    if not others:
        return ()
    message = f"cdigen's GPU numbers differ from the numbers in NVML and nvidia-smi: {', '.join(others)}"
    hint = "request GPUs by UUID or PCI address ('names' of a profile), not by index"
    return (Finding(severity="warning", rule=RULE, path=_GPUS, message=message, hint=hint),)
