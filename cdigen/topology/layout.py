"""The coordinates in the picture of a topology, without SVG: ``laid_out``. All lengths are in pixels.

NUMA nodes are in one row above the islands, or in two rows with the islands between the rows. Therefore a
straight line leads from each device to its island.

A bridge or switch has a box if the paths to several devices separate below it. A bridge that leads to a
single device has no box.
"""

from __future__ import annotations

from cdigen.topology.levels import shared_folders
from cdigen.topology.widths import text_width
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from cdigen.model.inventory import Accelerator

    BoxKind = Literal["numa", "bridge", "switch", "device"]
    # The positions of the devices of an island.
    Members = tuple[int, ...]

DEVICE_WIDTH = 108
GAP = 8
# The padding around the contents of a box, and the heights of captions.
_PADDING = 8
CAPTION, NUMA_CAPTION = 20, 36
# The width of eight devices, with two devices below each switch and two switches below each bridge.
_MAX_WIDTH = 8 * DEVICE_WIDTH + 20 * GAP
# The maximum number of devices in a picture with one row.
_ONE_ROW = 4
# The distance between a row and the islands, the height of an island, and the distance between two islands.
_BAND, ISLAND_HEIGHT, _BETWEEN = 22, 28, 12
# The length of an island beyond its outermost wires.
_BEYOND = 20


@frozen
class Box:
    """A NUMA node, a host bridge, a switch or a device: its caption, its position, and its contents.

    ``place`` is the position of a device in the input. A ``flipped`` box has its caption at the bottom.
    """

    kind: BoxKind
    caption: str = ""
    note: str = ""
    place: int = -1
    x: int = 0
    y: int = 0
    width: int = 0
    height: int = 0
    inside: tuple[Box, ...] = ()
    flipped: bool = False

    def every(self) -> Iterator[Box]:
        """Yield the box and all boxes in it, outer boxes first."""
        yield self
        for box in self.inside:
            yield from box.every()

    def moved(self, x: int, y: int) -> Box:
        """Return the box and its contents, moved by X and Y."""
        return replace(self, x=self.x + x, y=self.y + y, inside=tuple(box.moved(x, y) for box in self.inside))


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
    first, second = _rows(_numa_boxes(devices), len(devices))
    above, below = _row_of(first, height, flipped=False), _row_of(second, height, flipped=bool(labels))
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


def _numa_boxes(devices: tuple[Accelerator, ...]) -> tuple[Box, ...]:
    """Return a box for each NUMA node with its devices, in the order of DEVICES. The unknown node is last."""
    nodes = dict.fromkeys(device.numa_node for device in devices)
    return tuple(_numa_box(devices, node) for node in sorted(nodes, key=lambda node: node is None))


def _numa_box(devices: tuple[Accelerator, ...], node: int | None) -> Box:
    members = [place for place, device in enumerate(devices) if device.numa_node == node]
    cpus = {devices[place].cpus for place in members}
    return Box(
        kind="numa",
        caption="NUMA node unknown" if node is None else f"NUMA node {node}",
        note=f"CPUs {min(cpus)}" if node is not None and len(cpus) == 1 and cpus != {""} else "",
        inside=tuple(_branches(devices, members, 0)),
    )


def _branches(devices: tuple[Accelerator, ...], members: list[int], depth: int) -> Iterator[Box]:
    """Yield a box for each path below DEPTH that several MEMBERS share, and for each remaining device."""
    paths: dict[str, list[int]] = {}
    for place in members:
        path = devices[place].pci_path
        # A device without a further folder shares its path with no other device.
        paths.setdefault(path[depth] if len(path) > depth else f"/{place}", []).append(place)
    for group in paths.values():
        if len(group) == 1:
            yield Box(kind="device", place=group[0])
        else:
            shared = shared_folders(*(devices[place].pci_path for place in group))
            inside = tuple(_branches(devices, group, shared))
            bridge = devices[group[0]].pci_path[shared - 1]
            slots = {devices[place].address.rpartition(".")[0] for place in group}
            if bridge.startswith("pci"):
                yield Box(kind="bridge", caption=f"host bridge {bridge[3:]}", inside=inside)
            elif len(slots) > 1:
                yield Box(kind="switch", caption=f"PCIe switch {bridge}", inside=inside)
            else:
                # Functions of one device, such as the virtual functions of SR-IOV.
                yield Box(kind="switch", caption=f"PCIe device {min(slots)}", inside=inside)


def _row_of(boxes: tuple[Box, ...], height: int, *, flipped: bool) -> tuple[Box, ...]:
    """Return BOXES side by side from position 0, 0, all with the height of the highest box.

    HEIGHT is the height of a device. The contents are at the lower edge of a box, or at the upper edge if
    FLIPPED is set.
    """
    placed, x = [], 0
    for box in boxes:
        placed.append(_sized(box, height, flipped=flipped).moved(x, 0))
        x += placed[-1].width + 2 * GAP
    highest = max((box.height for box in placed), default=0)
    return tuple(_raised(box, highest) for box in placed)


def _raised(box: Box, height: int) -> Box:
    """Return BOX with HEIGHT; its contents stay at its lower or upper edge. A device is only moved."""
    by = 0 if box.flipped else height - box.height
    if box.kind == "device":
        return box.moved(0, by)
    return replace(box, height=height, inside=tuple(each.moved(0, by) for each in box.inside))


def _sized(box: Box, height: int, *, flipped: bool) -> Box:
    """Return BOX at 0, 0 with its contents side by side, in several lines if a single line is too wide."""
    if box.kind == "device":
        return replace(box, width=DEVICE_WIDTH, height=height, flipped=flipped)
    lines: list[list[Box]] = [[]]
    for each in box.inside:
        sized = _sized(each, height, flipped=flipped)
        if lines[-1] and sum(one.width + GAP for one in lines[-1]) + sized.width > _MAX_WIDTH:
            lines.append([])
        lines[-1].append(sized)
    caption = NUMA_CAPTION if box.kind == "numa" and box.note else CAPTION
    inside, y = [], _PADDING if flipped else caption
    for line in lines:
        x, highest = _PADDING, max((each.height for each in line), default=0)
        for each in line:
            inside.append(_raised(each, highest).moved(x, y))
            x += each.width + GAP
        y += highest + GAP
    content_width = max((each.x + each.width for each in inside), default=0) + _PADDING
    is_node = box.kind == "numa"
    caption_width = text_width(box.caption, 12 if is_node else 11, is_bold=is_node) + 2 * _PADDING + 2
    below = caption if flipped else _PADDING
    return replace(
        box,
        width=max(content_width, caption_width),
        height=y - GAP + below,
        inside=tuple(inside),
        flipped=flipped,
    )
