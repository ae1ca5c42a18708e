"""Draw the links of devices as SVG: ``picture``.

For programs without style sheets, the colours are attributes. For browsers, the colours are rules for light
and dark schemes. No state is shown by colour only. The file has no external references and no script.
"""

from __future__ import annotations

from cdigen.topology.labels import describe, details, device_labels, island_labels, summary
from cdigen.topology.layout import DEVICE_WIDTH, ISLAND_HEIGHT, laid_out
from cdigen.topology.widths import fitting, text_width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cdigen.topology.labels import IslandLabel, Label
    from cdigen.topology.layout import Box, Island
    from cdigen.topology.matrix import MatrixDevice

# The margin, the heading, the strip with the island's letter in a device, and a line of text in a device.
_MARGIN, _HEADING, _STRIP, _LINE = 16, 52, 16, 14
# Partitions are dots: the size of a dot, the distance between dots, and the number of dots in a line.
_DOT, _STEP, _DOTS = 9, 12, 8
_TITLE = "GPU topology"
# The minimum width of the heading. The heading is as wide as the picture.
_MIN_WIDTH = 280
# A longer summary widens the picture up to this width.
_MAX_SUMMARY_WIDTH = 640

# (class, coloured attribute, light, dark). Text has a contrast of at least 4.5 to its background.
_COLOURS = (
    ("page", "fill", "#ffffff", "#0d1117"),
    ("ink", "fill", "#1c2128", "#e6edf3"),
    ("soft", "fill", "#505a64", "#a9b3bd"),
    ("bad", "fill", "#b3161f", "#ff9a93"),
    ("cross", "stroke", "#b3161f", "#ff9a93"),
    ("numa", "fill", "#f4f6f8", "#151b23"),
    ("bridge", "fill", "#e9edf1", "#1d242d"),
    ("switch", "fill", "#dce2e9", "#272f3a"),
    ("device", "fill", "#ffffff", "#0d1117"),
    ("part", "fill", "#57606a", "#a9b3bd"),
    ("edge", "stroke", "#8c96a1", "#5a646f"),
    ("island0", "fill", "#0a58b5", "#6cb2ff"),
    ("island1", "fill", "#8a4600", "#f0a860"),
    ("island2", "fill", "#6b34b0", "#c9a4ff"),
    ("island3", "fill", "#11683a", "#63d38a"),
    ("island4", "fill", "#8f1458", "#ff9cc8"),
    ("wire0", "stroke", "#0a58b5", "#6cb2ff"),
    ("wire1", "stroke", "#8a4600", "#f0a860"),
    ("wire2", "stroke", "#6b34b0", "#c9a4ff"),
    ("wire3", "stroke", "#11683a", "#63d38a"),
    ("wire4", "stroke", "#8f1458", "#ff9cc8"),
)


def _style() -> str:
    light = "".join(f".{name}{{{attribute}:{colour}}}" for name, attribute, colour, _ in _COLOURS)
    dark = "".join(f".{name}{{{attribute}:{colour}}}" for name, attribute, _, colour in _COLOURS)
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"


# The style sheet of every picture. A page with a picture may have to permit this style sheet in its
# Content-Security-Policy.
STYLE = _style()
# The number of colours of islands. The colours are used in turn. The letters of islands are unique.
_HUES = 5
_ATTRIBUTES = {name: f'class="{name}" {attribute}="{light}"' for name, attribute, light, _ in _COLOURS}
_BOLD, _MIDDLE = 'font-weight="600"', 'text-anchor="middle"'
_TEXT_STYLES = {
    "heading": f'font-size="18" {_BOLD} {_ATTRIBUTES["ink"]}',
    "summary": _ATTRIBUTES["soft"],
    "numa": f"{_BOLD} {_ATTRIBUTES['ink']}",
    "note": f'font-size="11" {_ATTRIBUTES["soft"]}',
    "device": f'font-size="13" {_BOLD} {_ATTRIBUTES["ink"]}',
    "trouble": f'font-size="11" {_BOLD} {_ATTRIBUTES["bad"]}',
    "island": f"{_BOLD} {_MIDDLE} {_ATTRIBUTES['page']}",
    "letter": f'font-size="11" {_BOLD} {_MIDDLE} {_ATTRIBUTES["page"]}',
}
_FONT = "system-ui, -apple-system, Segoe UI, Roboto, DejaVu Sans, Arial, sans-serif"
# U+007F, and the characters that XML does not permit: control characters, surrogates, two noncharacters.
_NO_XML = {*range(9), 11, 12, *range(14, 32), 0x7F, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF}
# C1 control characters, line separators, and characters that change the direction of the following text
# (UAX 9). These characters can falsify a name.
_BIDI = {*range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)}
_FORBIDDEN = _NO_XML | _BIDI
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def picture(shown: Sequence[MatrixDevice]) -> str:
    """Return an SVG document of the devices SHOWN (see ``matrix.devices_of``)."""
    devices = tuple(device.accelerator for device in shown)
    labels, joined = device_labels(shown), island_labels(devices)
    height = _STRIP * bool(joined) + max((_height(label) for label in labels), default=0)
    layout = laid_out(devices, height, {label.members: label.text for label in joined})
    models = summary(devices)
    inner_width = max(layout.width, _MIN_WIDTH, min(text_width(models, 12), _MAX_SUMMARY_WIDTH))
    width, height = inner_width + 2 * _MARGIN, layout.height + _HEADING + 2 * _MARGIN
    islands = {label.members: number for number, label in enumerate(joined)}
    strips = {place: (n, label.letter) for n, label in enumerate(joined) for place in label.members}
    boxes = [box for outer in layout.boxes for box in outer.every()]
    parts = [
        *(_container(box) for box in boxes if box.kind != "device"),
        *(_wires(island, islands[island.members]) for island in layout.islands),
        *(
            _island(island, joined[islands[island.members]], islands[island.members])
            for island in layout.islands
        ),
    ]
    for box in boxes:
        if box.kind == "device":
            hint = f"<title>{_text(details(devices, labels, box.place))}</title>"
            drawn = _device(box, labels[box.place], strips.get(box.place))
            parts.append(f"<g>{hint}{drawn}</g>\n")
    left, top = (width - layout.width) // 2, _MARGIN + _HEADING
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="cdigen-title cdigen-desc" '
        f'font-family="{_FONT}" font-size="12">\n'
        f'<title id="cdigen-title">{_TITLE}</title>\n'
        f'<desc id="cdigen-desc">{_text(describe(devices, labels, joined))}</desc>\n'
        f"<style>{STYLE}</style>\n"
        f'<rect width="{width}" height="{height}" {_ATTRIBUTES["page"]}/>\n'
        f"{_line(_MARGIN, _MARGIN + 16, fitting(_TITLE, inner_width, 18, is_bold=True), 'heading')}\n"
        f"{_line(_MARGIN, _MARGIN + 36, fitting(models, inner_width, 12), 'summary')}\n"
        f'<g transform="translate({left} {top})">\n{"".join(parts)}</g>\n</svg>\n'
    )


def _text(text: str) -> str:
    """Return TEXT escaped for XML. U+FFFD replaces each character that is not permitted."""
    return "".join("\ufffd" if ord(each) in _FORBIDDEN else each for each in text).translate(_ESCAPES)


def _short_name(name: str, width: int) -> str:
    """Return the device's NAME. If NAME is wider than WIDTH, the text before its number is cut."""
    if text_width(name, 13, is_bold=True) <= width:
        return name
    number = name[-3:]
    return fitting(name[:-3], width - text_width(number, 13, is_bold=True), 13, is_bold=True) + number


def _line(x: int, y: int, text: str, style: str) -> str:
    return f'<text x="{x}" y="{y}" {_TEXT_STYLES[style]}>{_text(text)}</text>'


def _area(x: int, y: int, size: tuple[int, int], colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{size[0]}" height="{size[1]}" rx="6" {_ATTRIBUTES[colour]}/>'


def _outline(box: Box, more: str) -> str:
    """Return the border of BOX. The border is separate from the area, because its colour differs."""
    return (
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" fill="none" {more}/>'
    )


def _container(box: Box) -> str:
    area = _area(box.x, box.y, (box.width, box.height), box.kind)
    edge = _outline(box, f'{_ATTRIBUTES["edge"]} stroke-width="1"')
    x, inner_width = box.x + 9, box.width - 16
    if box.kind != "numa":
        y = box.y + box.height - 6 if box.flipped else box.y + 14
        return f"{area}{edge}{_line(x, y, fitting(box.caption, inner_width, 11), 'note')}\n"
    y = box.y + (box.height - (22 if box.note else 7) if box.flipped else 15)
    name = _line(x, y, fitting(box.caption, inner_width, 12, is_bold=True), "numa")
    note = _line(x, y + 15, fitting(box.note, inner_width, 11), "note") if box.note else ""
    return f"{area}{edge}{name}{note}\n"


def _wires(island: Island, number: int) -> str:
    wires = "".join(f"M{wire.x} {wire.device_y}V{wire.island_y}" for wire in island.wires)
    return (
        f'<path d="{wires}" fill="none" stroke-width="3" {_ATTRIBUTES[f"wire{number % _HUES}"]}/>\n'
        * bool(wires)
    )


def _island(island: Island, label: IslandLabel, number: int) -> str:
    bar = _area(island.x, island.y, (island.width, ISLAND_HEIGHT), f"island{number % _HUES}")
    x, y = island.x + island.width // 2, island.y + ISLAND_HEIGHT // 2 + 4
    return f"{bar}{_line(x, y, label.text, 'island')}\n"


def _height(label: Label) -> int:
    """Return the height of a device with LABEL, without its strip."""
    lines = len(label.notes) + sum(map(bool, label.trouble))
    return 28 + lines * _LINE + -(-len(label.parts) // _DOTS) * _STEP


def _device(box: Box, label: Label, strip: tuple[int, str] | None) -> str:
    """Return the drawing of the device in BOX; STRIP has the number and the letter of its island."""
    edge = f'{_ATTRIBUTES["edge"]} stroke-width="1"'
    if label.trouble:
        edge = f'{_ATTRIBUTES["cross"]} stroke-width="2" stroke-dasharray="6 3"'
    return "".join(
        (
            _area(box.x, box.y, (box.width, box.height), "device"),
            *([_strip(box, *strip)] if strip else []),
            _outline(box, edge),
            *_texts(box, label, box.y + (_STRIP if box.flipped and strip else 0)),
        )
    )


def _strip(box: Box, number: int, letter: str) -> str:
    y = box.y if box.flipped else box.y + box.height - _STRIP
    area = _area(box.x, y, (box.width, _STRIP), f"island{number % _HUES}")
    middle = box.x + box.width // 2
    return area + _line(middle, y + 12, letter, "letter")


def _texts(box: Box, label: Label, y: int) -> Iterator[str]:
    x, inner_width = box.x + 8, DEVICE_WIDTH - 11
    y += 18
    yield _line(x, y, _short_name(label.name, inner_width), "device")
    for note in label.notes:
        y += _LINE
        yield _line(x, y, fitting(note, inner_width, 11), "note")
    for number, trouble in enumerate(filter(None, label.trouble)):
        y += _LINE
        if number == 0:
            yield _cross(x, y - 8, 8)
        text = fitting(trouble, inner_width - 13, 11, is_bold=True)
        yield _line(x + 13, y, text, "trouble")
    for number, is_usable in enumerate(label.parts):
        left, top = x + number % _DOTS * _STEP, y + 6 + number // _DOTS * _STEP
        if is_usable:
            yield _area(left, top, (_DOT, _DOT), "part")
        else:
            yield _cross(left, top, _DOT)


def _cross(x: int, y: int, size: int) -> str:
    lines = f"M{x} {y}l{size} {size}M{x + size} {y}l-{size} {size}"
    return f'<path d="{lines}" fill="none" stroke-width="2" {_ATTRIBUTES["cross"]}/>'
