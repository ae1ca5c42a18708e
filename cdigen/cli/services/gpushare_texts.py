"""The tables of ``kubectl inspect gpushare``, with the columns and texts of gpushare.

Source: AliyunContainerService/gpushare-device-plugin, cmd/inspect/display.go. The total of the cluster does
not include cordoned nodes, because no pod can be scheduled there. A cordoned node has a row in the table. The
line after the total lists the cordoned nodes.
"""

from __future__ import annotations

from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdigen.gpushare.free_capacity import NodeUsage
    from cdigen.gpushare.reservations import Reservation

_GAP = 2
# The unit is MiB if a GPU has more units than this limit.
_MOST_GIB = 100
_TOTAL = "Allocated/Total GPU Memory In Cluster:"


def summary(found: Sequence[NodeUsage]) -> str:
    """Return a table with a row for each node, and the total."""
    count = max((_columns(usage) for usage in found), default=0)
    has_pending = any(usage.free.unplaced for usage in found)
    header = ["NAME", "IPADDRESS", *(f"GPU{gpu}(Allocated/Total)" for gpu in range(count))]
    rows = [[*header, *(["PENDING(Allocated)"] if has_pending else []), f"GPU Memory({_unit(found)})"]]
    for usage in found:
        sizes, used = {gpu.index: gpu.units for gpu in usage.node.gpus}, dict(usage.free.used)
        cells = [f"{used.get(gpu, 0)}/{sizes.get(gpu, 0)}" for gpu in range(count)]
        pending = [str(usage.free.unplaced or "")] if has_pending else []
        total = f"{usage.free.reserved}/{usage.node.capacity}"
        rows.append([shown(usage.node.name), _address(usage), *cells, *pending, total])
    lines = _aligned(rows)
    total = _ratio(*_sums(found))
    return _text([*lines, _ruler(lines), _TOTAL, total, *_cordoned(found)])


def details(found: Sequence[NodeUsage]) -> str:
    """Return a table of pods for each node, and the total."""
    lines: list[str] = []
    for usage in found:
        lines += ["", *_aligned([["NAME:", shown(usage.node.name)], ["IPADDRESS:", _address(usage)]]), ""]
        lines += _node(usage)
    return _text([*lines, "", "", f"{_TOTAL}  {_ratio(*_sums(found))}", *_cordoned(found)])


def _node(usage: NodeUsage) -> list[str]:
    count = _columns(usage)
    header = ["NAME", "NAMESPACE", *(f"GPU{gpu}(Allocated)" for gpu in range(count))]
    rows = [[*header, *(["Pending(Allocated)"] if usage.free.unplaced else [])]]
    for pod, reservation in usage.pods:
        cells = _cells(usage, reservation, count)
        rows.append([shown(pod.name), shown(pod.namespace), *(cells if usage.free.unplaced else cells[:-1])])
    used = usage.free.reserved
    rows.append(["Allocated :", f"{used} ({_percent(used, usage.node.capacity)}%)"])
    rows.append(["Total :", str(usage.node.capacity)])
    lines = _aligned(rows)
    return [*lines, _ruler(lines)]


def _cells(usage: NodeUsage, reservation: Reservation, count: int) -> list[str]:
    """Return the units of RESERVATION for each GPU. The last cell has the units without a known GPU."""
    known, on, pending = {gpu.index for gpu in usage.node.gpus}, [0] * count, reservation.unplaced
    for gpu, units in reservation.on:
        if gpu in known:
            on[gpu] += units
        else:
            pending += units
    return [str(units) for units in (*on, pending)]


def _columns(usage: NodeUsage) -> int:
    return max((gpu.index + 1 for gpu in usage.node.gpus), default=0)


def _unit(found: Iterable[NodeUsage]) -> str:
    is_mib = any(gpu.units > _MOST_GIB for usage in found for gpu in usage.node.gpus)
    return "MiB" if is_mib else "GiB"


def _address(usage: NodeUsage) -> str:
    return shown(usage.node.address) or "unknown"


def _sums(found: Iterable[NodeUsage]) -> tuple[int, int]:
    usages = [usage for usage in found if not usage.node.is_cordoned]
    return sum(usage.free.reserved for usage in usages), sum(usage.node.capacity for usage in usages)


def _cordoned(found: Iterable[NodeUsage]) -> list[str]:
    out = [f"{shown(each.node.name)} {each.free.reserved}/{each.node.capacity}"
           for each in found if each.node.is_cordoned]  # fmt: skip
    return [f"Cordoned, not in the total: {', '.join(out)}"] if out else []


def _ratio(used: int, total: int) -> str:
    return f"{used}/{total} ({_percent(used, total)}%)"


def _percent(used: int, total: int) -> int:
    return used * 100 // total if total else 0


def _aligned(rows: list[list[str]]) -> list[str]:
    """Return ROWS as lines with aligned columns. The rows can have different numbers of cells."""
    widths = [0] * max(map(len, rows))
    for row in rows:
        for column, cell in enumerate(row):
            widths[column] = max(widths[column], len(cell))
    return ["".join(f"{cell:{width + _GAP}}" for cell, width in zip(row, widths, strict=False)).rstrip()
            for row in rows]  # fmt: skip


def _ruler(lines: list[str]) -> str:
    return "-" * max(map(len, lines))


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
