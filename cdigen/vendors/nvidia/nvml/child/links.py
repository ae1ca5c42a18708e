"""How a GPU is linked to the others: the part ``links``.

NVML tells of each NVLink whether it is up, and what is at its other end. Where that is a switch, whether the
switch joins two GPUs is told by the status of peer access over NVLink.
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
    """Return the part of a GPU of which nothing is known."""
    return {"peers": {}, "down": 0, "switched": 0, "reached": [], "fabric": "", "is_joining": False}


def tell(nvml: Nvml, part: dict[str, Any], handle: object, handles: list[object | None]) -> None:
    """Fill in PART of the GPU HANDLE, one of HANDLES in NVML's order.

    A link that fails is the part's error, and the others stay.
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
    """Add to PART which of the OTHERS switches join the GPU with, and the fabric that these are of."""
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
        # Without a cluster, as on a machine of its own, the fabric has no name.
        if info.state == FABRIC_JOINED and any(cluster):
            part["fabric"] = f"{cluster.hex()}.{info.cliqueId}"


def _others(
    nvml: Nvml, part: dict[str, Any], handle: object, handles: list[object | None]
) -> dict[str, object]:
    """Return the other GPUs by their addresses."""
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
    """Add the LINK to PART where it is up; returns whether there may be more."""
    try:
        if not nvml.call("nvmlDeviceGetNvLinkState", handle, link):
            part["down"] += 1
            return True
    except NvmlCallError as refusal:
        # A GPU without NVLinks, and a number above its last.
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
        # A driver that does not tell what is there: of the machine's devices only switches are no GPUs.
        part["switched"] += 1
    return True
