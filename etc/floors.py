"""Print the modules of this Python that do not fit cdigen's requirements in one line; exit with 0 if all fit.

    python3 -BI etc/floors.py pyproject.toml [--of-a-package]

The installed cdigen finds the same modules as this Python in isolated mode. With --of-a-package, modules may
be missing here, because a package is for another machine. But a module that is too old here is too old in
the distribution. The program needs only the standard library.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from pathlib import Path

# Without nvidia-ml-py, cdigen does not use NVML. Without grpcio, only 'cdigen kubelet' does not work.
OPTIONAL = {"nvidia-ml-py", "grpcio"}
_NEED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?P<bounds>[<>=0-9.,]*)")


def main(pyproject: str, *options: str) -> int:
    """Print the modules that do not fit; return the exit code."""
    project = tomllib.loads(Path(pyproject).read_text(encoding="utf-8"))["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["kubelet"]]
    is_for_this_host = "--of-a-package" not in options
    unfit = [text for need in needs if (text := _unfit(need, is_for_this_host=is_for_this_host))]
    sys.stdout.write("; ".join(unfit))
    return 1 if unfit else 0


def _unfit(need: str, *, is_for_this_host: bool) -> str:
    match = _NEED.fullmatch(need)
    if match is None:
        raise ValueError(f"unknown syntax: {need}")
    name, bounds = match["name"], match["bounds"]
    try:
        installed = version(name)
    except PackageNotFoundError:
        return f"{name} is missing ({bounds})" if is_for_this_host and name not in OPTIONAL else ""
    fits = all(_fits(installed, bound) for bound in bounds.split(",") if bound)
    return "" if fits else f"{name} is {installed} ({bounds})"


def _fits(installed: str, bound: str) -> bool:
    limit = bound.lstrip("<>=")
    pairs = list(zip_longest(_numbers(installed), _numbers(limit), fillvalue=0))
    own, required = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return {">=": own >= required, "<": own < required}[bound.removesuffix(limit)]


def _numbers(text: str) -> list[int]:
    # Only the release (PEP 440): 7.1rc1 is treated as 7.1.
    release = re.match(r"[0-9]+(?:\.[0-9]+)*", text)
    return [int(part) for part in release[0].split(".")] if release else []


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
