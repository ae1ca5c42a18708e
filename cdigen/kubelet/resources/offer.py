"""What is offered to the kubelet: ``offer``, all of this package in one call.

Pure: the inventories with health, as the daemon shows them, and the names that specs have, give resources.
Every device of an inventory is a unit, also one that no container can have now: it is then an unhealthy one,
so that a node shows what it has, and the kubelet recognizes it when it is back.
"""

from __future__ import annotations

import re

from cdigen.config.types import RESOURCE_NAME
from cdigen.kubelet.resources import memory, mig, sharing
from cdigen.kubelet.resources.model import Resource, Unit
from cdigen.kubelet.resources.naming import candidates, finding
from cdigen.kubelet.resources.selection import is_any_of, is_doubtful, select
from cdigen.model.findings import Finding
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.config import KubeletConfig, ResourceRow
    from cdigen.kubelet.resources.memory import MemoryOffer
    from cdigen.kubelet.resources.naming import Candidate, IsOffered
    from cdigen.kubelet.resources.sharing import Share
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile

# What gRPC takes in one message by default, in bytes, as the kubelet does (grpc-go, clientconn.go).
MAX_MESSAGE = 4 << 20
# A device in it besides its id: tags and lengths, "Unhealthy", and a NUMA node of up to ten bytes.
_PER_UNIT = 40
# The kubelet refuses other names; a driver or another package may have led to one.
_IS_NAME = re.compile(RESOURCE_NAME)
_MAX_SHOWN = 100


@frozen
class Offer:
    """The resources of a host, and why devices are in none.

    ``fails_many`` are the resources of which a container may have one replica at most, ``by_mps`` those that
    are shared by the Multi-Process Service. ``memory`` are the GPUs that are offered by their memory.
    """

    resources: tuple[Resource, ...] = ()
    fails_many: frozenset[str] = frozenset()
    by_mps: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()
    memory: MemoryOffer | None = None


def offer(
    inventories: Mapping[str, Inventory],
    profiles: tuple[Profile, ...],
    is_offered: IsOffered,
    settings: KubeletConfig,
) -> Offer:
    """Return what the devices of INVENTORIES, by vendor, are to the kubelet.

    PROFILES name them; IS_OFFERED tells whether a spec has a qualified CDI name. Nothing is raised.
    """
    known, found = candidates(inventories, profiles, is_offered)
    units_of = _in_units(known, settings)
    taken = units_of.taken if units_of else frozenset()
    placed, more = _named([each for each in known if each.is_split or each.id not in taken], settings)
    findings = [*found, *(units_of.findings if units_of else ()), *more]
    units: dict[str, list[Unit]] = {}
    by_mps: set[str] = set()
    fails_many: set[str] = set()
    for candidate, name, kind in placed:
        if not _IS_NAME.fullmatch(name):
            findings.append(_without_resource(candidate, name))
            continue
        share, problems = sharing.shared(candidate, name, settings)
        findings += problems
        unit = _unit(candidate, kind)
        if not unit.cdi_names:
            findings.append(_without_name(candidate, kind))
        units.setdefault(share.resource, []).extend(_replicas(unit, share))
        if share.replicas > 1 and settings.single_shares:
            fails_many.add(share.resource)
        if share.mps:
            by_mps.add(share.resource)
    if units_of and settings.shared_memory.mps:
        by_mps.add(units_of.resource.name)
    resources, refused = _bounded(units)
    return Offer(
        resources=(*resources, *((units_of.resource,) if units_of else ())),
        fails_many=frozenset(fails_many),
        by_mps=frozenset(by_mps),
        findings=(*findings, *refused),
        memory=units_of,
    )


def _in_units(known: Iterable[Candidate], settings: KubeletConfig) -> MemoryOffer | None:
    """Return those of KNOWN that are offered by their memory, None: SETTINGS say of none."""
    if settings.shared_memory.unit == "none":
        return None
    offered = [each for each in known if not is_any_of(settings.ignore, each)]
    return memory.share_memory(offered, settings.shared_memory)


def _named(
    known: Iterable[Candidate], settings: KubeletConfig
) -> tuple[list[tuple[Candidate, str, str]], list[Finding]]:
    """Return KNOWN devices that are offered, each with its resource and the kind to give it by, if any."""
    placed: dict[str, tuple[Candidate, str, str]] = {}
    by_vendor: dict[str, list[Candidate]] = {}
    order: list[str] = []
    found: list[Finding] = []
    strategies = {"nvidia": settings.mig_strategy, "amd": settings.amd_strategy}
    for candidate in known:
        rows = () if candidate.is_split else settings.resources
        row = select(rows, candidate)
        if not candidate.is_split:
            order.append(candidate.id)
        if is_any_of(settings.ignore, candidate):
            text = "is not offered: 'kubelet: {ignore}' in the configuration says so"
            found.append(finding("info", "resource-left-out", candidate.device, text))
            continue
        before = rows[: rows.index(row)] if row else rows
        found += [_doubt(each, candidate) for each in before if is_doubtful(each, candidate)]
        if row is not None:
            placed[candidate.id] = (candidate, row.name, row.kind)
        else:
            by_vendor.setdefault(candidate.device.vendor, []).append(candidate)
    for vendor, rest in by_vendor.items():
        named, more = mig.named(rest, strategies.get(vendor, "mixed"))
        found += more
        placed |= {candidate.id: (candidate, name, "") for candidate, name in named}
    return [placed[each] for each in order if each in placed], found


def _doubt(row: ResourceRow, candidate: Candidate) -> Finding:
    text = f"is not of {row.name}: its memory is not known, and the row of 'resources' has a limit of it"
    hint = "name its model there instead: 'models'"
    return finding("warning", "resource-memory-unknown", candidate.device, text, hint)


def _without_resource(candidate: Candidate, name: str) -> Finding:
    text = f"is not offered: Kubernetes does not take {name[:_MAX_SHOWN]!r} as the name of a resource"
    hint = "'kubelet: {resources}' in the configuration can give it another one"
    return finding("error", "resource-left-out", candidate.device, text, hint)


def _unit(candidate: Candidate, kind: str) -> Unit:
    """Return CANDIDATE as a unit, given by its most lasting name of KIND alone: two would give it twice."""
    device = candidate.device
    names = [name for name in candidate.cdi_names if not kind or name.startswith(f"{kind}=")]
    return Unit(
        id=candidate.id,
        health=device.health if names and device.usable else "unhealthy",
        numa=device.accelerator.numa_node,
        accelerator=device.accelerator,
        partition=device.partition,
        cdi_names=tuple(names[:1]),
    )


def _without_name(candidate: Candidate, kind: str) -> Finding:
    device = candidate.device
    problem = device.accelerator.problem or (device.partition.problem if device.partition else "")
    reason = problem or f"no spec has a name{f' of {kind}' if kind else ''} for it alone"
    text = f"is offered as unhealthy: {reason}"
    return finding("warning", "resource-without-name", device, text, "see 'cdigen status'")


def _replicas(unit: Unit, share: Share) -> Iterable[Unit]:
    """Return UNIT as often as SHARE says."""
    if share.replicas == 1:
        return (unit,)
    return [
        Unit(
            id=sharing.replica_id(unit.id, replica),
            health=unit.health,
            numa=unit.numa,
            accelerator=unit.accelerator,
            partition=unit.partition,
            replica=replica,
            cdi_names=unit.cdi_names,
        )
        for replica in range(share.replicas)
    ]


def _bounded(units: Mapping[str, list[Unit]]) -> tuple[tuple[Resource, ...], list[Finding]]:
    """Return the resources; one that the kubelet could not be told of has no units, and is a finding."""
    resources: list[Resource] = []
    found: list[Finding] = []
    for name, those in units.items():
        size = sum([len(unit.id) + _PER_UNIT for unit in those])
        if size > MAX_MESSAGE:
            text = (
                f"{name} is refused: a list of its {len(those)} units takes up to {size} bytes, and the "
                f"kubelet reads {MAX_MESSAGE}"
            )
            hint = "give 'kubelet: {sharing}' fewer replicas"
            found.append(
                Finding(severity="error", rule="resource-too-large", path=name, message=text, hint=hint)
            )
        resources.append(Resource(name=name, units=() if size > MAX_MESSAGE else tuple(those)))
    return tuple(resources), found
