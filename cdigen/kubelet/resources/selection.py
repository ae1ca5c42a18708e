"""``select`` applies the rows of ``kubelet: {resources}`` to a device."""

from __future__ import annotations

import re
from functools import lru_cache

from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from cdigen.config import ResourceRow
    from cdigen.kubelet.resources.naming import NamingCandidate

# The value of ``profiles`` in a row for whole devices, which have no profile.
WHOLE = "none"
# NVIDIA's names of MIG profiles contain the memory size, for example 1g.10gb.
_OF_PROFILE = re.compile(r"\b([0-9]+)gb\b")
_MIB = 1024


def select(rows: tuple[ResourceRow, ...], candidate: NamingCandidate) -> ResourceRow | None:
    """Return the first of ROWS that matches CANDIDATE, or None if no row matches."""
    return next((row for row in rows if _is_match(row, candidate)), None)


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
