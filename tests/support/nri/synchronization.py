"""The messages in which a runtime tells its state to a plugin that registers: `parts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdigen.nri.wire.protobuf import message_class

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ENVELOPE = 256  # what a call has besides its payload, at most
LEAST = 8  # minObjsPerMsg


def parts(pods: Sequence[Any], containers: Sequence[Any], *, limit: int) -> Iterator[Any]:
    """Yield the requests of Synchronize, none of more than LIMIT bytes.

    One that is too large is tried again with fewer pods and containers, both in proportion, and as many of
    each are in the next ones: so containers come before their pods. Source: containerd/nri,
    pkg/adaptation/plugin.go, synchronize and recalcObjsPerSyncMsg, which gives up where eight are too large;
    here they go one by one.
    """
    left = [[row.SerializeToString() for row in rows] for rows in (pods, containers)]
    counts = [len(rows) for rows in left]
    more = True
    while more:
        counts = [min(count, len(rows)) for count, rows in zip(counts, left, strict=True)]
        now = [rows[:count] for count, rows in zip(counts, left, strict=True)]
        rest = [rows[count:] for count, rows in zip(counts, left, strict=True)]
        more = any(rest)
        request = message_class("SynchronizeRequest")(pods=now[0], containers=now[1], more=more)
        size = request.ByteSize() + ENVELOPE
        if size > limit and sum(counts) > len(counts):
            counts, more = fewer(counts, min(limit / size, 0.9)), True
            continue
        left = rest
        yield request


def fewer(counts: list[int], factor: float) -> list[int]:
    """Return how many pods and containers are tried next."""
    less = [int(count * factor) for count in counts]
    if sum(less) >= LEAST:
        return less
    return [LEAST // 2] * 2 if sum(counts) > LEAST else [1, 1]
