"""The messages with the state of a runtime for a plugin that registers: `parts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdigen.nri.wire.messages import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ENVELOPE = 256  # the maximum size of a call without its payload
LEAST = 8  # minObjsPerMsg


def parts(pods: Sequence[Any], containers: Sequence[Any], *, limit: int) -> Iterator[Any]:
    """Yield the requests of Synchronize, each with at most LIMIT bytes.

    A request that is too large is split into smaller ones, with pods and containers in proportion. Therefore
    containers may come before their pods. Source: containerd/nri, pkg/adaptation/plugin.go, synchronize and
    recalcObjsPerSyncMsg. containerd fails if eight objects are too large; this function sends them singly.
    """
    left = [[row.SerializeToString() for row in rows] for rows in (pods, containers)]
    counts = [len(rows) for rows in left]
    more = True
    while more:
        counts = [min(count, len(rows)) for count, rows in zip(counts, left, strict=True)]
        now = [rows[:count] for count, rows in zip(counts, left, strict=True)]
        rest = [rows[count:] for count, rows in zip(counts, left, strict=True)]
        more = any(rest)
        request = CLASSES["SynchronizeRequest"](pods=now[0], containers=now[1], more=more)
        size = request.ByteSize() + ENVELOPE
        if size > limit and sum(counts) > len(counts):
            counts, more = fewer(counts, min(limit / size, 0.9)), True
            continue
        left = rest
        yield request


def fewer(counts: list[int], factor: float) -> list[int]:
    """Return smaller numbers of pods and containers for the next attempt."""
    less = [int(count * factor) for count in counts]
    if sum(less) >= LEAST:
        return less
    return [LEAST // 2] * 2 if sum(counts) > LEAST else [1, 1]
