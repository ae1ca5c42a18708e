"""The resources and CDI kinds in the socket names of device plugins and DRA drivers."""

from __future__ import annotations

import re

# The socket names that identify the resource. The first pattern is for NVIDIA, the second for AMD and SR-IOV
# networks, the third for Intel, the fourth for GKE (container-engine-accelerators, cmd/nvidia_gpu), and the
# last for gpushare.
_NAMED = (
    (re.compile(r"nvidia-(.+)\.sock"), "nvidia.com/{0}"),
    (re.compile(r"([a-z0-9.-]+\.[a-z]+)_(.+?)(?:\.sock)?"), "{0}/{1}"),
    (re.compile(r"([a-z0-9.-]*\.(?:com|io|org))-(.+)\.sock"), "{0}/{1}"),
    (re.compile(r"nvidiaGPU-[0-9]+\.sock"), "nvidia.com/gpu"),
    (re.compile(r"aliyungpushare\.sock"), "aliyun.com/gpu-mem"),
)
# Only these resources are GPUs or accelerators. Vendors also have other resources: nvidia.com/hostdev is a
# network card, qat.intel.com/cy is for cryptography, and gpu.intel.com/monitoring does not occupy a GPU.
_KINDS = (
    (re.compile(r"nvidia\.com/(?:gpu(?:\..+)?|mig-.+)|aliyun\.com/gpu-mem"), "nvidia.com/gpu"),
    (re.compile(r"amd\.com/(?:gpu|[a-z]+_nps[0-9]+)"), "amd.com/gpu"),
    (re.compile(r"gpu\.intel\.com/(?:i915|xe)"), "intel.com/gpu"),
    (re.compile(r"npu\.intel\.com/accel"), "intel.com/npu"),
    (re.compile(r"habana\.ai/gaudi"), "intel.com/gaudi"),
)
# compute-domain.nvidia.com is not in the table, because it allocates channels between nodes and is used in
# addition to a device plugin.
_DRIVERS = {
    "gpu.nvidia.com": "nvidia.com/gpu",
    "gpu.amd.com": "amd.com/gpu",
    "gpu.intel.com": "intel.com/gpu",
    "npu.intel.com": "intel.com/npu",
    "gaudi.intel.com": "intel.com/gaudi",
}
# During a rolling update of a driver, the name of its socket contains a UID (KEP 4381).
_DRIVER = re.compile(r"(.+?)(?:-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})?-reg\.sock")


def resource_of(socket: str) -> str:
    """Return the resource in the name of the SOCKET of a device plugin; empty if the name has no resource."""
    for pattern, form in _NAMED:
        if found := pattern.fullmatch(socket):
            return form.format(*found.groups())
    return ""


def kind_of(resource: str) -> str:
    """Return the CDI kind of the devices of RESOURCE; empty if RESOURCE is unknown."""
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(resource)), "")


def driver_of(socket: str) -> str:
    """Return the CDI kind for the DRA driver in the name of SOCKET; empty if the driver is unknown."""
    found = _DRIVER.fullmatch(socket)
    return _DRIVERS.get(found[1], "") if found else ""
