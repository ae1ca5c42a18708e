"""The coordinates in the picture of a topology, without SVG: ``laid_out``. All lengths are in pixels.

NUMA nodes are in one row above the islands, or in two rows with the islands between the rows. Therefore a
straight line leads from each device to its island.
"""

from __future__ import annotations

from cdigen.topology.boxes import GAP, Box, numa_boxes, row_of
from cdigen.topology.widths import text_width
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator

    # The positions of the devices of an island.
    Members = tuple[int, ...]

# The maximum number of devices in a picture with one row.
_ONE_ROW = 4
# The distance between a row and the islands, the height of an island, and the distance between two islands.
_BAND, ISLAND_HEIGHT, _BETWEEN = 22, 28, 12
# The length of an island beyond its outermost wires.
_BEYOND = 20


@frozen
class Wire:
    """A vertical line at ``x`` from a device to its island."""

    x: int
    device_y: int
    island_y: int


@frozen
class Island:
    """The bar of the island with ``members``, and its wires. A wire that would cross a device is omitted."""

    members: Members
    x: int
    y: int
    width: int
    wires: tuple[Wire, ...]


@frozen
class Layout:
    """The contents of the picture, and the size of the picture."""

    boxes: tuple[Box, ...]
    islands: tuple[Island, ...]
    width: int
    height: int


@frozen
class _Bar:
    """The horizontal extent of an island, and its lane. Islands that overlap are in different lanes."""

    members: Members
    left: int
    right: int
    lane: int


def laid_out(devices: tuple[Accelerator, ...], height: int, labels: dict[Members, str]) -> Layout:
    """Return the layout of DEVICES, each with HEIGHT. LABELS has the text of each island to draw."""
    first, second = _rows(numa_boxes(devices), len(devices))
    above, below = row_of(first, height, flipped=False), row_of(second, height, flipped=bool(labels))
    width = max(_end(above), _end(below))
    above, below = _centred(above, width), _centred(below, width)
    bars = _bars(labels, (*above, *below), {box.place for box in _devices(above)})
    shift = max(0, -min((bar.left for bar in bars), default=0))
    width = max(width, *(bar.right for bar in bars), 0) + shift
    lanes = 1 + max((bar.lane for bar in bars), default=-1)
    top = max((box.height for box in above), default=0)
    band = 2 * _BAND + lanes * (ISLAND_HEIGHT + _BETWEEN) - _BETWEEN if lanes else 2 * GAP
    above = tuple(box.moved(shift, 0) for box in above)
    below = tuple(box.moved(shift, top + band) for box in below)
    boxes = (*above, *below)
    islands = tuple(
        _island(bar, shift, top + _BAND + bar.lane * (ISLAND_HEIGHT + _BETWEEN), _devices(boxes))
        for bar in bars
    )
    end = top + (band - _BAND if lanes else 0)
    return Layout(
        boxes=boxes,
        islands=islands,
        width=width,
        height=max(end, *(box.y + box.height for box in boxes), 0),
    )


def _rows(nodes: tuple[Box, ...], count: int) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """Return the NUMA nodes above and below the islands. Two rows have about half of COUNT devices each."""
    if count <= _ONE_ROW or len(nodes) < 2:
        return nodes, ()
    sizes = [len(_devices((node,))) for node in nodes]
    cut = min(range(1, len(nodes)), key=lambda at: abs(sum(sizes[:at]) - sum(sizes[at:])))
    return nodes[:cut], nodes[cut:]


def _devices(boxes: tuple[Box, ...]) -> tuple[Box, ...]:
    return tuple(box for outer in boxes for box in outer.every() if box.kind == "device")


def _end(row: tuple[Box, ...]) -> int:
    return max((box.x + box.width for box in row), default=0)


def _centred(row: tuple[Box, ...], width: int) -> tuple[Box, ...]:
    return tuple(box.moved((width - _end(row)) // 2, 0) for box in row)


def _bars(labels: dict[Members, str], boxes: tuple[Box, ...], above: set[int]) -> tuple[_Bar, ...]:
    """Return the extent of each island, in the first lane with enough space.

    Islands with devices only in the upper row (ABOVE) come first. Islands with devices only in the lower row
    come last. In this order, fewer wires cross islands.
    """
    middles = {box.place: box.x + box.width // 2 for box in _devices(boxes)}
    order = sorted(labels, key=lambda members: (-sum(n in above for n in members) / len(members), members))
    bars: list[_Bar] = []
    for members in order:
        left = min(middles[n] for n in members) - _BEYOND
        right = max(middles[n] for n in members) + _BEYOND
        missing = max(0, text_width(labels[members], 12, is_bold=True) + 2 * _BEYOND - (right - left))
        bar = _Bar(members=members, left=left - missing // 2, right=right + missing - missing // 2, lane=0)
        occupied = {one.lane for one in bars if one.left < bar.right + GAP and bar.left < one.right + GAP}
        bars.append(replace(bar, lane=min(set(range(len(bars) + 1)) - occupied)))
    return tuple(bars)


def _island(bar: _Bar, shift: int, y: int, devices: tuple[Box, ...]) -> Island:
    wires = []
    for box in devices:
        if box.place in bar.members:
            edge = box.y if box.flipped else box.y + box.height
            near, far = sorted((edge, y))
            nearby = (one for one in devices if one is not box and one.x < box.x + box.width)
            if not any(box.x < one.x + one.width and near <= one.y < far for one in nearby):
                end = y + ISLAND_HEIGHT if box.flipped else y
                wires.append(Wire(x=box.x + box.width // 2, device_y=edge, island_y=end))
    return Island(
        members=bar.members, x=bar.left + shift, y=y, width=bar.right - bar.left, wires=tuple(wires)
    )
