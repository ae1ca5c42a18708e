"""The features and behaviour of each release of the CDI library: the table behind all verdicts.

Sources: the library's tags, as read for docs/cdi.md, "Versions", "Checks", and its real loaders run on
documents made for the purpose. Which runtime has which release: docs/cdi.md, "Libraries in runtimes".
"""

from __future__ import annotations

from enum import Enum

from cdigen.cdi.version import KNOWN_VERSIONS, release_order

Release = tuple[int, int, int]

# Every release from the first that was observed on; older ones were not.
RELEASES = (
    *("0.5.2", "0.5.3", "0.5.4", "0.6.0", "0.6.1", "0.6.2", "0.7.0", "0.7.1", "0.7.2"),
    *("0.8.0", "0.8.1", "1.0.0", "1.0.1", "1.1.0"),
)
# Of 2025-12.
NEWEST_RELEASE = RELEASES[-1]
# The oldest release, the last of each minor version, and the development branch.
DEFAULT_RELEASES = tuple(
    dict.fromkeys((RELEASES[0], *{each.rpartition(".")[0]: each for each in RELEASES}.values(), "main"))
)

# The development branch as of 2026-08 (05ae4b5), later than the newest release.
_MAIN: Release = (1, 1, 1)
_ALWAYS: Release = (0, 0, 0)
_NEVER: Release = (999, 0, 0)

# Fields that not all releases have: the release that brought each and the one that took it away.
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
    """What only some releases do: in words, the first that does it, and the first that no longer does."""

    ALLOWS_V_BEFORE_VERSION = ("a v may stand before the version", (0, 5, 4), _NEVER)
    CHECKS_MINIMUM_VERSION = ("the version must be enough", (0, 5, 4), _NEVER)  # Kubernetes PR 116279
    ALLOWS_DOTS_IN_CLASS = ("a class may have dots", (0, 6, 0), _NEVER)
    REFUSES_EMPTY_DEVICES = ("a file without devices is refused", (1, 0, 0), _NEVER)
    CRASHES_ON_ONE_LETTER = ("a name of one letter crashes", _ALWAYS, _MAIN)  # issue 320, PR 321
    ALLOWS_SLASH_AS_CLOSID = ("closID may be a slash", (1, 1, 0), _NEVER)  # PR 286
    ALLOWS_PERMISSIONS_NONE = ("permissions may be none", _MAIN, _NEVER)

    def __init__(self, words: str, since: Release, until: Release) -> None:
        self.words = words
        self.since = since
        self.until = until


def release_of(version: str) -> Release | None:
    """Return the release that VERSION names, ``1.0.1`` or ``main``; None where none was observed."""
    if version == "main":
        return _MAIN
    if version not in RELEASES:
        return None
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


def newest_version(library: str) -> str:
    """Return the newest version of the specification that LIBRARY knows, a release of any age or ``main``."""
    if library == "main":
        return KNOWN_VERSIONS[-1]
    return next(
        version for version in reversed(KNOWN_VERSIONS) if release_order(version) <= release_order(library)
    )


class CdiLibrary:
    """One release, with the questions that were asked about it and the answers.

    Another release that gives the same answers does the same with the same document.
    """

    __slots__ = ("_answers", "_release")

    def __init__(self, release: Release) -> None:
        self._release = release
        self._answers: dict[LibraryBehaviour | str, bool] = {}

    def has(self, behaviour: LibraryBehaviour) -> bool:
        """Return whether the release has this behaviour."""
        return self._ask(behaviour)

    def has_field(self, field: str) -> bool:
        """Return whether its data types have FIELD; a field without a row was always there."""
        return field not in _FIELDS or self._ask(field)

    def knows(self, version: str) -> bool:
        """Return whether the release knows VERSION of the specification."""
        return self._ask(version)

    def answers_like(self, release: Release) -> bool:
        """Return whether RELEASE would have given all these answers."""
        return all(_answer(question, release) == answer for question, answer in self._answers.items())

    def _ask(self, question: LibraryBehaviour | str) -> bool:
        if question not in self._answers:
            self._answers[question] = _answer(question, self._release)
        return self._answers[question]


def _answer(question: LibraryBehaviour | str, release: Release) -> bool:
    """Return what is true of RELEASE: it behaves so, has this field, or knows this version."""
    if isinstance(question, LibraryBehaviour):
        return question.since <= release < question.until
    if question in _FIELDS:
        since, until = _FIELDS[question]
        return since <= release < until
    return question in KNOWN_VERSIONS and release_order(question) <= release
