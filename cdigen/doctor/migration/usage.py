"""Find requests for GPUs in scripts, units and compose files, with their replacements.

The search examines each line for usual spellings. The search parses no shell and no YAML. Requests from
variables or over several lines are not found. A replacement contains no text of the file except device names.
docs/migrating.md has the same replacements as a table.
"""

from __future__ import annotations

import re

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOST_COUNTED = 64
# The maximum number of lines of a list item in a compose file. Usual items have only a few lines.
_MOST_LINES = 32
# The column of a blank line, which does not end an item in YAML.
_BLANK_COLUMN = 1 << 30
# The number of characters of a command line that are examined before an option.
_MOST_BEFORE = 400
_COMMENTS = ("#", ";", "//")


@frozen
class LegacyRequest:
    """A request for GPUs that needs another tool, with its place and its replacement."""

    file: str
    line: int
    request: str
    replacement: str


def find_requests(file: str, text: str) -> Iterator[LegacyRequest]:
    """Yield the requests in FILE, which has the content TEXT, line by line; comments are ignored."""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith(_COMMENTS):
            continue
        for pattern, replacement_of in _PATTERNS:
            for match in pattern.finditer(line):
                if replacement := replacement_of(match):
                    request = match[0].strip()
                    yield LegacyRequest(file=file, line=number, request=request, replacement=replacement)
        reserved = _RESERVED.search(line)
        if reserved and not _has_driver(lines, number - 1, reserved.start()):
            yield LegacyRequest(file=file, line=number, request=reserved[0], replacement=_RESERVATION)


def _has_driver(lines: list[str], at: int, column: int) -> bool:
    """Return whether the list item with a key at COLUMN of ``lines[at]`` also has the key ``driver``."""
    item = [lines[at]]
    if not _begins_item(lines[at], column):
        for line in reversed(lines[max(0, at - _MOST_LINES) : at]):
            if _column(line) < column:
                break
            item.append(line)
            if _begins_item(line, column):
                break
    for line in lines[at + 1 : at + _MOST_LINES]:
        if _column(line) < column or _begins_item(line, column):
            break
        item.append(line)
    return any("driver" in line for line in item)


def _column(line: str) -> int:
    """Return the column of the first key of LINE, after the dash of a list item."""
    return len(line) - len(line.lstrip(" -")) if line.strip() else _BLANK_COLUMN


def _begins_item(line: str, column: int) -> bool:
    return line.lstrip(" ").startswith("-") and _column(line) == column


def _gpus(match: re.Match[str]) -> str:
    """Return the replacement of --gpus.

    The value is ``all``, a count, or ``device=0,1`` with the quotes of a shell and of CSV.
    """
    value = match["value"].replace("\\", "").strip("'\"")
    if _CDI.search(value):
        return ""
    if device := _DEVICE.search(value):
        return _options("nvidia.com/gpu", device[1])
    if "$" in value or "`" in value:
        return _by_name("nvidia.com/gpu")
    count = _COUNT.search(value)
    if not count:
        return _options("nvidia.com/gpu", "all")
    # The command ctr of containerd accepts the numbers of GPUs, but no count.
    if _CTR.search(match.string[max(0, match.start() - _MOST_BEFORE) : match.start()]):
        return _options("nvidia.com/gpu", count[1])
    if int(count[1]) == 0:
        return "remove it"
    if int(count[1]) > _MOST_COUNTED:
        return _options("nvidia.com/gpu", "all")
    names = ",".join(map(str, range(int(count[1]))))
    return f"{_options('nvidia.com/gpu', names)} (CDI has names, no counts)"


def _visible(kind: str) -> Callable[[re.Match[str]], str]:
    def replacement_of(match: re.Match[str]) -> str:
        value = match["value"].strip("'\"")
        if value.lower() in {"", "none", "void"}:
            return "remove the variable when no runtime reads it anymore; until then, the value prevents GPUs"
        names = _names(kind, value)
        if not names:
            return _by_name(kind)
        if _IMAGE.match(match.string):
            advice = "remove it from the image, and name the device in the command that starts the container"
            return f"{advice}: {_options(kind, value)}"
        return f"{_options(kind, value)}; in a compose file: devices: [{', '.join(names)}]"

    return replacement_of


def _options(kind: str, names: str) -> str:
    return " ".join(f"--device {name}" for name in _names(kind, names)) or _by_name(kind)


def _by_name(kind: str) -> str:
    return f"--device {kind}=NAME for each name in the value"


def _names(kind: str, names: str) -> list[str]:
    """Return the qualified device names of the list NAMES; empty if an item is not a name.

    Qualified names are unchanged. AMD's runtime also accepts ranges, such as ``0-3``.
    """
    listed: list[str] = []
    for name in (name.strip() for name in names.split(",")):
        if (run := _RANGE.fullmatch(name)) and int(run[2]) - int(run[1]) < _MOST_COUNTED:
            listed += map(str, range(int(run[1]), int(run[2]) + 1))
        elif name:
            listed.append(name)
    if not all(_NAME.fullmatch(name) for name in listed):
        return []
    return [name if "=" in name else f"{kind}={name}" for name in listed]


def _runtime(match: re.Match[str]) -> str:
    if ":" in match[0]:
        return "devices: [nvidia.com/gpu=all], or the devices of NVIDIA_VISIBLE_DEVICES"
    return "remove it, and name the device in the command that starts the container (Nomad: examples/nomad)"


def _fixed(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _match: text


_NAME = re.compile(r"(?:[A-Za-z][\w.-]*/[A-Za-z][\w.-]*=)?[A-Za-z0-9][\w.:-]*", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,4})-([0-9]{1,4})")
_CDI = re.compile(r"""(?:^|[,"'])driver=cdi\b""")
# The value ends at a quote of CSV or at the next key, such as capabilities or driver.
_DEVICE = re.compile(r"""(?:^|[,"'])device=([^"']*?)(?=["']|,\w+=|$)""")
_COUNT = re.compile(r"""(?:^|[,"'])(?:count=)?([0-9]{1,9})(?=[,"']|$)""")
_CTR = re.compile(r"(?:^|[\s/])ctr\s")
_IMAGE = re.compile(r"\s*ENV\s", re.IGNORECASE)
# If the key driver is missing, Docker selects a driver that has the capability gpu: NVIDIA's driver.
_RESERVED = re.compile(r"""(?<![\w.-])['"]?capabilities['"]?\s*:\s*\[\s*['"]?gpu\b['"]?""")
_RESERVATION = 'driver: cdi, and device_ids: ["nvidia.com/gpu=all"] instead of count or numbers'
# The separator between the name and the value of an option, in a command line or in a list of words.
_OF_OPTION = r"""(?:=|\s+|['"]\s*,\s*)"""
_QUOTED = r"""'[^']*'|"(?:\\.|[^"\\])*"|\\"[^"\\]*\\\""""
_VALUE = r"""['"]?(?:=|\s*:\s*)(?P<value>"[^"]*"|'[^']*'|[^\s'"\]}]*)"""


def _variable(name: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns that set the variable NAME.

    The patterns are for shells, YAML and JSON, for HCL, and for old Dockerfiles.
    """
    return (
        # ${NAME:-all} only reads the variable.
        re.compile(rf"(?:(?<![\w$])|(?<=-e))(?<!\$\{{){name}{_VALUE}"),
        re.compile(rf"""^\s*['"]?{name}['"]?\s+=\s*(?P<value>"[^"]*"|\S*)"""),
        re.compile(rf"""^\s*ENV\s+{name}\s+(?P<value>"[^"]*"|'[^']*'|[^\s=]\S*)""", re.IGNORECASE),
    )


# Pattern of a request -> function that returns the replacement.
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(rf"""--gpus{_OF_OPTION}(?P<value>{_QUOTED}|[^\s'";|&)\]]+)"""), _gpus),
    (
        re.compile(rf"""--runtime{_OF_OPTION}['"]?(?:nvidia|amd)\b"""),
        _fixed("remove it, and name the device with --device"),
    ),
    (re.compile(r"""(?<![\w.-])['"]?runtime['"]?\s*[:=]\s*(?:&\w+\s+)?['"]?nvidia\b['"]?"""), _runtime),
    (re.compile(r"""^\s*gpus:\s*['"]?all\b['"]?"""), _fixed("devices: [nvidia.com/gpu=all]")),
    (re.compile(r"""\bdriver['"]?\s*:\s*['"]?nvidia\b(?!-)['"]?"""), _fixed(_RESERVATION)),
    (
        re.compile(r"""\bruntimeClassName:\s*['"]?nvidia\b['"]?"""),
        _fixed("keep the runtime class for pods of a device plugin; 'cdigen nri' needs no runtime class"),
    ),
    *((pattern, _visible("nvidia.com/gpu")) for pattern in _variable("NVIDIA_VISIBLE_DEVICES")),
    *((pattern, _visible("amd.com/gpu")) for pattern in _variable("AMD_VISIBLE_DEVICES")),
    (
        re.compile(r"""\bname:\s*['"]?(?:NVIDIA|AMD)_VISIBLE_DEVICES\b['"]?"""),
        _fixed("keep it if 'cdigen nri' reads it (docs/nri.md), else remove it"),
    ),
    (
        re.compile(r"\bNVIDIA_DRIVER_CAPABILITIES\b"),
        _fixed("remove it: a device includes the whole driver; a profile with capabilities includes less"),
    ),
    (
        re.compile(r"\bnvidia-docker\s+(?:container\s+)?(?:run|create)\b"),
        _fixed("docker run --device nvidia.com/gpu=all, or the GPUs of NV_GPU"),
    ),
    (
        re.compile(r"\b(?:nvidia|amd)-ctk\s+cdi\s+generate\b|\bintel-cdi-specs-generator\b"),
        _fixed("remove it: cdigen.service writes the specs, 'cdigen generate --write' writes them once"),
    ),
    (
        re.compile(rf"""(?:--device{_OF_OPTION}|AddDevice=|^\s*-\s*)['"]?/dev/kfd\b"""),
        _fixed("--device amd.com/gpu=all, without /dev/dri; in a compose file: devices: [amd.com/gpu=all]"),
    ),
)
