"""What changed in the CDI library from release to release: the one table behind the verdicts.

Sources: the library's tags, as read for docs/cdi.md, "Versions", "Checks", and its real loaders run on
documents made for the purpose. Which runtime has which release: docs/cdi.md, "Libraries in runtimes".
"""

from __future__ import annotations

from cdigen.cdi.version import KNOWN_VERSIONS, release_order

Release = tuple[int, int, int]

# The newest release, of 2025-12.
NEWEST: Release = (1, 1, 0)
# The development branch as of 2026-08 (05ae4b5), later than the newest release.
MAIN: Release = (1, 1, 1)

# Every release from the first that was observed on; older ones were not.
RELEASES = (
    *("0.5.2", "0.5.3", "0.5.4", "0.6.0", "0.6.1", "0.6.2", "0.7.0", "0.7.1", "0.7.2"),
    *("0.8.0", "0.8.1", "1.0.0", "1.0.1", "1.1.0"),
)

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
    "closID may be a slash": ((1, 1, 0), _NEVER),  # PR 286
    "permissions may be none": (MAIN, _NEVER),
}


def release_of(version: str) -> Release | None:
    """Return the release that VERSION names, ``1.0.1`` or ``main``; None where none was observed."""
    if version == "main":
        return MAIN
    if version not in RELEASES:
        return None
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


def answer(question: str, release: Release) -> bool | str:
    """Return what is true of RELEASE; KeyError where the table has no such QUESTION.

    A QUESTION is a behaviour of the table, ``knows`` with a version of the specification, or
    ``newest`` for the newest version that the release knows.
    """
    if question == "newest":
        return max((known for known in KNOWN_VERSIONS if release_order(known) <= release), key=release_order)
    if question.startswith("knows "):
        version = question.removeprefix("knows ")
        return version in KNOWN_VERSIONS and release_order(version) <= release
    since, until = _CHANGES[question]
    return since <= release < until


def is_everywhere(field: str) -> bool:
    """Return whether every release has FIELD."""
    return f"field {field}" not in _CHANGES


class CdiLibrary:
    """One release as a document meets it: what it was asked, and what it said.

    Another release that gives the same answers does the same with the same document.
    """

    __slots__ = ("asked", "release")

    def __init__(self, release: Release) -> None:
        self.release = release
        self.asked: dict[str, bool | str] = {}

    def has(self, behaviour: str) -> bool:
        """Return whether the release behaves so."""
        return bool(self._ask(behaviour))

    def has_field(self, field: str) -> bool:
        """Return whether its data types have FIELD; a field without a row was always there."""
        return is_everywhere(field) or bool(self._ask(f"field {field}"))

    def knows(self, version: str) -> bool:
        """Return whether the release knows VERSION of the specification."""
        return bool(self._ask(f"knows {version}"))

    def newest(self) -> str:
        """Return the newest version of the specification that the release knows."""
        return str(self._ask("newest"))

    def does_as(self, release: Release) -> bool:
        """Return whether RELEASE would have said the same to all that was asked."""
        return all(answer(question, release) == said for question, said in self.asked.items())

    def copy(self) -> CdiLibrary:
        """Return the release with what it was asked so far."""
        library = CdiLibrary(self.release)
        library.asked = dict(self.asked)
        return library

    def _ask(self, question: str) -> bool | str:
        if question not in self.asked:
            self.asked[question] = answer(question, self.release)
        return self.asked[question]
