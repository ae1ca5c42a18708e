"""What the names of sockets of device plugins and DRA drivers say: resources, and CDI kinds of devices."""

from __future__ import annotations

import re

# NVIDIA's plugin, AMD's and that of SR-IOV networks, Intel's: how sockets are named after the resource.
_NAMED = (
    (re.compile(r"nvidia-(.+)\.sock"), "nvidia.com/{0}"),
    (re.compile(r"([a-z0-9.-]+\.[a-z]+)_(.+?)(?:\.sock)?"), "{0}/{1}"),
    (re.compile(r"([a-z0-9.-]*\.(?:com|io|org))-(.+)\.sock"), "{0}/{1}"),
    (re.compile(r"aliyungpushare\.sock"), "aliyun.com/gpu-mem"),
)
# Vendors have other resources as well: nvidia.com/hostdev are network cards, qat.intel.com/cy is for
# cryptography, and gpu.intel.com/monitoring takes a GPU from nobody.
_KINDS = (
    (re.compile(r"nvidia\.com/(?:gpu(?:\..+)?|mig-.+)|aliyun\.com/gpu-mem"), "nvidia.com/gpu"),
    (re.compile(r"amd\.com/(?:gpu|[a-z]+_nps[0-9]+)"), "amd.com/gpu"),
    (re.compile(r"gpu\.intel\.com/(?:i915|xe)"), "intel.com/gpu"),
    (re.compile(r"npu\.intel\.com/accel"), "intel.com/npu"),
    (re.compile(r"habana\.ai/gaudi"), "intel.com/gaudi"),
)
# compute-domain.nvidia.com gives channels between nodes, and is meant to be used beside a device plugin.
_DRIVERS = {
    "gpu.nvidia.com": "nvidia.com/gpu",
    "gpu.amd.com": "amd.com/gpu",
    "gpu.intel.com": "intel.com/gpu",
    "npu.intel.com": "intel.com/npu",
    "gaudi.intel.com": "intel.com/gaudi",
}
# A driver of which a newer release starts before the old one ends has a UID in the name (KEP 4381).
_DRIVER = re.compile(r"(.+?)(?:-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})?-reg\.sock")


def resource_of(socket: str) -> str:
    """Return the resource that a plugin's SOCKET seems to be of, empty where its name does not say."""
    for pattern, form in _NAMED:
        if found := pattern.fullmatch(socket):
            return form.format(*found.groups())
    return ""


def kind_of(resource: str) -> str:
    """Return the CDI kind whose devices RESOURCE gives out, empty of one that is not known."""
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(resource)), "")


def driver_of(socket: str) -> str:
    """Return the CDI kind whose devices the DRA driver of SOCKET gives out, empty of an unknown one."""
    found = _DRIVER.fullmatch(socket)
    return _DRIVERS.get(found[1], "") if found else ""
