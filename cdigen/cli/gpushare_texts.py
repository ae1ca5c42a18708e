"""The tables of ``kubectl inspect gpushare``, with gpushare's columns and words.

Source: AliyunContainerService/gpushare-device-plugin, cmd/inspect/display.go. Cordoned nodes have their row,
and are not in the total of the cluster: nothing can be scheduled there. A line behind the total names them.
"""

from __future__ import annotations

from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdigen.gpushare.claims import Claim
    from cdigen.gpushare.usage import Usage

_GAP = 2
# A GPU with more units than this has units of MiB.
_MOST_GIB = 100
_TOTAL = "Allocated/Total GPU Memory In Cluster:"


def summary(found: Sequence[Usage]) -> str:
    """Return a row for each node, and the total."""
    count = max((_columns(usage) for usage in found), default=0)
    has_pending = any(usage.pending for usage in found)
    header = ["NAME", "IPADDRESS", *(f"GPU{gpu}(Allocated/Total)" for gpu in range(count))]
    rows = [[*header, *(["PENDING(Allocated)"] if has_pending else []), f"GPU Memory({_unit(found)})"]]
    for usage in found:
        sizes, used = {gpu.index: gpu.units for gpu in usage.offer.gpus}, dict(usage.room.used)
        cells = [f"{used.get(gpu, 0)}/{sizes.get(gpu, 0)}" for gpu in range(count)]
        pending = [str(usage.pending or "")] if has_pending else []
        total = f"{usage.used}/{usage.offer.capacity}"
        rows.append([shown(usage.offer.node), _address(usage), *cells, *pending, total])
    lines = _aligned(rows)
    total = _share(*_sums(found))
    return _text([*lines, _ruler(lines), _TOTAL, total, *_cordoned(found)])


def details(found: Sequence[Usage]) -> str:
    """Return a table of pods for each node, and the total."""
    lines: list[str] = []
    for usage in found:
        lines += ["", *_aligned([["NAME:", shown(usage.offer.node)], ["IPADDRESS:", _address(usage)]]), ""]
        lines += _node(usage)
    return _text([*lines, "", "", f"{_TOTAL}  {_share(*_sums(found))}", *_cordoned(found)])


def _node(usage: Usage) -> list[str]:
    count = _columns(usage)
    header = ["NAME", "NAMESPACE", *(f"GPU{gpu}(Allocated)" for gpu in range(count))]
    rows = [[*header, *(["Pending(Allocated)"] if usage.pending else [])]]
    for pod, claim in usage.pods:
        cells = _cells(usage, claim, count)
        rows.append([shown(pod.name), shown(pod.namespace), *(cells if usage.pending else cells[:-1])])
    rows.append(["Allocated :", f"{usage.used} ({_percent(usage.used, usage.offer.capacity)}%)"])
    rows.append(["Total :", str(usage.offer.capacity)])
    lines = _aligned(rows)
    return [*lines, _ruler(lines)]


def _cells(usage: Usage, claim: Claim, count: int) -> list[str]:
    """Return what CLAIM has of each GPU; the last is what it has of an unknown one."""
    known, on, lost = {gpu.index for gpu in usage.offer.gpus}, [0] * count, claim.floating
    for gpu, units in claim.on:
        if gpu in known:
            on[gpu] += units
        else:
            lost += units
    return [str(units) for units in (*on, lost)]


def _columns(usage: Usage) -> int:
    return max((gpu.index + 1 for gpu in usage.offer.gpus), default=0)


def _unit(found: Iterable[Usage]) -> str:
    is_mib = any(gpu.units > _MOST_GIB for usage in found for gpu in usage.offer.gpus)
    return "MiB" if is_mib else "GiB"


def _address(usage: Usage) -> str:
    return shown(usage.offer.address) or "unknown"


def _sums(found: Iterable[Usage]) -> tuple[int, int]:
    counted = [usage for usage in found if not usage.offer.is_cordoned]
    return sum(usage.used for usage in counted), sum(usage.offer.capacity for usage in counted)


def _cordoned(found: Iterable[Usage]) -> list[str]:
    out = [f"{shown(each.offer.node)} {each.used}/{each.offer.capacity}"
           for each in found if each.offer.is_cordoned]  # fmt: skip
    return [f"Cordoned, not in the total: {', '.join(out)}"] if out else []


def _share(used: int, total: int) -> str:
    return f"{used}/{total} ({_percent(used, total)}%)"


def _percent(used: int, total: int) -> int:
    return used * 100 // total if total else 0


def _aligned(rows: list[list[str]]) -> list[str]:
    """Return ROWS, of which some may be shorter, as lines with their cells below each other."""
    widths = [0] * max(map(len, rows))
    for row in rows:
        for place, cell in enumerate(row):
            widths[place] = max(widths[place], len(cell))
    return ["".join(f"{cell:{width + _GAP}}" for cell, width in zip(row, widths, strict=False)).rstrip()
            for row in rows]  # fmt: skip


def _ruler(lines: list[str]) -> str:
    return "-" * max(map(len, lines))


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
