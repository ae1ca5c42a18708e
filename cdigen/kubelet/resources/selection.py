"""Which devices a configuration means: ``select`` by the rows of ``kubelet: {resources}``."""

from __future__ import annotations

import re
from functools import lru_cache

from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from cdigen.config import ResourceRow
    from cdigen.kubelet.resources.naming import Candidate

# The word for what has no profile: whole devices.
WHOLE = "none"
# NVIDIA's names of MIG profiles have it: 1g.10gb.
_OF_PROFILE = re.compile(r"\b([0-9]+)gb\b")
_MIB = 1024


def select(rows: tuple[ResourceRow, ...], candidate: Candidate) -> ResourceRow | None:
    """Return the first of ROWS that is about CANDIDATE, None where none is."""
    return next((row for row in rows if _is_meant(row, candidate)), None)


def is_doubtful(row: ResourceRow, candidate: Candidate) -> bool:
    """Return whether ROW would be about CANDIDATE but for its memory, which nobody knows."""
    bare = replace(row, min_memory_gb=0, max_memory_gb=0)
    return row != bare and memory_gb(candidate) is None and _is_meant(bare, candidate)


def is_any_of(words: Collection[str], candidate: Candidate) -> bool:
    """Return whether one of WORDS means CANDIDATE: its UUID, address, index or CDI name, or its GPU's."""
    return any(word.casefold() in candidate.handles for word in words)


def memory_gb(candidate: Candidate) -> int | None:
    """Return the memory of CANDIDATE in GB, None where nobody knows it.

    It is what the device is sold by, as its profile or its model says, or else what it has, up to a whole GiB
    (MI300X: 192): a T4 of 16 GB has 15 GiB for programs, and NVML tells it later than the kernel its model.
    """
    gpu, partition = candidate.device.accelerator, candidate.device.partition
    if partition is None:
        sold = candidate.names.memory_gb(gpu.model)
    else:
        found = _OF_PROFILE.search(partition.profile)
        sold = int(found[1]) if found else None
    mib = (partition or gpu).memory_mib
    return sold if sold is not None or mib is None else -(-mib // _MIB)


def _is_meant(row: ResourceRow, candidate: Candidate) -> bool:
    device = candidate.device
    profile = device.partition.profile if device.partition else ""
    return (
        (not row.kind or any(name.startswith(f"{row.kind}=") for name in device.names))
        and (not row.models or _matches(row.models, device.accelerator.model))
        and (not row.profiles or (_matches(row.profiles, profile) if profile else WHOLE in row.profiles))
        and (not row.devices or is_any_of(row.devices, candidate))
        and _has_memory(row, candidate)
    )


def _has_memory(row: ResourceRow, candidate: Candidate) -> bool:
    if not row.min_memory_gb and not row.max_memory_gb:
        return True
    memory = memory_gb(candidate)
    return memory is not None and row.min_memory_gb <= memory <= (row.max_memory_gb or memory)


def _matches(patterns: tuple[str, ...], text: str) -> bool:
    return any(_pattern(pattern).fullmatch(text) for pattern in patterns)


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> re.Pattern[str]:
    # Stars in a row match as one does, and take no longer.
    parts = re.split(r"\*+", pattern)
    return re.compile(".*".join(map(re.escape, parts)), re.IGNORECASE)
