"""Say in one line which modules of this Python do not fit cdigen's needs; nothing, and exit 0, where all do.

    python3 -BI etc/floors.py pyproject.toml [--of-a-package]

The installed cdigen finds what this Python finds in isolated mode. Of a package, which is for another
machine, nothing has to be here, but what is here and too old is what its distribution has. It needs the
standard library alone: nothing that cdigen needs may be here.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from pathlib import Path

# Without the first NVML is not asked; without the second 'cdigen kubelet' alone does not work, and says so.
OPTIONAL = {"nvidia-ml-py", "grpcio"}
_NEED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?P<bounds>[<>=0-9.,]*)")


def main(pyproject: str, *options: str) -> int:
    """Print what does not fit; returns the exit code."""
    project = tomllib.loads(Path(pyproject).read_text(encoding="utf-8"))["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["kubelet"]]
    is_for_here = "--of-a-package" not in options
    unfit = [said for need in needs if (said := _unfit(need, is_for_here=is_for_here))]
    sys.stdout.write("; ".join(unfit))
    return 1 if unfit else 0


def _unfit(need: str, *, is_for_here: bool) -> str:
    match = _NEED.fullmatch(need)
    if match is None:
        raise ValueError(f"not understood: {need}")
    name, bounds = match["name"], match["bounds"]
    try:
        there = version(name)
    except PackageNotFoundError:
        return f"{name} is missing ({bounds})" if is_for_here and name not in OPTIONAL else ""
    fits = all(_fits(there, bound) for bound in bounds.split(",") if bound)
    return "" if fits else f"{name} is {there} ({bounds})"


def _fits(there: str, bound: str) -> bool:
    wanted = bound.lstrip("<>=")
    pairs = list(zip_longest(_numbers(there), _numbers(wanted), fillvalue=0))
    have, want = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return {">=": have >= want, "<": have < want}[bound.removesuffix(wanted)]


def _numbers(text: str) -> list[int]:
    # The release alone (PEP 440): 7.1rc1 counts as 7.1.
    release = re.match(r"[0-9]+(?:\.[0-9]+)*", text)
    return [int(part) for part in release[0].split(".")] if release else []


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
