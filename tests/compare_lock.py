"""Print each installed package whose release differs from requirements-dev.lock, with the locked release.

It compares the packages of the Python that runs it. 'make test-newest' runs this program before its tests.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name

LOCK = Path(__file__).resolve().parents[1] / "requirements-dev.lock"


def differences(lock: str, installed: dict[str, str]) -> list[str]:
    """Return a line for each package of INSTALLED (name to release) whose release is not in the text LOCK."""
    locked: dict[str, list[str]] = {}
    for name, release in re.findall(r"^(\S+)==(\S+)", lock, flags=re.MULTILINE):
        locked.setdefault(name, []).append(release)
    return [
        f"{name} {release} (locked: {', '.join(locked.get(name, ['none']))})"
        for name, release in sorted(installed.items())
        if release not in locked.get(name, [])
    ]


def main() -> int:
    """Print the differences; return the exit code."""
    installed: dict[str, str] = {canonicalize_name(found.name): found.version for found in distributions()}
    # The package of this repository is in no lock.
    installed.pop("cdigen", None)
    lines = differences(LOCK.read_text(encoding="utf-8"), installed)
    print("\n  ".join((f"Packages that differ from {LOCK.name}: {len(lines)}", *lines)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
