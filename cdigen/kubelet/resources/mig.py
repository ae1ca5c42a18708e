"""How parts of GPUs are offered: ``named`` by a strategy, as NVIDIA's and AMD's plugins call them.

``none``: not at all. ``mixed``: a resource per profile. ``single``: all as whole GPUs are, which a pod can
use only if they are alike; so a GPU that is split otherwise than most is not offered. NVIDIA's and AMD's
plugins offer nothing at all then (k8s-device-plugin, internal/rm/device_map.go).
"""

from __future__ import annotations

from collections import Counter

from cdigen.kubelet.resources.naming import finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.kubelet.resources.naming import Candidate
    from cdigen.model.findings import Finding

    # A device with the name of its resource.
    Named = tuple[Candidate, str]

_HINT = "'nvidia-smi mig' or 'amd-smi' splits it as the others; 'mixed' offers any"
_WHOLE = ""


def named(candidates: Iterable[Candidate], strategy: str) -> tuple[list[Named], list[Finding]]:
    """Return CANDIDATES, all of one vendor, with the names of their resources; and why others have none."""
    gpus, found = _by_gpu(candidates)
    found += _empty(gpus)
    offered, more = _single(gpus) if strategy == "single" else _apart(gpus, is_none=strategy == "none")
    return offered, [*found, *more]


def _apart(gpus: list[list[Candidate]], *, is_none: bool) -> tuple[list[Named], list[Finding]]:
    """Return the units of GPUS, each by its profile; IS_NONE: of whole ones alone."""
    found: list[Finding] = []
    offered: list[Named] = []
    for units in gpus:
        if is_none and any(each.device.partition or each.is_split for each in units):
            text = "is not offered: it is split, and the strategy is 'none'"
            found.append(finding("info", "resource-strategy", units[0].device, text))
        else:
            offered += [(each, _name(each)) for each in units if not each.is_split]
    return offered, found


def _single(gpus: list[list[Candidate]]) -> tuple[list[Named], list[Finding]]:
    """Return the units of those of GPUS that are as most are: of one profile, or whole."""
    found: list[Finding] = []
    offered: list[Named] = []
    for name in dict.fromkeys(units[0].names.name for units in gpus):
        shapes = [(units, _profiles(units)) for units in gpus if units[0].names.name == name]
        counts = Counter(profiles[0] for _, profiles in shapes if len(profiles) == 1)
        # Of as many each, those that are split: nobody chooses this strategy for whole GPUs. Of these, the
        # first by name: the order of GPUs does not matter.
        usual = min(
            counts, key=lambda profile: (-counts[profile], profile == _WHOLE, profile), default=_WHOLE
        )
        for units, profiles in shapes:
            if profiles == (usual,):
                offered += [(each, name) for each in units if not each.is_split]
            elif profiles:
                text = f"is not offered: it is {_said(profiles)}, others of {name} are {_said((usual,))}"
                hint = f"{_HINT}, and 'resources' in the configuration gives it another name"
                found.append(finding("error", "resource-strategy", units[0].device, text, hint))
    return offered, found


def _profiles(units: list[Candidate]) -> tuple[str, ...]:
    """Return the profiles of a GPU's UNITS, of a whole one "", of one that is split into nothing none."""
    parts = [each.device.partition.profile for each in units if each.device.partition]
    if not parts:
        return () if units[0].is_split else (_WHOLE,)
    return tuple(dict.fromkeys(parts))


def _said(profiles: tuple[str, ...]) -> str:
    return "whole" if profiles == (_WHOLE,) else f"split into {' and '.join(profiles)}"


def _empty(gpus: list[list[Candidate]]) -> Iterator[Finding]:
    for units in gpus:
        # Its partitions may be in a resource by another name.
        if len(units) == 1 and units[0].is_split and not units[0].device.accelerator.partitions:
            text = "is not offered: it is to be split, and has no parts"
            yield finding("info", "resource-strategy", units[0].device, text)


def _by_gpu(candidates: Iterable[Candidate]) -> tuple[list[list[Candidate]], list[Finding]]:
    """Return CANDIDATES by their GPUs, without parts of which nobody knows what they are like."""
    gpus: dict[tuple[str, str, int], list[Candidate]] = {}
    found: list[Finding] = []
    for each in candidates:
        gpu, partition = each.device.accelerator, each.device.partition
        if partition is not None and not partition.profile:
            text = "is not offered: its profile is not known"
            hint = "'cdigen status' says why; 'resources' in the configuration can give it a name"
            found.append(finding("error", "resource-strategy", each.device, text, hint))
            continue
        gpus.setdefault((gpu.device_class, gpu.address, gpu.index), []).append(each)
    return list(gpus.values()), found


def _name(candidate: Candidate) -> str:
    names, gpu, partition = candidate.names, candidate.device.accelerator, candidate.device.partition
    profile = partition.profile if partition is not None else names.profile_of(gpu)
    if not profile or not names.partition:
        return names.name
    return names.partition.format(profile=profile.replace("+", "."))
