"""What a container gets for the units that the kubelet chose: ``allocate``.

Pure. The kubelet keeps the answer and uses it again at each start of the container, also after an upgrade of
the driver: so it holds CDI names and nothing else, unless the configuration says otherwise. In which of the
two ways names travel, and why by default in both: docs/decisions/0015-cdi-names-in-both-ways.md.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from cdigen.host.root import shown
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cdigen.kubelet.resources.model import Resource, Unit
    from cdigen.model.inventory import HostNode

    # Whether a spec has a qualified CDI name now.
    IsOffered = Callable[[str], bool]

# The prefix by which runtimes recognize annotations with CDI names, and how long what follows may be
# (container-device-interface, pkg/cdi/annotations.go; the name of any annotation in Kubernetes).
ANNOTATION_PREFIX = "cdi.k8s.io/"
_MAX_KEY = 63
_DIGEST = 8
_OWNER = "cdigen_"
# Where CUDA looks for the control daemon (docs.nvidia.com/deploy/mps, "Environment Variables").
MPS_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
_SHM = "/dev/shm"  # noqa: S108 - where MPS's clients find its shared memory
# A refusal is an event of a pod: it names so many things and counts the others.
_SHOWN = 3
# A hostile kubelet may send anything as an id; ours are shorter.
_MAX_SHOWN = 100


@frozen
class Mps:
    """The MPS control daemon of a resource: its pipe directory, its tmpfs for clients' /dev/shm or "".

    ``problem`` says why containers cannot use it now.
    """

    pipe_directory: str
    shm_directory: str = ""
    problem: str = ""


@frozen
class Policy:
    """What the answers for one resource consist of.

    ``uses_field`` and ``uses_annotation``: CDI names as ``cdi_devices`` and as an annotation. ``variable`` is
    the environment variable that lists the units' UUIDs, or empty. ``passes_nodes``: the units' device nodes
    and ``common_nodes``. ``families`` are CDI names that are added where a spec offers them. ``fails_many``:
    a request for more than one replica is refused. ``mps`` is given where the resource is shared by MPS.
    """

    uses_field: bool = True
    uses_annotation: bool = True
    variable: str = ""
    passes_nodes: bool = False
    common_nodes: tuple[HostNode, ...] = ()
    families: tuple[str, ...] = ()
    fails_many: bool = False
    mps: Mps | None = None


@frozen
class PassedNode:
    """A device node that the kubelet has the runtime make: where it is on the host, and in the container."""

    host_path: str
    path: str
    permissions: str = "rw"


@frozen
class PassedFolder:
    """A folder of the host at the same or another place in the container."""

    host_path: str
    path: str
    is_read_only: bool = False


@frozen
class Answer:
    """What the container of one request gets.

    ``names`` are all CDI names, in whichever way they travel: ``cdi_devices`` and ``annotations`` say how.
    ``left_out`` are the names of families that no spec offers now.
    """

    names: tuple[str, ...]
    cdi_devices: tuple[str, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    nodes: tuple[PassedNode, ...] = ()
    folders: tuple[PassedFolder, ...] = ()
    left_out: tuple[str, ...] = ()


@frozen
class Refusal:
    """Why a request gets nothing: ``cause`` is one of CAUSES, ``reason`` one line for the pod's event."""

    cause: str
    reason: str


# In the order in which they are looked for: the first that is found is the reason.
CAUSES = ("unknown_id", "taken", "too_many", "unhealthy", "no_spec", "no_mps", "several_gpus", "no_claim")


def allocate(
    resource: Resource,
    ids: Sequence[str],
    policy: Policy,
    *,
    is_offered: IsOffered,
    held: Mapping[str, str] | None = None,
) -> Answer | Refusal:
    """Return what the container gets that asks for the units IDS of RESOURCE, or why it gets nothing.

    IS_OFFERED tells of CDI names whether a spec has them now. HELD says of units, by id, which container has
    them (``journal.holders``).
    """
    known = {unit.id: unit for unit in resource.units}
    if refusal := _refused_ids(resource, ids, known, held or {}):
        return refusal
    units = tuple(known[id_] for id_ in ids)
    if refusal := _refused_units(resource, units, policy, is_offered):
        return refusal
    # Replicas of one device have one name; a name that is injected twice has its hooks twice.
    given = [name for unit in units for name in unit.cdi_names]
    names = tuple(dict.fromkeys((*given, *filter(is_offered, policy.families))))
    is_annotated = policy.uses_annotation and names
    return Answer(
        names=names,
        cdi_devices=names if policy.uses_field else (),
        annotations=((annotation_key(resource.name), ",".join(names)),) if is_annotated else (),
        variables=_variables(units, policy),
        nodes=_nodes(units, policy.common_nodes) if policy.passes_nodes else (),
        folders=_folders(policy.mps),
        left_out=tuple(name for name in policy.families if not is_offered(name)),
    )


def annotation_key(resource: str) -> str:
    """Return the annotation's key for what containers get of RESOURCE; another one for each resource.

    Of two answers for one container with the same key, the kubelet drops one (pkg/kubelet/cm/devicemanager,
    pod_devices.go, deviceRunContainerOptions).
    """
    name = _OWNER + resource.replace("/", "_")
    if len(name) > _MAX_KEY or not name[-1].isalnum():
        digest = hashlib.sha256(resource.encode()).hexdigest()[:_DIGEST]
        name = f"{name[: _MAX_KEY - _DIGEST - 1]}_{digest}"
    return ANNOTATION_PREFIX + name


def _refused_ids(
    resource: Resource, ids: Sequence[str], known: Mapping[str, Unit], held: Mapping[str, str]
) -> Refusal | None:
    if strange := [id_ for id_ in ids if id_ not in known]:
        return Refusal(
            cause="unknown_id",
            reason=f"{resource.name} has no {_several(strange)} (any more); it has {len(known)} devices now",
        )
    if twice := [id_ for id_, count in Counter(ids).items() if count > 1]:
        reason = f"{_several(twice)} of {resource.name} is asked for twice at once"
        return Refusal(cause="taken", reason=reason)
    if taken := [f"{id_} ({held[id_]})" for id_ in ids if id_ in held]:
        return Refusal(
            cause="taken",
            reason=f"another container has what is asked for of {resource.name}: {_several(taken)}",
        )
    return None


def _refused_units(
    resource: Resource, units: tuple[Unit, ...], policy: Policy, is_offered: IsOffered
) -> Refusal | None:
    if policy.fails_many and len(units) > 1 and any(unit.replica is not None for unit in units):
        return Refusal(
            cause="too_many",
            reason=f"{resource.name} is shared, and more than one of it gives no more of a GPU: "
            f"{len(units)} were asked for; ask for 1",
        )
    if sick := [_with_reason(unit) for unit in units if unit.health == "unhealthy" and _reason(unit)]:
        return Refusal(cause="unhealthy", reason=f"of {resource.name}, {_several(sick)} is unhealthy")
    if lost := [text for unit in units if (text := _not_offered(unit, is_offered))]:
        return Refusal(cause="no_spec", reason=f"{_several(lost)} is in no CDI spec now: see 'cdigen status'")
    if sick := [unit.id for unit in units if unit.health == "unhealthy"]:
        return Refusal(cause="unhealthy", reason=f"of {resource.name}, {_several(sick)} is unhealthy")
    if policy.mps and policy.mps.problem:
        return Refusal(cause="no_mps", reason=f"{resource.name} is shared by MPS: {policy.mps.problem}")
    return None


def _not_offered(unit: Unit, is_offered: IsOffered) -> str:
    """Return what of UNIT no spec has, "" where specs have all of it."""
    if not unit.cdi_names:
        return unit.id
    return ", ".join(name for name in unit.cdi_names if not is_offered(name))


def _with_reason(unit: Unit) -> str:
    return f"{unit.id} ({_reason(unit)})"


def _reason(unit: Unit) -> str:
    """Return why UNIT is unhealthy, as far as it is known."""
    device = unit.partition or unit.accelerator
    causes = ", ".join(cause.cause for cause in device.causes)
    return causes or unit.accelerator.problem or device.problem


def _several(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    first = [shown(text[:_MAX_SHOWN]) for text in texts[:_SHOWN]]
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def _variables(units: Iterable[Unit], policy: Policy) -> tuple[tuple[str, str], ...]:
    found = []
    if policy.variable:
        devices = dict.fromkeys(_listed(unit) for unit in units)
        found.append((policy.variable, ",".join(devices)))
    if policy.mps:
        found.append((MPS_VARIABLE, policy.mps.pipe_directory))
    return tuple(found)


def _listed(unit: Unit) -> str:
    """Return UNIT's device as NVIDIA_VISIBLE_DEVICES has it: by its index where its UUID is not known."""
    gpu, part = unit.accelerator, unit.partition
    return (part or gpu).uuid or (str(gpu.index) if part is None else f"{gpu.index}:{part.label}")


def _nodes(units: Iterable[Unit], common: tuple[HostNode, ...]) -> tuple[PassedNode, ...]:
    found = {}
    for unit in units:
        part = unit.partition
        # A partition with an address of its own has all its nodes itself (model.inventory).
        own = unit.accelerator.nodes if part is None or not part.address else ()
        for node in (*own, *(part.nodes if part else ())):
            found[node.path] = node
    nodes = {node.path: node for node in common} | found
    return tuple(PassedNode(host_path=node.host_path, path=node.path) for node in nodes.values())


def _folders(mps: Mps | None) -> tuple[PassedFolder, ...]:
    if mps is None:
        return ()
    pipe = PassedFolder(host_path=mps.pipe_directory, path=mps.pipe_directory)
    if not mps.shm_directory:
        return (pipe,)
    return pipe, PassedFolder(host_path=mps.shm_directory, path=_SHM)
