"""Find in a script, a unit or a compose file how it asks for GPUs, and what to write instead: ``judge``.

Line by line, by what people write: no shell and no YAML is parsed, so what is put together from variables or
stands in several lines is not found. docs/migrating.md has the same as a table.
"""

from __future__ import annotations

import re

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_MOST_COUNTED = 64


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
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#"):
            continue
        for pattern, answer in _PATTERNS:
            for match in pattern.finditer(line):
                if write := answer(match):
                    yield Use(file=file, line=number, found=match[0].strip(), write=write)


def _gpus(match: re.Match[str]) -> str:
    """Answer --gpus: all, a count, or ``device=0,1`` in as many quotes as a shell and CSV need."""
    value = match["value"].replace("\\", "").strip("'\"")
    options = dict(part.partition("=")[::2] for part in value.split(",") if "=" in part)
    if options.get("driver") == "cdi":
        return ""
    if "device" in options:
        return _options("nvidia.com/gpu", value[value.index("device=") + len("device=") :].strip("'\""))
    if value.isdecimal() and 0 < int(value) <= _MOST_COUNTED:
        names = ",".join(map(str, range(int(value))))
        return f"{_options('nvidia.com/gpu', names)} (CDI has names and no counts)"
    return _options("nvidia.com/gpu", "all")


def _visible(kind: str) -> Callable[[re.Match[str]], str]:
    def answer(match: re.Match[str]) -> str:
        value = match["value"].strip("'\"")
        if value.lower() in {"", "none", "void"}:
            return "leave it out"
        if "$" in value:
            return f"--device {kind}=NAME for each name that it stands for"
        return f"{_options(kind, value)}; in a compose file: devices: [{', '.join(_names(kind, value))}]"

    return answer


def _options(kind: str, names: str) -> str:
    return " ".join(f"--device {name}" for name in _names(kind, names))


def _names(kind: str, names: str) -> list[str]:
    """Return the device names that the list NAMES means; what is one already stays as it is."""
    listed = [name.strip() for name in names.split(",") if name.strip()]
    return [name if "=" in name else f"{kind}={name}" for name in listed]


def _say(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _match: text


_VALUE = r"""['"]?(?:=|\s*:\s*)(?P<value>"[^"]*"|'[^']*'|[^\s'"\]}]*)"""
# What stands in files -> what to write in its place.
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"""--gpus(?:=|\s+)(?P<value>'[^']*'|"(?:\\.|[^"\\])*"|\S+)"""), _gpus),
    (
        re.compile(r"""--runtime(?:=|\s+)['"]?nvidia\b"""),
        _say("leave it out, and name the device by --device"),
    ),
    (re.compile(r"""--runtime(?:=|\s+)['"]?amd\b"""), _say("leave it out, and name the device by --device")),
    (
        re.compile(r"""^\s*runtime:\s*['"]?nvidia\b['"]?"""),
        _say("devices: [nvidia.com/gpu=all], or those that NVIDIA_VISIBLE_DEVICES names"),
    ),
    (
        re.compile(r"""\bdriver:\s*['"]?nvidia\b(?!-)['"]?"""),
        _say('driver: cdi, and device_ids: ["nvidia.com/gpu=all"] in place of count or numbers'),
    ),
    (
        re.compile(r"""\bruntimeClassName:\s*['"]?nvidia\b['"]?"""),
        _say("keep it for pods of a device plugin; without one, 'cdigen nri' needs no runtime class"),
    ),
    (re.compile(rf"\bNVIDIA_VISIBLE_DEVICES{_VALUE}"), _visible("nvidia.com/gpu")),
    (re.compile(rf"\bAMD_VISIBLE_DEVICES{_VALUE}"), _visible("amd.com/gpu")),
    (
        re.compile(r"\bNVIDIA_DRIVER_CAPABILITIES\b"),
        _say("leave it out: all of the driver comes with a device; a profile with capabilities gives less"),
    ),
    (
        re.compile(r"\bnvidia-docker\s+(?:container\s+)?(?:run|create)\b"),
        _say("docker run --device nvidia.com/gpu=all, or the GPUs of NV_GPU"),
    ),
    (re.compile(r"--device(?:=|\s+)/dev/kfd\b"), _say("--device amd.com/gpu=all, without /dev/dri")),
)
