"""The replacements of device reservations, which select GPUs by ``count`` or ``device_ids``.

The keys ``driver`` and ``capabilities`` of an item identify a reservation. Compose files have such items in
``deploy.resources.reservations.devices`` and in ``gpus``. Ansible has such items in ``device_requests``. An
item without ``count`` and ``device_ids`` requests all GPUs (documentation of Docker Compose, "Enable GPU
support"). dockerd rejects an item with both.
"""

from __future__ import annotations

import re
from itertools import islice

from cdigen.doctor.migration.replacements import GPU, MAX_COUNT, first_names, qualified

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# The maximum number of lines of a list item in a compose file. Usual items have only a few lines.
_MOST_LINES = 32
# The maximum number of items in a line.
_MOST_ITEMS = 100
# The maximum number of characters of a line that are examined.
_MOST_WIDE = 1024
# The column of a blank line, which does not end an item in YAML.
_BLANK_COLUMN = 1 << 30
# If the key driver is missing, Docker selects a driver that has the capability gpu: NVIDIA's driver.
_CAPABILITIES = re.compile(r"""(?<![\w.-])['"]?capabilities['"]?\s*:\s*\[\s*\[?\s*['"]?gpu\b['"]?""")
_DRIVER = re.compile(r"""(?<![\w.-])['"]?driver['"]?\s*:\s*['"]?nvidia\b(?!-)['"]?""")
_ANY_DRIVER = re.compile(r"""(?<![\w.-])['"]?driver['"]?\s*:""")
_GPUS = re.compile(r"""^(?P<indent>\s*)['"]?gpus['"]?\s*:\s*(?P<flow>\[.*)?(?:#.*)?$""")
_COUNT = re.compile(r"""(?<![\w.-])['"]?count['"]?\s*:\s*['"]?(?P<value>[^\s,'"}\]]*)""")
_IDS = re.compile(
    r"""(?<![\w.-])['"]?device_ids['"]?\s*:\s*(?:\[(?P<flow>[^\]]*)\]|(?P<block>(?:\n?\s*-[ ]+[^\n]*)+)|)"""
)
_ALL = ("all", "-1")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_MERGE = re.compile(r"(?<!\S)<<\s*:")
_INSTEAD = {"": "", "count": " instead of count: CDI has names, no counts", "ids": " instead of the numbers"}
_UNMAPPED = (
    f'driver: cdi, and device_ids with "{GPU}=NAME" for each GPU of count or device_ids, whose value is not '
    "a plain number or name"
)


def find_reservations(lines: list[str], at: int) -> Iterator[tuple[str, str]]:
    """Yield pairs of a request and its replacement for the reservations that ``lines[at]`` identifies."""
    line = lines[at]
    for match in islice(_DRIVER.finditer(line), _MOST_ITEMS):
        yield match[0], _replacement(_item(lines, at, match.start()))
    capabilities = _CAPABILITIES.search(line)
    if capabilities and not _ANY_DRIVER.search(item := _item(lines, at, capabilities.start())):
        yield capabilities[0], _replacement(item)
    if gpus := _GPUS.match(line):
        yield from _without_driver(lines, at, gpus)


def _without_driver(lines: list[str], at: int, gpus: re.Match[str]) -> Iterator[tuple[str, str]]:
    """Yield the items of the list ``gpus`` that have neither a driver nor capabilities."""
    for item in (gpus["flow"],) if gpus["flow"] else _items_below(lines, at, len(gpus["indent"])):
        if not (_ANY_DRIVER.search(item) or _CAPABILITIES.search(item)) and (
            _COUNT.search(item) or _IDS.search(item)
        ):
            yield gpus[0].strip(), _replacement(item)


def _items_below(lines: list[str], at: int, indent: int) -> Iterator[str]:
    item: list[str] = []
    first: int | None = None
    for line in lines[at + 1 : at + _MOST_LINES]:
        dash = len(line) - len(line.lstrip(" ")) if line.lstrip(" ").startswith("-") else None
        if line.strip() and (_column(line) <= indent or (dash is not None and dash < indent)):
            break
        first = dash if first is None else first
        if dash is not None and dash == first and item:
            yield _text(item)
            item = []
        item.append(line)
    if first is not None and item:
        yield _text(item)


def _item(lines: list[str], at: int, column: int) -> str:
    """Return the text of the list item with a key at COLUMN of ``lines[at]``, without comments."""
    line = lines[at]
    opening = line.rfind("{", max(0, column - _MOST_WIDE), column)
    if opening >= 0 and "}" not in line[opening:column]:
        end = line.find("}", column, column + _MOST_WIDE)
        return line[opening:end] if end >= 0 else line[opening : column + _MOST_WIDE]
    item = [line]
    if not _begins_item(line, column):
        for before in reversed(lines[max(0, at - _MOST_LINES) : at]):
            if _column(before) < column:
                break
            item.insert(0, before)
            if _begins_item(before, column):
                break
    for after in lines[at + 1 : at + _MOST_LINES]:
        is_list = after.lstrip(" ").startswith("- ") and len(after) - len(after.lstrip(" ")) >= column
        if not is_list and (_column(after) < column or _begins_item(after, column)):
            break
        item.append(after)
    return _text(item)


def _text(lines: list[str]) -> str:
    return "\n".join(_COMMENT.sub("", line[:_MOST_WIDE]) for line in lines)


def _column(line: str) -> int:
    """Return the column of the first key of LINE, after the dash of a list item."""
    return len(line) - len(line.lstrip(" -")) if line.strip() else _BLANK_COLUMN


def _begins_item(line: str, column: int) -> bool:
    return line.lstrip(" ").startswith("-") and _column(line) == column


def _replacement(item: str) -> str:
    """Return the replacement for the keys ``count`` and ``device_ids`` of ITEM."""
    count, ids = _COUNT.search(item), _IDS.search(item)
    if _MERGE.search(item) or (count and ids):
        return _UNMAPPED
    if ids:
        return _named(_listed(ids), "ids")
    value = count["value"] if count else "all"
    if value in _ALL:
        return _named(["all"], "count" if count else "")
    if not (value.isascii() and value.isdigit() and len(value) <= 4 and int(value) <= MAX_COUNT):
        return _UNMAPPED
    if int(value) == 0:
        return "remove the item"
    return _named(first_names(int(value)).split(","), "count")


def _listed(ids: re.Match[str]) -> list[str]:
    if ids["flow"] is not None:
        words = ids["flow"].split(",")
    else:
        words = [line.strip().removeprefix("-") for line in (ids["block"] or "").split("\n")]
    return [name for name in (word.strip().strip("'\"") for word in words) if name]


def _named(names: list[str], key: str) -> str:
    found = qualified(GPU, names)
    if not found:
        return _UNMAPPED
    listed = ", ".join(f'"{name}"' for name in found)
    return f"driver: cdi, and device_ids: [{listed}]{_INSTEAD[key]}"
