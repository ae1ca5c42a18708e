"""``build_response`` returns the container response of an Allocate request. The module does no I/O.

The kubelet stores the response and uses it again at each start of the container, also after a driver upgrade.
The runtime resolves CDI names at each start. So by default the response has only CDI names. The kubelet
accepts CDI names in two fields. docs/decisions/0015-cdi-names-in-both-ways.md explains why cdigen uses both
fields by default.
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

    # Returns whether a spec has a qualified CDI name now.
    IsInSpec = Callable[[str], bool]

# Runtimes recognize annotations with CDI names by this prefix (container-device-interface,
# pkg/cdi/annotations.go).
ANNOTATION_PREFIX = "cdi.k8s.io/"
# The limit of Kubernetes for the name of an annotation after the prefix, in characters.
_MAX_KEY = 63
_DIGEST = 8
_OWNER = "cdigen_"
# CUDA finds the MPS control daemon by this variable (docs.nvidia.com/deploy/mps, "Environment Variables").
MPS_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
_SHM = "/dev/shm"  # noqa: S108 - clients of MPS use shared memory at this path
# A refusal names at most this number of devices, and then has the number of further devices.
_SHOWN = 3
# The largest number of characters of an id in a message. A hostile kubelet may send any text as an id. The
# ids of cdigen are shorter.
_MAX_SHOWN = 100
# The same for an id with the container that has the device: two names of Kubernetes and the name of a claim.
_MAX_USED = 500


@frozen
class Mps:
    """The MPS control daemon of a resource.

    ``pipe_directory`` is the daemon's pipe directory. ``shm_directory`` is the tmpfs that clients have as
    /dev/shm, or "". ``problem`` is the reason why containers cannot use the daemon now, or "".
    """

    pipe_directory: str
    shm_directory: str = ""
    problem: str = ""


@frozen
class AllocationPolicy:
    """The policy for the container responses of one resource.

    If ``uses_field`` is set, the response has CDI names in ``cdi_devices``. If ``uses_annotation`` is set,
    the response has CDI names in an annotation. ``variable`` is the environment variable that lists the
    units' UUIDs, or "". If ``passes_nodes`` is set, the response has the units' device nodes and
    ``common_nodes``. ``families`` are CDI names of devices other than GPUs, such as GDRCopy. The response has
    each of these names that a spec has. ``mps`` is set if containers share the resource by MPS.
    """

    uses_field: bool = True
    uses_annotation: bool = True
    variable: str = ""
    passes_nodes: bool = False
    common_nodes: tuple[HostNode, ...] = ()
    families: tuple[str, ...] = ()
    mps: Mps | None = None


@frozen
class PassedPath:
    """The device node or folder ``host_path`` of the host, which the container gets at ``path``."""

    host_path: str
    path: str


@frozen
class ContainerResponse:
    """The response for one container.

    ``names`` are all CDI names. The kubelet gets these names in ``cdi_devices``, in ``annotations``, or in
    both fields.
    """

    names: tuple[str, ...]
    cdi_devices: tuple[str, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    nodes: tuple[PassedPath, ...] = ()
    folders: tuple[PassedPath, ...] = ()


@frozen
class AllocationRefusal:
    """The refusal of a request.

    ``cause`` is one of CAUSES. ``reason`` is one line for the pod's event.
    """

    cause: str
    reason: str


# The causes are in the order of the checks. A refusal has the first cause that applies.
CAUSES = (
    "unknown_id",
    "in_use",
    "too_many",
    "unhealthy",
    "no_spec",
    "no_mps",
    "multiple_gpus",
    "no_reservation",
)


def build_response(
    resource: Resource,
    ids: Sequence[str],
    policy: AllocationPolicy,
    *,
    is_in_spec: IsInSpec,
    in_use: Mapping[str, str] | None = None,
) -> ContainerResponse | AllocationRefusal:
    """Return the response for a container with the units IDS of RESOURCE, or the refusal.

    IS_IN_SPEC returns whether a spec has a CDI name now. IN_USE maps the id of a unit in use to the container
    that uses the unit (``journal.used_units``).
    """
    known = {unit.id: unit for unit in resource.units}
    if refusal := _refused_ids(resource, ids, known, in_use or {}):
        return refusal
    units = tuple(known[id_] for id_ in ids)
    if refusal := _refused_units(resource, units, policy, is_in_spec):
        return refusal
    # Replicas of one device have the same name. A repeated name would add the hooks of the device twice.
    unit_names = [name for unit in units for name in unit.cdi_names]
    names = tuple(dict.fromkeys((*unit_names, *filter(is_in_spec, policy.families))))
    is_annotated = policy.uses_annotation and names
    return ContainerResponse(
        names=names,
        cdi_devices=names if policy.uses_field else (),
        annotations=((annotation_key(resource.name), ",".join(names)),) if is_annotated else (),
        variables=_variables(units, policy),
        nodes=_nodes(units, policy.common_nodes) if policy.passes_nodes else (),
        folders=_folders(policy.mps),
    )


def annotation_key(resource: str) -> str:
    """Return the key of the annotation for devices of RESOURCE; each resource has its own key.

    If two responses for one container have the same key, the kubelet drops one of the annotations
    (pkg/kubelet/cm/devicemanager, pod_devices.go, deviceRunContainerOptions).
    """
    name = _OWNER + resource.replace("/", "_")
    if len(name) > _MAX_KEY or not name[-1].isalnum():
        digest = hashlib.sha256(resource.encode()).hexdigest()[:_DIGEST]
        name = f"{name[: _MAX_KEY - _DIGEST - 1]}_{digest}"
    return ANNOTATION_PREFIX + name


def _refused_ids(
    resource: Resource, ids: Sequence[str], known: Mapping[str, Unit], in_use: Mapping[str, str]
) -> AllocationRefusal | None:
    if unknown := [id_ for id_ in ids if id_ not in known]:
        reason = f"unknown device {_first_few(unknown)}; the resource has {len(known)} devices now"
        return _refusal(resource, "unknown_id", reason)
    if twice := [id_ for id_, count in Counter(ids).items() if count > 1]:
        return _refusal(resource, "in_use", f"{_first_few(twice)} is requested twice in one request")
    if used := [f"{id_} ({in_use[id_]})" for id_ in ids if id_ in in_use]:
        return _refusal(resource, "in_use", f"another container has {_first_few(used, _MAX_USED)}")
    return None


def _refused_units(
    resource: Resource, units: tuple[Unit, ...], policy: AllocationPolicy, is_in_spec: IsInSpec
) -> AllocationRefusal | None:
    if resource.fails_many and len(units) > 1 and any(unit.replica is not None for unit in units):
        reason = f"{len(units)} replicas requested; request 1: more replicas give no larger share of a GPU"
        return _refusal(resource, "too_many", reason)
    if unhealthy := [_with_reason(unit) for unit in units if unit.health == "unhealthy" and _reason(unit)]:
        return _refusal(resource, "unhealthy", f"{_first_few(unhealthy)} is unhealthy")
    if missing := [text for unit in units if (text := _missing_names(unit, is_in_spec))]:
        return _refusal(resource, "no_spec", f"no CDI spec has {_first_few(missing)}; see 'cdigen status'")
    if unhealthy := [unit.id for unit in units if unit.health == "unhealthy"]:
        return _refusal(resource, "unhealthy", f"{_first_few(unhealthy)} is unhealthy")
    if policy.mps and policy.mps.problem:
        return _refusal(resource, "no_mps", f"MPS is not available: {policy.mps.problem}")
    return None


def _refusal(resource: Resource, cause: str, reason: str) -> AllocationRefusal:
    return AllocationRefusal(cause=cause, reason=f"{resource.name}: {reason}")


def _missing_names(unit: Unit, is_in_spec: IsInSpec) -> str:
    """Return the names of UNIT that no spec has, or "". If UNIT has no names, return the id of UNIT."""
    if not unit.cdi_names:
        return unit.id
    return ", ".join(name for name in unit.cdi_names if not is_in_spec(name))


def _with_reason(unit: Unit) -> str:
    return f"{unit.id} ({_reason(unit)})"


def _reason(unit: Unit) -> str:
    """Return the reason why UNIT is unhealthy, or "" if the reason is unknown."""
    device = unit.partition or unit.accelerator
    causes = ", ".join(cause.cause for cause in device.causes)
    return causes or unit.accelerator.problem or device.problem


def _first_few(texts: Sequence[str], most: int = _MAX_SHOWN) -> str:
    more = len(texts) - _SHOWN
    first = [shown(text[:most]) for text in texts[:_SHOWN]]
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def _variables(units: Iterable[Unit], policy: AllocationPolicy) -> tuple[tuple[str, str], ...]:
    found = []
    if policy.variable:
        devices = dict.fromkeys(_visible_device(unit) for unit in units)
        found.append((policy.variable, ",".join(devices)))
    if policy.mps:
        found.append((MPS_VARIABLE, policy.mps.pipe_directory))
    return tuple(found)


def _visible_device(unit: Unit) -> str:
    """Return the UUID of UNIT for NVIDIA_VISIBLE_DEVICES, or the index if the UUID is unknown."""
    gpu, part = unit.accelerator, unit.partition
    return (part or gpu).uuid or (str(gpu.index) if part is None else f"{gpu.index}:{part.label}")


def _nodes(units: Iterable[Unit], common: tuple[HostNode, ...]) -> tuple[PassedPath, ...]:
    found = {}
    for unit in units:
        part = unit.partition
        # A partition with its own address needs no nodes of its GPU (model.inventory).
        own = unit.accelerator.nodes if part is None or not part.address else ()
        for node in (*own, *(part.nodes if part else ())):
            found[node.path] = node
    nodes = {node.path: node for node in common} | found
    return tuple(PassedPath(host_path=node.host_path, path=node.path) for node in nodes.values())


def _folders(mps: Mps | None) -> tuple[PassedPath, ...]:
    if mps is None:
        return ()
    pipe = PassedPath(host_path=mps.pipe_directory, path=mps.pipe_directory)
    if not mps.shm_directory:
        return (pipe,)
    return pipe, PassedPath(host_path=mps.shm_directory, path=_SHM)
