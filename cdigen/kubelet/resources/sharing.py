"""Devices that several containers may have at a time: ``shared`` makes replicas of them.

NVIDIA calls it time-slicing. A replica is a number and nothing else: whoever has one can use all of the
device. Ids are those of NVIDIA's plugin, ``GPU-...::0`` and on (k8s-device-plugin, internal/rm/devices.go).
"""

from __future__ import annotations

from cdigen.kubelet.resources.naming import finding
from cdigen.kubelet.resources.selection import is_any_of
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config import KubeletConfig, SharingRow
    from cdigen.kubelet.resources.naming import Candidate
    from cdigen.model.findings import Finding

# The kubelet refuses a name with more after the slash (apimachinery, pkg/util/validation, qualified names).
MAX_NAME = 63
# Clients of one MPS server from Volta on (docs.nvidia.com/deploy/mps, "Client Limits").
MAX_MPS_CLIENTS = 48
_SUFFIX = ".shared"


@frozen
class Share:
    """Of which resource a device is how many units: ``replicas`` of 1 is the device itself."""

    resource: str
    replicas: int = 1
    mps: bool = False


def shared(candidate: Candidate, resource: str, settings: KubeletConfig) -> tuple[Share, tuple[Finding, ...]]:
    """Return what becomes of CANDIDATE, a device of RESOURCE; a row that cannot be done is a finding."""
    row = _row(settings.sharing, candidate, resource)
    alone = Share(resource=resource)
    if row is None or row.replicas == 1:
        return alone, ()
    name = row.rename or (f"{resource}{_SUFFIX}" if settings.rename_shared else resource)
    if problem := _problem(row, candidate, name):
        text = f"is not shared: {problem}"
        hint = "see 'kubelet: {sharing}' in docs/configuration.md"
        return alone, (finding("error", "resource-sharing", candidate.device, text, hint),)
    return Share(resource=name, replicas=row.replicas, mps=row.mps), ()


def replica_id(unit_id: str, replica: int) -> str:
    """Return the id of a replica of the device with UNIT_ID."""
    return f"{unit_id}::{replica}"


def _row(rows: tuple[SharingRow, ...], candidate: Candidate, resource: str) -> SharingRow | None:
    """Return the first of ROWS that names the device, else the first for all devices of RESOURCE."""
    own = [row for row in rows if row.resource == resource]
    named = [row for row in own if row.devices and is_any_of(row.devices, candidate)]
    return next(iter((*named, *(row for row in own if not row.devices))), None)


def _problem(row: SharingRow, candidate: Candidate, name: str) -> str:
    if len(name.partition("/")[2]) > MAX_NAME:
        return f"{name} is longer than the {MAX_NAME} characters after the slash that Kubernetes allows"
    if not row.mps:
        return ""
    if candidate.device.vendor != "nvidia":
        return "MPS is NVIDIA's alone"
    if candidate.device.partition is not None:
        return "MPS is not for MIG instances"
    if row.replicas > MAX_MPS_CLIENTS:
        return f"MPS serves {MAX_MPS_CLIENTS} clients, not {row.replicas}"
    return ""
