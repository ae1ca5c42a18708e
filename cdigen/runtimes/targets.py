"""Which runtime release holds which CDI library: the table behind ``--target``.

``parse`` turns ``podman-4.3`` into a ``Target``, ``strictest`` makes one of several. A version without
a patch level is the oldest of its series, since that is what may be installed.
"""

from __future__ import annotations

from cdigen.cdi.version import is_newer, release_order
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.target import Target
from cdigen.value import replace

Release = tuple[int, int, int]

# Runtime -> the first release of each series, its CDI library, and the newest spec version which that
# accepts. Source: go.mod at the tags of each runtime, as of 2026-08; the main ones are in docs/cdi.md,
# "Libraries in runtimes". A release between two rows has the library of the upper one.
RUNTIMES: dict[str, tuple[tuple[Release, str, str], ...]] = {
    "apptainer": (((1, 5, 0), "1.1.0", "1.1.0"),),
    "buildkit": (
        ((0, 20, 0), "0.8.0", "0.8.0"),  # PR 4056
        ((0, 21, 0), "1.0.1", "1.0.0"),
        ((0, 28, 0), "1.1.0", "1.1.0"),
    ),
    "containerd": (
        ((1, 7, 0), "0.5.4", "0.5.0"),  # PR 6654
        ((1, 7, 13), "0.6.2", "0.6.0"),
        ((1, 7, 20), "0.7.2", "0.7.0"),
        ((1, 7, 27), "0.8.1", "0.8.0"),
        ((2, 0, 0), "0.8.0", "0.8.0"),
        ((2, 0, 5), "1.0.0", "1.0.0"),
        ((2, 1, 0), "1.0.1", "1.0.0"),
        ((2, 2, 1), "1.1.0", "1.1.0"),
    ),
    "cri-o": (
        ((1, 24, 0), "0.3.2", "0.3.0"),  # PR 5571
        ((1, 25, 0), "0.5.0", "0.5.0"),
        ((1, 26, 0), "0.5.3", "0.5.0"),
        ((1, 27, 0), "0.5.4", "0.5.0"),
        ((1, 28, 0), "0.6.0", "0.6.0"),
        ((1, 29, 0), "0.6.2", "0.6.0"),
        ((1, 30, 0), "0.7.2", "0.7.0"),
        ((1, 31, 0), "0.8.0", "0.8.0"),
        ((1, 33, 0), "1.0.1", "1.0.0"),
        ((1, 35, 0), "1.1.0", "1.1.0"),
    ),
    "docker": (
        ((25, 0, 0), "0.6.2", "0.6.0"),  # moby PR 45134
        ((27, 5, 0), "0.8.0", "0.8.0"),
        ((28, 1, 0), "1.0.1", "1.0.0"),
        ((29, 7, 0), "1.1.0", "1.1.0"),
    ),
    "nerdctl": (((2, 1, 0), "1.0.1", "1.0.0"),),
    "podman": (
        ((4, 1, 0), "0.4.0", "0.4.0"),  # PR 12825; 3.2 to 4.0 had an older interface
        ((4, 3, 0), "0.5.2", "0.5.0"),  # Debian 12
        ((4, 4, 0), "0.5.3", "0.5.0"),
        ((4, 5, 0), "0.5.4", "0.5.0"),
        ((4, 7, 0), "0.6.1", "0.6.0"),
        ((4, 8, 0), "0.6.2", "0.6.0"),  # Ubuntu 24.04 has 4.9.3
        ((5, 1, 0), "0.7.2", "0.7.0"),
        ((5, 2, 0), "0.8.0", "0.8.0"),
        ((5, 5, 0), "1.0.1", "1.0.0"),
        ((6, 0, 0), "1.1.0", "1.1.0"),
    ),
}
ALIASES = {"crio": "cri-o"}

# Until then Docker set up the user after the CDI edits, and with it the groups anew (moby PR 52579).
DOCKER_KEEPS_GIDS: Release = (29, 5, 0)
# The first library that takes a dot in a class (docs/cdi.md, "Names").
DOTS_SINCE = "0.6.0"


def parse(text: str) -> Target:
    """Return the target that TEXT names: a runtime, a hyphen, one to three numbers.

    A release between two rows of the table has what the row before it says, and so has one after the
    last, with a doubt where it is of a later series. Raises ConfigError for what is no release of a known
    runtime or is too old for CDI.
    """
    runtime, release = _split(text)
    name = _name(runtime, release)
    rows = RUNTIMES[runtime]
    known = [row for row in rows if row[0] <= release]
    if not known:
        raise ConfigError(
            f"the target {name} is too old: it reads no CDI specs",
            hint=f"the oldest that does is {_name(runtime, rows[0][0])}; a version that is not given in "
            "full means the oldest of its series",
        )
    _, library, newest = known[-1]
    latest = rows[-1][0]
    is_later = release[:2] > latest[:2]
    forgets = runtime == "docker" and release < DOCKER_KEEPS_GIDS
    return Target(
        name=name,
        library=library,
        newest=newest,
        dots_in_class=not is_newer(DOTS_SINCE, library),
        forgets_gids=name if forgets else "",
        doubts=(_doubt(name, _name(runtime, latest)),) if is_later else (),
    )


def strictest(targets: tuple[Target, ...]) -> Target | None:
    """Return a target that accepts only what each of TARGETS accepts; None where there are none.

    It has the name of the one with the oldest library.
    """
    if not targets:
        return None
    return replace(
        min(targets, key=_age),
        dots_in_class=all(target.dots_in_class for target in targets),
        forgets_gids=min((target.forgets_gids for target in targets if target.forgets_gids), default=""),
        doubts=tuple(dict.fromkeys(doubt for target in targets for doubt in target.doubts)),
    )


def _doubt(name: str, latest: str) -> str:
    return f"{name} is newer than {latest}, the newest that cdigen knows, and is taken for that one"


def _age(target: Target) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    return release_order(target.newest), release_order(target.library), target.name


def _split(text: str) -> tuple[str, Release]:
    runtime, _, version = text.rpartition("-")
    runtime = ALIASES.get(runtime, runtime)
    parts = version.split(".")
    numbers = [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 6]
    if not runtime or len(numbers) != len(parts) or len(parts) > 3:
        raise ConfigError(
            f"the target {shown(text)!r} is not a runtime, a hyphen and a version",
            hint=f"such as podman-4.3 or containerd-1.7.24; known runtimes: {', '.join(RUNTIMES)}",
        )
    if runtime not in RUNTIMES:
        raise ConfigError(
            f"the target {shown(text)!r} is no runtime that cdigen knows",
            hint=f"known runtimes: {', '.join(RUNTIMES)}",
        )
    major, minor, patch = (*numbers, 0, 0)[:3]
    return runtime, (major, minor, patch)


def _name(runtime: str, release: Release) -> str:
    return f"{runtime}-{'.'.join(map(str, release))}"
