"""Where pods are: ``read_claim`` reads a pod's annotations, ``written`` says what to write.

Two forms are read: the JSON by containers, and gpushare's older index. What is torn, foreign or impossible
makes a claim that is *floating*: it is on one of the node's GPUs, and nobody knows on which.
"""

from __future__ import annotations

import json

from cdigen.gpushare import names
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.gpushare.pods import Ask, Pod

# What is read of a pod.
READ = (names.INDEX, names.ALLOCATION, names.ASSIGNED, names.ASSUME_TIME)
# An annotation is never longer, and a GPU's index neither.
_MAX_TEXT = 1 << 16
_MAX_DIGITS = 4


@frozen
class Placement:
    """On which GPU each asking container of a pod is: (index of the container, index of the GPU).

    With ``together`` units there is one GPU for all of it, ``gpu``, even where no container but an init
    container asks; -1 where the kubelet has torn the pod apart after all.
    """

    containers: tuple[tuple[int, int], ...]
    gpu: int = -1


@frozen
class Claim:
    """What a pod has on a node: ``on`` are units by GPU; ``floating`` ones are on an unknown GPU."""

    on: tuple[tuple[int, int], ...] = ()
    floating: int = 0


def claim_of(ask: Ask, placement: Placement | None) -> Claim:
    """Return what ASK holds at PLACEMENT; without one all of it floats."""
    if placement is None:
        return Claim(floating=ask.total)
    if ask.together and placement.gpu >= 0:
        return Claim(on=((placement.gpu, ask.together),))
    units, on = dict(ask.shares), dict[int, int]()
    for container, gpu in placement.containers:
        on[gpu] = on.get(gpu, 0) + units[container]
    if ask.together > (used := sum(on.values())):
        # Of a pod that was torn apart: what its init containers had besides may be of each of them.
        on = {gpu: units + ask.together - used for gpu, units in on.items()}
    return Claim(on=tuple(sorted(on.items())))


def read_placement(pod: Pod) -> Placement | None:
    """Return where POD's annotations say that it is; None where they do not say it, or not for all of it."""
    given = dict(pod.annotations)
    found = _by_allocation(pod.ask, given.get(names.ALLOCATION, ""))
    return found or _by_index(pod.ask, given.get(names.INDEX, ""))


def is_assigned(pod: Pod) -> bool:
    """Return whether the node has said that POD's containers have their GPUs."""
    return dict(pod.annotations).get(names.ASSIGNED) == "true"


def written(ask: Ask, placement: Placement, sizes: Mapping[int, int], now_ns: int) -> dict[str, str]:
    """Return what the extender writes on a pod that asks ASK, placed at PLACEMENT at NOW_NS (since 1970).

    SIZES are the units of each GPU. The JSON has app containers alone, as other readers want it.
    """
    units = dict(ask.shares)
    gpus = sorted({gpu for _, gpu in placement.containers} | ({placement.gpu} - {-1}))
    by_container = {str(container): {str(gpu): units[container]} for container, gpu in placement.containers}
    return {
        names.INDEX: ",".join(map(str, gpus)),
        names.OF_GPU: str(max(sizes.get(gpu, 0) for gpu in gpus)),
        names.OF_POD: str(ask.total),
        names.ASSUME_TIME: str(now_ns),
        names.ASSIGNED: "false",
        names.ALLOCATION: json.dumps(by_container, separators=(",", ":")),
    }


def _by_allocation(ask: Ask, text: str) -> Placement | None:
    """Read {container: {GPU: units}}: each asking container on one GPU, with the units that it asks."""
    if not text or len(text) > _MAX_TEXT:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    found: list[tuple[int, int]] = []
    for container, units in ask.shares:
        entry = document.get(str(container))
        if not isinstance(entry, dict) or len(entry) != 1:
            return None
        ((index, amount),) = entry.items()
        gpu = _index(index)
        if gpu is None or amount != units or isinstance(amount, bool):
            return None
        found.append((container, gpu))
    gpus = {gpu for _, gpu in found}
    if not found:
        return None
    return Placement(containers=tuple(found), gpu=gpus.pop() if len(gpus) == 1 else -1)


def _by_index(ask: Ask, text: str) -> Placement | None:
    gpu = _index(text)
    if gpu is None:
        return None
    return Placement(containers=tuple((container, gpu) for container, _ in ask.shares), gpu=gpu)


def _index(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None
