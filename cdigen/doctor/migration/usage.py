"""Find in a script, a unit or a compose file how it asks for GPUs, and what to write instead: ``judge``.

Line by line, by what people write: no shell and no YAML is parsed, so what is put together from variables or
stands in several lines is not found. What is told to write has no text of the file in it but device names.
docs/migrating.md has the same as a table.
"""

from __future__ import annotations

import re

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_MOST_COUNTED = 64
# Of a list item in a compose file; those that people write have a handful of lines.
_MOST_LINES = 32
# A blank line ends nothing in YAML.
_FAR = 1 << 30
# Of a command line, in characters before an option.
_MOST_BEFORE = 400
_COMMENTS = ("#", ";", "//")


@frozen
class Use:
    """A way of asking for GPUs that needs other tools: where it stands, what it is, and what to write."""

    file: str
    line: int
    found: str
    write: str

    def row(self) -> dict[str, Any]:
        """Return it as JSON shows it."""
        return {"file": self.file, "line": self.line, "found": self.found, "write": self.write}


def judge(file: str, text: str) -> Iterator[Use]:
    """Yield what FILE, which holds TEXT, asks for in others' ways, by lines; comments do not count."""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith(_COMMENTS):
            continue
        for pattern, answer in _PATTERNS:
            for match in pattern.finditer(line):
                if write := answer(match):
                    yield Use(file=file, line=number, found=match[0].strip(), write=write)
        reserved = _RESERVED.search(line)
        if reserved and not _has_driver(lines, number - 1, reserved.start()):
            yield Use(file=file, line=number, found=reserved[0], write=_RESERVATION)


def _has_driver(lines: list[str], at: int, column: int) -> bool:
    """Return whether the list item whose key in the line AT begins at COLUMN has a driver as well."""
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
    """Return where the first key of LINE begins, behind the dash of a list; far right where there is none."""
    return len(line) - len(line.lstrip(" -")) if line.strip() else _FAR


def _begins_item(line: str, column: int) -> bool:
    return line.lstrip(" ").startswith("-") and _column(line) == column


def _gpus(match: re.Match[str]) -> str:
    """Answer --gpus: all, a count, or ``device=0,1`` in as many quotes as a shell and CSV need."""
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
    # containerd's ctr takes the GPUs' numbers, and no count.
    if _CTR.search(match.string[max(0, match.start() - _MOST_BEFORE) : match.start()]):
        return _options("nvidia.com/gpu", count[1])
    if int(count[1]) == 0:
        return "leave it out"
    if int(count[1]) > _MOST_COUNTED:
        return _options("nvidia.com/gpu", "all")
    names = ",".join(map(str, range(int(count[1]))))
    return f"{_options('nvidia.com/gpu', names)} (CDI has names and no counts)"


def _visible(kind: str) -> Callable[[re.Match[str]], str]:
    def answer(match: re.Match[str]) -> str:
        value = match["value"].strip("'\"")
        if value.lower() in {"", "none", "void"}:
            return "leave it out, once no runtime is left that reads it: until then it keeps GPUs out"
        names = _names(kind, value)
        if not names:
            return _by_name(kind)
        if _IMAGE.match(match.string):
            where = "leave it out of the image, and name the device where its container starts"
            return f"{where}: {_options(kind, value)}"
        return f"{_options(kind, value)}; in a compose file: devices: [{', '.join(names)}]"

    return answer


def _options(kind: str, names: str) -> str:
    return " ".join(f"--device {name}" for name in _names(kind, names)) or _by_name(kind)


def _by_name(kind: str) -> str:
    return f"--device {kind}=NAME for each name that it stands for"


def _names(kind: str, names: str) -> list[str]:
    """Return the device names that the list NAMES means; nothing where one cannot be a name.

    What is qualified stays as it is. AMD's runtime takes ranges as well, such as ``0-3``.
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
        return "devices: [nvidia.com/gpu=all], or those that NVIDIA_VISIBLE_DEVICES names"
    return "leave it out, and name the device where the container starts (Nomad: examples/nomad)"


def _say(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _match: text


_NAME = re.compile(r"(?:[A-Za-z][\w.-]*/[A-Za-z][\w.-]*=)?[A-Za-z0-9][\w.:-]*", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,4})-([0-9]{1,4})")
_CDI = re.compile(r"""(?:^|[,"'])driver=cdi\b""")
# Up to a quote of CSV, or the next key: capabilities, driver.
_DEVICE = re.compile(r"""(?:^|[,"'])device=([^"']*?)(?=["']|,\w+=|$)""")
_COUNT = re.compile(r"""(?:^|[,"'])(?:count=)?([0-9]{1,9})(?=[,"']|$)""")
_CTR = re.compile(r"(?:^|[\s/])ctr\s")
_IMAGE = re.compile(r"\s*ENV\s", re.IGNORECASE)
# Without a driver Docker looks for one with these capabilities, which is NVIDIA's.
_RESERVED = re.compile(r"""(?<![\w.-])['"]?capabilities['"]?\s*:\s*\[\s*['"]?gpu\b['"]?""")
_RESERVATION = 'driver: cdi, and device_ids: ["nvidia.com/gpu=all"] in place of count or numbers'
# An option's name and its value in a command line, or in a list of words.
_OF_OPTION = r"""(?:=|\s+|['"]\s*,\s*)"""
_QUOTED = r"""'[^']*'|"(?:\\.|[^"\\])*"|\\"[^"\\]*\\\""""
_VALUE = r"""['"]?(?:=|\s*:\s*)(?P<value>"[^"]*"|'[^']*'|[^\s'"\]}]*)"""


def _variable(name: str) -> tuple[re.Pattern[str], ...]:
    """Return what sets the variable NAME: in shells, YAML and JSON; in HCL; in a Dockerfile of old."""
    return (
        # Not ${NAME:-all}, which reads it.
        re.compile(rf"(?:(?<![\w$])|(?<=-e))(?<!\$\{{){name}{_VALUE}"),
        re.compile(rf"""^\s*['"]?{name}['"]?\s+=\s*(?P<value>"[^"]*"|\S*)"""),
        re.compile(rf"""^\s*ENV\s+{name}\s+(?P<value>"[^"]*"|'[^']*'|[^\s=]\S*)""", re.IGNORECASE),
    )


# What stands in files -> what to write in its place.
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(rf"""--gpus{_OF_OPTION}(?P<value>{_QUOTED}|[^\s'";|&)\]]+)"""), _gpus),
    (
        re.compile(rf"""--runtime{_OF_OPTION}['"]?(?:nvidia|amd)\b"""),
        _say("leave it out, and name the device by --device"),
    ),
    (re.compile(r"""(?<![\w.-])['"]?runtime['"]?\s*[:=]\s*(?:&\w+\s+)?['"]?nvidia\b['"]?"""), _runtime),
    (re.compile(r"""^\s*gpus:\s*['"]?all\b['"]?"""), _say("devices: [nvidia.com/gpu=all]")),
    (re.compile(r"""\bdriver['"]?\s*:\s*['"]?nvidia\b(?!-)['"]?"""), _say(_RESERVATION)),
    (
        re.compile(r"""\bruntimeClassName:\s*['"]?nvidia\b['"]?"""),
        _say("keep it for pods of a device plugin; without one, 'cdigen nri' needs no runtime class"),
    ),
    *((pattern, _visible("nvidia.com/gpu")) for pattern in _variable("NVIDIA_VISIBLE_DEVICES")),
    *((pattern, _visible("amd.com/gpu")) for pattern in _variable("AMD_VISIBLE_DEVICES")),
    (
        re.compile(r"""\bname:\s*['"]?(?:NVIDIA|AMD)_VISIBLE_DEVICES\b['"]?"""),
        _say("keep it where 'cdigen nri' goes by it (docs/nri.md), else leave it out"),
    ),
    (
        re.compile(r"\bNVIDIA_DRIVER_CAPABILITIES\b"),
        _say("leave it out: all of the driver comes with a device; a profile with capabilities gives less"),
    ),
    (
        re.compile(r"\bnvidia-docker\s+(?:container\s+)?(?:run|create)\b"),
        _say("docker run --device nvidia.com/gpu=all, or the GPUs of NV_GPU"),
    ),
    (
        re.compile(r"\b(?:nvidia|amd)-ctk\s+cdi\s+generate\b|\bintel-cdi-specs-generator\b"),
        _say("leave it out: the service cdigen writes the specs, as 'cdigen generate --write' does once"),
    ),
    (
        re.compile(rf"""(?:--device{_OF_OPTION}|AddDevice=|^\s*-\s*)['"]?/dev/kfd\b"""),
        _say("--device amd.com/gpu=all, without /dev/dri; in a compose file: devices: [amd.com/gpu=all]"),
    ),
)
