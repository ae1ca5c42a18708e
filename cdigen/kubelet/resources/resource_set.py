"""``advertise`` computes the resources of a host, with all modules of this package. No I/O.

The inputs are the inventories of the daemon, which include health, and the CDI names in specs. A device that
no container can have now is still a unit, which is unhealthy. So the node's capacity includes the device, and
the id of the device stays in the list.
"""

from __future__ import annotations

import re

from cdigen.config.types import RESOURCE_NAME
from cdigen.kubelet.resources import memory, mig
from cdigen.kubelet.resources.model import MAX_MESSAGE, REPLICA, Resource, Unit, numbered
from cdigen.kubelet.resources.naming import candidates, finding
from cdigen.kubelet.resources.selection import is_any_of, is_doubtful, replication_of, select
from cdigen.model.findings import Finding
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.config import KubeletConfig, ResourceRow
    from cdigen.kubelet.resources.memory import AdvertisedMemory
    from cdigen.kubelet.resources.naming import IsInSpec, NamingCandidate
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile

# The bytes of a device without its id: tags and lengths, "Unhealthy", and a NUMA node of up to ten bytes.
PER_UNIT = 40
# The kubelet rejects a name that does not match. A driver or a vendor package may cause such a name.
_IS_NAME = re.compile(RESOURCE_NAME)
_MAX_SHOWN = 100


@frozen
class ResourceSet:
    """The resources of a host, and findings on devices that are in no resource.

    ``memory`` has the GPUs that are advertised in memory units. ``candidates`` are all devices of the host,
    advertised or not.
    """

    resources: tuple[Resource, ...] = ()
    findings: tuple[Finding, ...] = ()
    memory: AdvertisedMemory | None = None
    candidates: tuple[NamingCandidate, ...] = ()


def advertise(
    inventories: Mapping[str, Inventory],
    profiles: tuple[Profile, ...],
    is_in_spec: IsInSpec,
    settings: KubeletConfig,
) -> ResourceSet:
    """Return the resources for the devices of INVENTORIES (by vendor); raise nothing.

    PROFILES name the devices. IS_IN_SPEC returns whether a spec has a qualified CDI name.
    """
    known, found = candidates(inventories, profiles, is_in_spec)
    in_memory = _in_memory(known, settings)
    candidate_ids = in_memory.candidate_ids if in_memory else frozenset()
    placed, more = _named([each for each in known if each.is_split or each.id not in candidate_ids], settings)
    findings = [*found, *(in_memory.findings if in_memory else ()), *more]
    units: dict[str, list[Unit]] = {}
    lengths: dict[str, _Length] = {}
    replicated: set[str] = set()
    by_mps: set[str] = set()
    for candidate, name, kind in placed:
        if not _IS_NAME.fullmatch(name):
            findings.append(_without_resource(candidate, name))
            continue
        replication, problems = replication_of(candidate, name, settings)
        findings += problems
        unit = candidate.unit(kind)
        if not unit.cdi_names:
            findings.append(_without_name(candidate, kind))
        units_of_resource = units.setdefault(replication.resource, [])
        length = lengths.setdefault(replication.resource, _Length())
        length.add(unit, replication.replicas)
        if length.is_too_long:
            continue
        if replication.replicas > 1:
            units_of_resource += numbered(unit, REPLICA, replication.replicas)
            replicated.add(replication.resource)
        else:
            units_of_resource.append(unit)
        if replication.mps:
            by_mps.add(replication.resource)
    bounded, refused = _bounded(units, lengths)
    resources = [
        Resource(
            name=name,
            units=listed,
            fails_many=settings.fail_requests_greater_than_one and name in replicated,
            by_mps=name in by_mps,
        )
        for name, listed in bounded.items()
    ]
    return ResourceSet(
        resources=(*resources, *((in_memory.resource,) if in_memory else ())),
        findings=(*findings, *refused),
        memory=in_memory,
        candidates=known,
    )


def _in_memory(known: Iterable[NamingCandidate], settings: KubeletConfig) -> AdvertisedMemory | None:
    """Return the GPUs of KNOWN that SETTINGS share by memory, or None if sharing by memory is off."""
    if settings.shared_memory.unit == "none":
        return None
    offered = [each for each in known if not is_any_of(settings.ignore, each)]
    return memory.share_memory(offered, settings.shared_memory)


def _named(
    known: Iterable[NamingCandidate], settings: KubeletConfig
) -> tuple[list[tuple[NamingCandidate, str, str]], list[Finding]]:
    """Return the advertised devices of KNOWN, each with its resource and the kind of its CDI names."""
    placed: dict[str, tuple[NamingCandidate, str, str]] = {}
    by_vendor: dict[str, list[NamingCandidate]] = {}
    order: list[str] = []
    found: list[Finding] = []
    for candidate in known:
        rows = () if candidate.is_split else settings.resources
        row = select(rows, candidate)
        if not candidate.is_split:
            order.append(candidate.id)
        if is_any_of(settings.ignore, candidate):
            text = "is not advertised: it is in 'kubelet: {ignore}'"
            found.append(finding("info", "resource-left-out", candidate.device, text))
            continue
        before = rows[: rows.index(row)] if row else rows
        found += [_memory_unknown(each, candidate) for each in before if is_doubtful(each, candidate)]
        if row is not None:
            placed[candidate.id] = (candidate, row.name, row.kind)
        else:
            by_vendor.setdefault(candidate.device.vendor, []).append(candidate)
    strategies = {"mig_strategy": settings.mig_strategy, "amd_strategy": settings.amd_strategy}
    for rest in by_vendor.values():
        keys = (each.names.strategy_key for each in rest)
        named, more = mig.named(rest, next((strategies[key] for key in keys if key in strategies), "mixed"))
        found += more
        placed |= {candidate.id: (candidate, name, "") for candidate, name in named}
    return [placed[each] for each in order if each in placed], found


def _memory_unknown(row: ResourceRow, candidate: NamingCandidate) -> Finding:
    text = f"is not in {row.name}: its memory is unknown, and the row of 'resources' limits the memory"
    hint = "use 'models' in that row instead of a limit of memory"
    return finding("warning", "resource-memory-unknown", candidate.device, text, hint)


def _without_resource(candidate: NamingCandidate, name: str) -> Finding:
    text = f"is not advertised: {name[:_MAX_SHOWN]!r} is not a valid resource name of Kubernetes"
    hint = "'kubelet: {resources}' can give the device another resource"
    return finding("error", "resource-left-out", candidate.device, text, hint)


def _without_name(candidate: NamingCandidate, kind: str) -> Finding:
    device = candidate.device
    problem = device.accelerator.problem or (device.partition.problem if device.partition else "")
    reason = problem or f"no spec has a name{f' of {kind}' if kind else ''} for only this device"
    text = f"is advertised as unhealthy: {reason}"
    return finding("warning", "resource-without-name", device, text, "cdigen status")


class _Length:
    """The number of units of a resource, and the largest size of their list in bytes."""

    def __init__(self) -> None:
        self.count = self.size = 0

    def add(self, unit: Unit, replicas: int) -> None:
        """Add REPLICAS of UNIT; 1 replica is the unit itself."""
        suffix = len(f"{REPLICA}{replicas - 1}") if replicas > 1 else 0
        self.count += replicas
        self.size += replicas * (len(unit.id) + suffix + PER_UNIT)

    @property
    def is_too_long(self) -> bool:
        """Whether the kubelet cannot read the list."""
        return self.size > MAX_MESSAGE


def _bounded(
    units: Mapping[str, list[Unit]], lengths: Mapping[str, _Length]
) -> tuple[dict[str, tuple[Unit, ...]], list[Finding]]:
    """Return the UNITS by resource, and findings on resources whose list is too long for the kubelet.

    Such a resource has no units.
    """
    bounded: dict[str, tuple[Unit, ...]] = {}
    found: list[Finding] = []
    for name, listed in units.items():
        length = lengths[name]
        if length.is_too_long:
            text = (
                f"{name}: the list of its {length.count} units is too long: up to {length.size} bytes, "
                f"and the kubelet reads {MAX_MESSAGE}"
            )
            most = MAX_MESSAGE * length.count // length.size
            hint = f"configure fewer replicas in 'kubelet: {{sharing}}', for at most {most} units"
            found.append(
                Finding(severity="error", rule="resource-too-large", path=name, message=text, hint=hint)
            )
        bounded[name] = () if length.is_too_long else tuple(listed)
    return bounded, found
