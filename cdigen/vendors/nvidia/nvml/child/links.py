"""Read the part ``links`` of a GPU's entry: the links between the GPU and other GPUs.

For each NVLink, NVML reports whether the link is up, and the device at the other end. If this device is a
switch, the status of peer access over NVLink shows whether the switch connects two GPUs.
"""

from __future__ import annotations

from health import fabric
from session import INVALID_ARGUMENT, NOT_SUPPORTED, NvmlCallError, address, bus_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from session import Nvml

MAX_LINKS = 36  # NVML_NVLINK_MAX_LINKS
TO_GPU, TO_SWITCH = 0, 2  # nvmlIntNvLinkDeviceType_t
P2P_NVLINK, P2P_OK = 2, 0  # nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t
FABRIC_JOINING, FABRIC_JOINED = (1, 2), 3  # nvmlGpuFabricState_t


def blank() -> dict[str, Any]:
    """Return the part ``links`` without values."""
    return {"peers": {}, "down": 0, "switched": 0, "reached": [], "fabric": "", "is_joining": False}


def read(nvml: Nvml, part: dict[str, Any], handle: object, handles: list[object | None]) -> None:
    """Write the links of the GPU HANDLE into PART.

    HANDLES are the handles of all queried GPUs in NVML's order. A failed call is recorded as the error of
    PART. The other links remain in PART.
    """
    others = _others(nvml, part, handle, handles)
    for link in range(MAX_LINKS):
        try:
            if not _add_link(nvml, part, handle, link, others):
                break
        except NvmlCallError as refusal:
            part["error"] = refusal.document
    if part["switched"]:
        _add_reached(nvml, part, handle, others)


def _add_reached(nvml: Nvml, part: dict[str, Any], handle: object, others: dict[str, object]) -> None:
    """Add the fabric to PART, and the GPUs in OTHERS that the GPU HANDLE reaches through switches."""
    for other, there in others.items():
        try:
            if nvml.call("nvmlDeviceGetP2PStatus", handle, there, P2P_NVLINK) == P2P_OK:
                part["reached"].append(other)
        except NvmlCallError as refusal:
            part["error"] = refusal.document
    try:
        info = fabric(nvml, handle)
    except NvmlCallError as refusal:
        part["error"] = refusal.document
        return
    if info is not None:
        cluster = bytes(info.clusterUuid)
        part["is_joining"] = info.state in FABRIC_JOINING
        # On a machine that is not in a cluster, the fabric has no name.
        if info.state == FABRIC_JOINED and any(cluster):
            part["fabric"] = f"{cluster.hex()}.{info.cliqueId}"


def _others(
    nvml: Nvml, part: dict[str, Any], handle: object, handles: list[object | None]
) -> dict[str, object]:
    """Return a mapping from the addresses of all other GPUs to their handles."""
    others: dict[str, object] = {}
    for other in handles:
        if other is None or other is handle:
            continue
        try:
            where = address(nvml, other)
        except NvmlCallError as refusal:
            part["error"] = refusal.document
            continue
        if where is not None:
            others[where] = other
    return others


def _add_link(nvml: Nvml, part: dict[str, Any], handle: object, link: int, others: dict[str, object]) -> bool:
    """Record the link LINK in PART; return whether the GPU may have a link with a greater number."""
    try:
        if not nvml.call("nvmlDeviceGetNvLinkState", handle, link):
            part["down"] += 1
            return True
    except NvmlCallError as refusal:
        # The GPU has no NVLinks, or the number is greater than the number of the last NVLink.
        if refusal.code in {NOT_SUPPORTED, INVALID_ARGUMENT}:
            return False
        raise
    kind = nvml.value("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
    if kind == TO_SWITCH:
        part["switched"] += 1
        return True
    remote = nvml.value("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
    peer = bus_address(remote) if remote else None
    if peer in others:
        part["peers"][peer] = part["peers"].get(peer, 0) + 1
    elif kind is None:
        # An old driver does not report the type. A peer that is not a GPU of this machine is a switch.
        part["switched"] += 1
    return True
