"""``select`` and ``replication_of`` apply ``kubelet: {resources}`` and ``kubelet: {sharing}`` to a device.

NVIDIA calls sharing by replicas time-slicing. A replica does not limit its container, because each container
can use the whole device. Replicas have the same ids as in NVIDIA's plugin, from ``GPU-...::0`` on
(k8s-device-plugin, internal/rm/devices.go).
"""

from __future__ import annotations

import re
from functools import lru_cache

from cdigen import page_url
from cdigen.kubelet.resources.naming import finding
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from cdigen.config import KubeletConfig, ResourceRow, SharingRow
    from cdigen.kubelet.resources.naming import NamingCandidate
    from cdigen.model.findings import Finding

# The value of ``profiles`` in a row for whole devices, which have no profile.
WHOLE = "none"
# NVIDIA's names of MIG profiles contain the memory size, for example 1g.10gb.
_OF_PROFILE = re.compile(r"\b([0-9]+)gb\b")
_MIB = 1024
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


def select(rows: tuple[ResourceRow, ...], candidate: NamingCandidate) -> ResourceRow | None:
    """Return the first of ROWS that matches CANDIDATE, or None if no row matches."""
    return next((row for row in rows if _is_match(row, candidate)), None)


def replication_of(
    candidate: NamingCandidate, resource: str, settings: KubeletConfig
) -> tuple[Replication, tuple[Finding, ...]]:
    """Return the replication of CANDIDATE, a device of RESOURCE; an invalid row causes a finding."""
    row = _shared_by(settings.sharing, candidate, resource)
    unshared = Replication(resource=resource)
    if row is None or row.replicas == 1:
        return unshared, ()
    name = row.rename or (f"{resource}{_SUFFIX}" if settings.rename_shared else resource)
    if problem := _problem(row, candidate, name):
        text = f"is not shared: {problem}"
        hint = f"correct 'kubelet: {{sharing}}' ({page_url('how-to/kubernetes/share-devices')})"
        return unshared, (finding("error", "resource-sharing", candidate.device, text, hint),)
    return Replication(resource=name, replicas=row.replicas, mps=row.mps), ()


def is_doubtful(row: ResourceRow, candidate: NamingCandidate) -> bool:
    """Return whether only the unknown memory of CANDIDATE prevents a match of ROW and CANDIDATE."""
    bare = replace(row, min_memory_gb=0, max_memory_gb=0)
    return row != bare and memory_gb(candidate) is None and _is_match(bare, candidate)


def is_any_of(words: Collection[str], candidate: NamingCandidate) -> bool:
    """Return whether one of WORDS is a UUID, address, index or CDI name of CANDIDATE or its GPU."""
    return any(word.casefold() in candidate.handles for word in words)


def memory_gb(candidate: NamingCandidate) -> int | None:
    """Return the memory of CANDIDATE in GB, or None if the memory is unknown.

    The result is the size in the name of the profile or the model. If the name has no size, the result is the
    actual size, rounded up to a whole GiB (MI300X: 192). Names have precedence for two reasons. A T4 of 16 GB
    has 15 GiB for programs. NVML reports the size later than the kernel reports the model.
    """
    gpu, partition = candidate.device.accelerator, candidate.device.partition
    named_gb = candidate.named_gb
    if partition is not None:
        found = _OF_PROFILE.search(partition.profile)
        named_gb = int(found[1]) if found else None
    mib = (partition or gpu).memory_mib
    return named_gb if named_gb is not None or mib is None else -(-mib // _MIB)


def _is_match(row: ResourceRow, candidate: NamingCandidate) -> bool:
    device = candidate.device
    profile = device.partition.profile if device.partition else ""
    return (
        (not row.kind or any(name.startswith(f"{row.kind}=") for name in device.names))
        and (not row.models or _matches(row.models, device.accelerator.model))
        and (not row.profiles or (_matches(row.profiles, profile) if profile else WHOLE in row.profiles))
        and (not row.devices or is_any_of(row.devices, candidate))
        and _has_memory(row, candidate)
    )


def _has_memory(row: ResourceRow, candidate: NamingCandidate) -> bool:
    if not row.min_memory_gb and not row.max_memory_gb:
        return True
    memory = memory_gb(candidate)
    return memory is not None and row.min_memory_gb <= memory <= (row.max_memory_gb or memory)


def _matches(patterns: tuple[str, ...], text: str) -> bool:
    return any(_pattern(pattern).fullmatch(text) for pattern in patterns)


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> re.Pattern[str]:
    # Several consecutive stars are replaced by one star, so they cost no additional time.
    parts = re.split(r"\*+", pattern)
    return re.compile(".*".join(map(re.escape, parts)), re.IGNORECASE)


def _shared_by(rows: tuple[SharingRow, ...], candidate: NamingCandidate, resource: str) -> SharingRow | None:
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
