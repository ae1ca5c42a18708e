"""The device names that replace the values of options and variables of other tools.

A value is mapped exactly, or not at all: a replacement never gives a container more GPUs than the value.
Counts are those of Docker's driver for NVIDIA: a count of 2 selects the GPUs 0 and 1 (moby,
daemon/nvidia_linux.go, countToDevices).
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

GPU = "nvidia.com/gpu"
# The names of all GPUs of a larger count are not listed.
MAX_COUNT = 64
_NAME = re.compile(r"(?:[A-Za-z][\w.-]*/[A-Za-z][\w.-]*=)?[A-Za-z0-9][\w.:-]*", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,4})-([0-9]{1,4})")


def options(kind: str, names: str) -> str:
    """Return the options ``--device`` for the list NAMES, or an instruction if an item is not a name."""
    return " ".join(f"--device {name}" for name in device_names(kind, names)) or by_name(kind)


def by_name(kind: str) -> str:
    """Return the instruction for a value that cannot be mapped."""
    return f"--device {kind}=NAME for each name in the value"


def first_names(count: int) -> str:
    """Return the list of the names of the first COUNT GPUs; COUNT is from 1 to ``MAX_COUNT``."""
    return ",".join(map(str, range(count)))


def device_names(kind: str, names: str) -> list[str]:
    """Return the qualified device names of the list NAMES; empty if an item is not a name.

    Qualified names are unchanged. AMD's runtime also accepts ranges, such as ``0-3``.
    """
    listed: list[str] = []
    for name in (name.strip() for name in names.split(",")):
        if (run := _RANGE.fullmatch(name)) and int(run[2]) - int(run[1]) < MAX_COUNT:
            listed += map(str, range(int(run[1]), int(run[2]) + 1))
        elif name:
            listed.append(name)
    return qualified(kind, listed)


def qualified(kind: str, names: Iterable[str]) -> list[str]:
    """Return NAMES as qualified device names; empty if a text in NAMES is not a name."""
    listed = list(names)
    if not all(_NAME.fullmatch(name) for name in listed):
        return []
    return [name if "=" in name else f"{kind}={name}" for name in listed]
