"""What changed in the CDI library from release to release: the one table behind the verdicts.

Sources: the library's tags, as read for docs/cdi.md, "Versions", "Checks", and its real loaders run on
documents made for the purpose. Which runtime has which release: docs/cdi.md, "Libraries in runtimes".
"""

from __future__ import annotations

Release = tuple[int, int, int]

# Older releases were never observed; the newest is of 2025-12.
OLDEST: Release = (0, 5, 2)
NEWEST: Release = (1, 1, 0)
# The development branch as of 2026-08 (05ae4b5), later than the newest release.
MAIN: Release = (1, 1, 1)

_ALWAYS: Release = (0, 0, 0)
_NEVER: Release = (999, 0, 0)

# Each behaviour that not all releases have: the release that brought it and the one that took it away.
_CHANGES: dict[str, tuple[Release, Release]] = {
    "field annotations": ((0, 6, 0), _NEVER),
    "field intelRdt": ((0, 7, 0), _NEVER),
    "field additionalGids": ((0, 7, 0), _NEVER),
    "field netDevices": ((1, 1, 0), _NEVER),
    "field schemata": ((1, 1, 0), _NEVER),
    "field enableMonitoring": ((1, 1, 0), _NEVER),
    "field enableCMT": (_ALWAYS, (1, 1, 0)),
    "field enableMBM": (_ALWAYS, (1, 1, 0)),
    "a v may stand before the version": ((0, 5, 4), _NEVER),
    "the version must be enough": ((0, 5, 4), _NEVER),  # Kubernetes PR 116279
    "a class may have dots": ((0, 6, 0), _NEVER),
    "whatever is no letter before a name needs 0.5.0": (_ALWAYS, (1, 0, 0)),  # then only digits
    "a file without devices is refused": ((1, 0, 0), _NEVER),
    "a name of one letter crashes": (_ALWAYS, MAIN),  # issue 320, PR 321
    "permissions may be none": (MAIN, _NEVER),
}


def release_of(version: str) -> Release | None:
    """Return the release that VERSION names, ``1.0.1`` or ``main``; None where it was never observed."""
    if version == "main":
        return MAIN
    parts = version.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        return None
    release = (int(parts[0]), int(parts[1]), int(parts[2]))
    return release if OLDEST <= release <= NEWEST else None


def has(behaviour: str, release: Release) -> bool:
    """Return whether RELEASE behaves so; KeyError where the table has no such behaviour."""
    since, until = _CHANGES[behaviour]
    return since <= release < until


def has_field(field: str, release: Release) -> bool:
    """Return whether the data types of RELEASE have FIELD; a field without a row was always there."""
    since, until = _CHANGES.get(f"field {field}", (_ALWAYS, _NEVER))
    return since <= release < until
