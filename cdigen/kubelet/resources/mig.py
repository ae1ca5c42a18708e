"""``named`` returns the resource name of each device, by a strategy of NVIDIA's and AMD's plugins.

With the strategy ``none``, partitions are not advertised. With ``mixed``, each profile is a resource. With
``single``, partitions are advertised under the resource name of whole GPUs. A pod can use such a resource
only if all partitions are equal. So cdigen does not advertise a GPU whose split differs from the most
frequent split. In this case, NVIDIA's and AMD's plugins advertise no GPU at all (k8s-device-plugin,
internal/rm/device_map.go).
"""

from __future__ import annotations

from collections import Counter

from cdigen.kubelet.resources.naming import finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.kubelet.resources.naming import NamingCandidate
    from cdigen.model.findings import Finding

    # A device with the name of its resource.
    Named = tuple[NamingCandidate, str]

_HINT = "split the GPU like the other GPUs with 'nvidia-smi mig' or 'amd-smi', or use the strategy 'mixed'"
_WHOLE = ""


def named(candidates: Iterable[NamingCandidate], strategy: str) -> tuple[list[Named], list[Finding]]:
    """Return CANDIDATES of one vendor with their resource names, and findings on left-out devices."""
    gpus, found = _by_gpu(candidates)
    found += _empty(gpus)
    offered, more = _single(gpus) if strategy == "single" else _by_profile(gpus, is_none=strategy == "none")
    return offered, [*found, *more]


def _by_profile(gpus: list[list[NamingCandidate]], *, is_none: bool) -> tuple[list[Named], list[Finding]]:
    """Return the devices of GPUS with names by profile; if IS_NONE is set, return only whole GPUs."""
    found: list[Finding] = []
    offered: list[Named] = []
    for units in gpus:
        if is_none and any(each.device.partition or each.is_split for each in units):
            text = "is not advertised: it is split, and the strategy is 'none'"
            found.append(finding("info", "resource-strategy", units[0].device, text))
        else:
            offered += [(each, _name(each)) for each in units if not each.is_split]
    return offered, found


def _single(gpus: list[list[NamingCandidate]]) -> tuple[list[Named], list[Finding]]:
    """For each resource name, return the devices of the GPUs with the most frequent profile ("" if whole)."""
    found: list[Finding] = []
    offered: list[Named] = []
    for name in dict.fromkeys(units[0].names.name for units in gpus):
        shapes = [(units, _profiles(units)) for units in gpus if units[0].names.name == name]
        counts = Counter(profiles[0] for _, profiles in shapes if len(profiles) == 1)
        # At equal counts, split GPUs have precedence, because whole GPUs do not need this strategy. After
        # that, the first profile by name has precedence, so that the order of GPUs does not matter.
        usual = min(
            counts, key=lambda profile: (-counts[profile], profile == _WHOLE, profile), default=_WHOLE
        )
        for units, profiles in shapes:
            if profiles == (usual,):
                offered += [(each, name) for each in units if not each.is_split]
            elif profiles:
                own, others = _format_profiles(profiles), _format_profiles((usual,))
                text = f"is not advertised: it is {own}, and the other GPUs of {name} are {others}"
                hint = f"{_HINT}; 'kubelet: {{resources}}' can give the GPU another resource"
                found.append(finding("error", "resource-strategy", units[0].device, text, hint))
    return offered, found


def _profiles(units: list[NamingCandidate]) -> tuple[str, ...]:
    """Return the profiles of a GPU's UNITS: ("",) for a whole GPU, () for a split GPU without partitions."""
    parts = [each.device.partition.profile for each in units if each.device.partition]
    if not parts:
        return () if units[0].is_split else (_WHOLE,)
    return tuple(dict.fromkeys(parts))


def _format_profiles(profiles: tuple[str, ...]) -> str:
    return "whole" if profiles == (_WHOLE,) else f"split into {' and '.join(profiles)}"


def _empty(gpus: list[list[NamingCandidate]]) -> Iterator[Finding]:
    for units in gpus:
        # Partitions that a row of 'kubelet: {resources}' selects are in the inventory but not in ``units``.
        if len(units) == 1 and units[0].is_split and not units[0].device.accelerator.partitions:
            text = "is not advertised: it is in a partition mode, and has no partitions"
            yield finding("info", "resource-strategy", units[0].device, text)


def _by_gpu(candidates: Iterable[NamingCandidate]) -> tuple[list[list[NamingCandidate]], list[Finding]]:
    """Return CANDIDATES by GPU, and findings on partitions of unknown profile, which are left out."""
    gpus: dict[tuple[str, str, int], list[NamingCandidate]] = {}
    found: list[Finding] = []
    for each in candidates:
        gpu, partition = each.device.accelerator, each.device.partition
        if partition is not None and not partition.profile:
            text = "is not advertised: its profile is unknown"
            hint = "'cdigen status' shows the reason; 'kubelet: {resources}' can give the device a resource"
            found.append(finding("error", "resource-strategy", each.device, text, hint))
            continue
        gpus.setdefault((gpu.device_class, gpu.address, gpu.index), []).append(each)
    return list(gpus.values()), found


def _name(candidate: NamingCandidate) -> str:
    names, profile = candidate.names, candidate.profile
    if not profile or not names.partition:
        return names.name
    return names.partition.replace("{profile}", profile.replace("+", "."))
