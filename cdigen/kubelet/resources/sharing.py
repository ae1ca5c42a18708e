"""``replication_of`` returns the number of replicas by which containers share a device.

NVIDIA calls sharing by replicas time-slicing. A replica does not limit its container, because each container
can use the whole device. Replicas have the same ids as in NVIDIA's plugin, from ``GPU-...::0`` on
(k8s-device-plugin, internal/rm/devices.go).
"""

from __future__ import annotations

from cdigen.kubelet.resources.naming import finding
from cdigen.kubelet.resources.selection import is_any_of
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config import KubeletConfig, SharingRow
    from cdigen.kubelet.resources.naming import NamingCandidate
    from cdigen.model.findings import Finding

# The kubelet refuses a name with more characters after the slash (apimachinery, pkg/util/validation,
# qualified names).
MAX_NAME = 63
# The limit for clients of one MPS server, for GPUs from Volta on (docs.nvidia.com/deploy/mps, "Client
# Limits").
MAX_MPS_CLIENTS = 48
_SUFFIX = ".shared"


@frozen
class Replication:
    """The resource of a device, and its number of replicas; 1 replica is the device itself."""

    resource: str
    replicas: int = 1
    mps: bool = False


def replication_of(
    candidate: NamingCandidate, resource: str, settings: KubeletConfig
) -> tuple[Replication, tuple[Finding, ...]]:
    """Return the replication of CANDIDATE, a device of RESOURCE; an invalid row causes a finding."""
    row = _row(settings.sharing, candidate, resource)
    unshared = Replication(resource=resource)
    if row is None or row.replicas == 1:
        return unshared, ()
    name = row.rename or (f"{resource}{_SUFFIX}" if settings.rename_shared else resource)
    if problem := _problem(row, candidate, name):
        text = f"is not shared: {problem}"
        hint = "correct 'kubelet: {sharing}' (docs/configuration.md)"
        return unshared, (finding("error", "resource-sharing", candidate.device, text, hint),)
    return Replication(resource=name, replicas=row.replicas, mps=row.mps), ()


def _row(rows: tuple[SharingRow, ...], candidate: NamingCandidate, resource: str) -> SharingRow | None:
    """Return the first of ROWS that names the device, or else the first row for all devices of RESOURCE."""
    own = [row for row in rows if row.resource == resource]
    named = [row for row in own if row.devices and is_any_of(row.devices, candidate)]
    return next(iter((*named, *(row for row in own if not row.devices))), None)


def _problem(row: SharingRow, candidate: NamingCandidate, name: str) -> str:
    if len(name.partition("/")[2]) > MAX_NAME:
        return f"{name} has more than {MAX_NAME} characters after the slash, which Kubernetes does not allow"
    if not row.mps:
        return ""
    if not candidate.names.supports_mps:
        return "MPS supports NVIDIA's devices only"
    if candidate.device.partition is not None:
        return "MPS does not support MIG instances"
    if row.replicas > MAX_MPS_CLIENTS:
        return f"MPS supports {MAX_MPS_CLIENTS} clients, not {row.replicas}"
    return ""
