"""How containers ask for AMD's GPUs: AMD_VISIBLE_DEVICES, and what Docker Swarm sets.

Semantics: ROCm/container-toolkit 1.3.0, internal/oci (getAMDEnv) and internal/gpu-tracker (parseGPUsList).
Swarm appends its variables to a service's own, and of all those AMD's runtime takes the last; so where Swarm
has assigned GPUs, AMD_VISIBLE_DEVICES does not count.
"""

from __future__ import annotations

import re

from cdigen.vendors.base import VisibleDevices

# As short as that no id is: no host has so many GPUs.
_MIN_ID_DIGITS = 8
_ID = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{1,16})", re.ASCII)


def names(word: str) -> tuple[str, ...]:
    """Return how specs call the GPU that WORD names: an id as 0xEA35F57CC80DEB35.

    sysfs has it in lower case, with leading zeros and without 0x, KFD as a decimal number, and each of AMD's
    tools in one form or another. A short word of digits alone is an index.
    """
    digits = _ID.fullmatch(word)
    if digits is None or (word.isdigit() and len(word) < _MIN_ID_DIGITS):
        return (word,)
    return (f"0x{int(digits[1], 16):X}",)


VISIBLE_DEVICES = (
    VisibleDevices(
        variables=("DOCKER_RESOURCE_*", "AMD_VISIBLE_DEVICES"),
        kinds=("amd.com/gpu",),
        # Any class but that of NPUs: "gpu-compute" of a profile, k8s.gpu.amd.com/gpu of the DRA driver.
        given_as=r"(?:.+\.)?amd\.com/(?!npu$).+",
        # The order of the GPUs is not that of their nodes.
        nodes=r"/dev/(?:kfd|dri/renderD[0-9]+)",
        names=names,
        has_ranges=True,
        words=r"[0-9]{1,7}|[0-9]{1,9}-[0-9]{1,9}|0[xX][0-9A-Fa-f]{1,16}|[0-9A-Fa-f]{9,16}|all",
    ),
    VisibleDevices(
        variables=(),
        kinds=("amd.com/npu",),
        given_as=r"(?:.+\.)?amd\.com/npu",
        nodes=r"/dev/accel/accel[0-9]+",
    ),
)
