"""A table of the features and the behaviour of each release of the CDI library.

The predictions in ``loaders`` use this table. The sources are the tags of the library
(docs/reference/cdi-loaders.md, "Versions", "Checks"), and runs of the real loaders on test documents.
docs/reference/cdi-loaders.md, "Libraries in runtimes", lists the release of the library in each runtime.
"""

from __future__ import annotations

from enum import Enum

from cdigen.cdi.version import KNOWN_VERSIONS, release_order

Release = tuple[int, int, int]

# All releases that were tested. Older releases were not tested.
RELEASES = (
    *("0.5.2", "0.5.3", "0.5.4", "0.6.0", "0.6.1", "0.6.2", "0.7.0", "0.7.1", "0.7.2"),
    *("0.8.0", "0.8.1", "1.0.0", "1.0.1", "1.1.0"),
)
# The date of the newest release is 2025-12.
NEWEST_RELEASE = RELEASES[-1]
# The release after the newest release, and the development branch. Neither has a number. Both have the
# behaviours of the branch in 2026-08 (05ae4b5), from which the next release is made.
UNRELEASED = ("next", "main")
# The oldest release, the last release of each minor version, and the libraries without a release.
DEFAULT_RELEASES = tuple(
    dict.fromkeys((RELEASES[0], *{each.rpartition(".")[0]: each for each in RELEASES}.values(), *UNRELEASED))
)

# The unreleased libraries are newer than the newest release.
_MAIN: Release = (1, 1, 1)
_ALWAYS: Release = (0, 0, 0)
_NEVER: Release = (999, 0, 0)

# The fields that only some releases have: the first release with the field, and the release that removed it.
_FIELDS: dict[str, tuple[Release, Release]] = {
    "annotations": ((0, 6, 0), _NEVER),
    "intelRdt": ((0, 7, 0), _NEVER),
    "additionalGids": ((0, 7, 0), _NEVER),
    "netDevices": ((1, 1, 0), _NEVER),
    "schemata": ((1, 1, 0), _NEVER),
    "enableMonitoring": ((1, 1, 0), _NEVER),
    "enableCMT": (_ALWAYS, (1, 1, 0)),
    "enableMBM": (_ALWAYS, (1, 1, 0)),
}


class LibraryBehaviour(Enum):
    """A behaviour that only some releases have.

    The values are a description, the first release with the behaviour, and the release that removed it.
    """

    ALLOWS_V_BEFORE_VERSION = ("the version may begin with a v", (0, 5, 4), _NEVER)
    CHECKS_MINIMUM_VERSION = ("the version must be high enough", (0, 5, 4), _NEVER)  # Kubernetes PR 116279
    ALLOWS_DOTS_IN_CLASS = ("a class may have dots", (0, 6, 0), _NEVER)
    REFUSES_EMPTY_DEVICES = ("a file without devices is refused", (1, 0, 0), _NEVER)
    CRASHES_ON_ONE_LETTER = ("a name of one letter crashes", _ALWAYS, _MAIN)  # issue 320, PR 321
    ALLOWS_SLASH_AS_CLOSID = ("closID may be a slash", (1, 1, 0), _NEVER)  # PR 286
    ALLOWS_PERMISSIONS_NONE = ("permissions may be none", _MAIN, _NEVER)  # commit 90e09e4

    def __init__(self, words: str, since: Release, until: Release) -> None:
        self.words = words
        self.since = since
        self.until = until


def release_of(version: str) -> Release | None:
    """Return the release for VERSION (``1.0.1``, ``next``, ``main``), or None if it was not tested."""
    if version in UNRELEASED:
        return _MAIN
    if version not in RELEASES:
        return None
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


def newest_version(library: str) -> str:
    """Return the newest version of the specification that LIBRARY supports.

    LIBRARY is a release, ``next`` or ``main``.
    """
    if library in UNRELEASED:
        return KNOWN_VERSIONS[-1]
    return next(
        version for version in reversed(KNOWN_VERSIONS) if release_order(version) <= release_order(library)
    )


class CdiLibrary:
    """One release of the CDI library; the object records each queried feature.

    If two releases have the same values for the queried features, the results for a document are the same.
    """

    __slots__ = ("_queried", "_release")

    def __init__(self, release: Release) -> None:
        self._release = release
        self._queried: dict[LibraryBehaviour | str, bool] = {}

    def has(self, feature: LibraryBehaviour | str) -> bool:
        """Return whether the release has FEATURE: a behaviour, or a version of the specification."""
        if feature not in self._queried:
            self._queried[feature] = _has_feature(feature, self._release)
        return self._queried[feature]

    def has_field(self, field: str) -> bool:
        """Return whether the data types of the release have FIELD.

        The result is true for a field that is not in the table.
        """
        return field not in _FIELDS or self.has(field)

    def behaves_like(self, release: Release) -> bool:
        """Return whether RELEASE and this release have the same values for all queried features."""
        return all(_has_feature(feature, release) == value for feature, value in self._queried.items())


def _has_feature(feature: LibraryBehaviour | str, release: Release) -> bool:
    """Return whether RELEASE has FEATURE, which is a behaviour, the name of a field, or a version."""
    if isinstance(feature, LibraryBehaviour):
        return feature.since <= release < feature.until
    if feature in _FIELDS:
        since, until = _FIELDS[feature]
        return since <= release < until
    return feature in KNOWN_VERSIONS and release_order(feature) <= release
