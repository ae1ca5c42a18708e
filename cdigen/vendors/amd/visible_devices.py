"""The environment variables by which containers request AMD's GPUs.

They are AMD_VISIBLE_DEVICES and DOCKER_RESOURCE_* of Docker Swarm. They have the same meaning as in
ROCm/container-toolkit 1.3.0, internal/oci (getAMDEnv) and internal/gpu-tracker (parseGPUsList). Docker Swarm
appends its variables to the variables of the service. AMD's runtime uses the last variable. Therefore, cdigen
ignores AMD_VISIBLE_DEVICES if Swarm has assigned GPUs.
"""

from __future__ import annotations

import re

from cdigen.vendors.base import VisibleDevices

# A shorter number is an index instead of an id. No host has so many GPUs that an index has more digits.
_MIN_ID_DIGITS = 8
_ID = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{1,16})", re.ASCII)
# The form of rocminfo and ROCR_VISIBLE_DEVICES (ROCR-Runtime, amd_gpu_agent.cpp, HSA_AMD_AGENT_INFO_UUID).
_ROCR_ID = re.compile(r"GPU-([0-9a-f]{16})", re.ASCII | re.IGNORECASE)


def names(word: str) -> tuple[str, ...]:
    """Return the name that the GPU with the index or id WORD has in specs.

    In specs, an id has a form such as 0xEA35F57CC80DEB35. sysfs has the id in lower case, with leading zeros
    and without 0x. KFD has the id as a decimal number. AMD's tools use several forms: rocminfo prints
    GPU-ea35f57cc80deb35. A short word that contains only digits is an index.
    """
    if rocr := _ROCR_ID.fullmatch(word):
        return (f"0x{int(rocr[1], 16):X}",)
    digits = _ID.fullmatch(word)
    if digits is None or (word.isdigit() and len(word) < _MIN_ID_DIGITS):
        return (word,)
    return (f"0x{int(digits[1], 16):X}",)


VISIBLE_DEVICES = (
    VisibleDevices(
        variables=("DOCKER_RESOURCE_*", "AMD_VISIBLE_DEVICES"),
        kinds=("amd.com/gpu",),
        # Any device class except "npu", such as "gpu-compute" of a profile. k8s.gpu.amd.com/gpu is a kind of
        # the DRA driver.
        allocated_kinds=r"(?:.+\.)?amd\.com/(?!npu$).+",
        # The regular expression has no group, because the number of a GPU differs from the number of its
        # node.
        nodes=r"/dev/(?:kfd|dri/renderD[0-9]+)",
        names=names,
        has_ranges=True,
        words=r"[0-9]{1,7}|[0-9]{1,9}-[0-9]{1,9}|0[xX][0-9A-Fa-f]{1,16}|[0-9A-Fa-f]{9,16}|[Gg][Pp][Uu]-[0-9A-Fa-f]{16}|all",
    ),
    VisibleDevices(
        variables=(),
        kinds=("amd.com/npu",),
        allocated_kinds=r"(?:.+\.)?amd\.com/npu",
        nodes=r"/dev/accel/accel[0-9]+",
    ),
)
