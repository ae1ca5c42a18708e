"""Convert the verdicts of CDI libraries on a spec file to verdicts of runtimes.

``LIBRARIES`` are the libraries that ``cdigen.cdi.loaders.emulation`` emulates for this conversion. ``groups``
returns groups of runtimes for text output. ``rows`` returns the output of ``--json``.
"""

from __future__ import annotations

from itertools import groupby

from cdigen.cdi.library import RELEASES
from cdigen.cdi.loaders.emulation import ACCEPT, UNKNOWN
from cdigen.runtimes import releases
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cdigen.cdi.loaders.emulation import LoaderVerdict
    from cdigen.runtimes.releases import Release

# The libraries of all runtimes in the table, from the oldest to the newest.
LIBRARIES = tuple(
    sorted(
        {library for rows in releases.LIBRARIES.values() for _, library in rows},
        key=lambda version: tuple(map(int, version.split("."))),
    )
)


@frozen
class RuntimeGroup:
    """Runtimes with the same verdict on a file for the same reason.

    A runtime is a range of releases, such as ``podman 4.3.0 to before 5.1.0``.
    """

    verdict: str
    reason: str
    runtimes: tuple[str, ...]
    is_all: bool


def rows(judged: Mapping[str, LoaderVerdict]) -> dict[str, str]:
    """Return the verdict for each release, such as ``podman-4.3.0``, in which a runtime's library changed."""
    return {
        f"{runtime}-{_text(since)}": judged[library].verdict
        for runtime, table in releases.LIBRARIES.items()
        for since, library in table
    }


def groups(judged: Mapping[str, LoaderVerdict]) -> tuple[RuntimeGroup, ...]:
    """Return groups of the runtimes that do not accept a file; runtimes with an unknown verdict are omitted.

    JUDGED has the verdict of each library in LIBRARIES. A library that was not tested can extend a range,
    but cannot create a group.
    """
    known = {library for library in LIBRARIES if judged[library].verdict != UNKNOWN}
    observed = known.intersection(RELEASES)
    kinds = {
        (judged[library].verdict, judged[library].reason): None
        for library in LIBRARIES
        if library in observed and judged[library].verdict != ACCEPT
    }
    made = []
    for kind in kinds:
        alike = {library for library in known if (judged[library].verdict, judged[library].reason) == kind}
        names = tuple(name for runtime in releases.LIBRARIES for name in _ranges(runtime, alike))
        made.append(RuntimeGroup(verdict=kind[0], reason=kind[1], runtimes=names, is_all=alike >= observed))
    return tuple(made)


def _ranges(runtime: str, alike: set[str]) -> Iterator[str]:
    """Yield the ranges of releases of RUNTIME whose library is in ALIKE."""
    table = releases.LIBRARIES[runtime]
    for is_in, run in groupby(range(len(table)), lambda index: table[index][1] in alike):
        if is_in:
            places = list(run)
            yield _range(runtime, table, places[0], places[-1] + 1)


def _range(runtime: str, table: tuple[tuple[Release, str], ...], start: int, end: int) -> str:
    since = _text(table[start][0])
    if end == len(table):
        return runtime if start == 0 else f"{runtime} from {since} on"
    until = _text(table[end][0])
    return f"{runtime} before {until}" if start == 0 else f"{runtime} {since} to before {until}"


def _text(release: Release) -> str:
    return ".".join(map(str, release))
