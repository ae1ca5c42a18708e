"""Find the spec features that the release of a target accepts.

``parse`` converts a text such as ``podman-4.3`` to a ``Target``. ``strictest`` combines several targets. A
version without a patch level means the oldest release of its series, because this release may be installed.
"""

from __future__ import annotations

from cdigen.cdi.library import LibraryBehaviour
from cdigen.cdi.version import release_order
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.runtimes.releases import (
    LAST_SERIES,
    LIBRARIES,
    RUNTIME_NAMES,
    RuntimeBehaviour,
    behaves,
    library_of,
    newest_release,
)
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.runtimes.releases import Release


@frozen
class Target:
    """The runtime ``name`` (``podman-4.3.0``); its CDI ``library`` reads specs up to version ``newest``.

    ``dots_in_class`` is false if the library is too old to accept a kind with a dot in its class.
    ``forgets_gids`` names a release that reads the additional groups of a spec but starts the process without
    these groups. A target can combine several releases (``strictest``). ``forgets_gids`` then names one of
    these releases. It is empty if all releases apply the groups. ``doubts`` are the reasons why a release is
    unknown. An unknown release is treated as the last known release before it.
    """

    name: str
    library: str
    newest: str
    dots_in_class: bool
    forgets_gids: str = ""
    doubts: tuple[str, ...] = ()


def parse(text: str) -> Target:
    """Return the target in TEXT, which has the form RUNTIME-VERSION with one to three numbers.

    A release without its own row in the table is treated as the release in the row before it. If the series
    of the release is unknown, the target has a doubt. Raises ConfigError if TEXT is not a release of a known
    runtime, or if the release is too old for CDI.
    """
    runtime, release = _split(text)
    name = _name(runtime, release)
    library, newest = library_of(runtime, release)
    if not library:
        oldest = LIBRARIES[runtime][0][0]
        raise ConfigError(
            f"the target {name} is too old: it reads no CDI specs",
            hint=f"the oldest target with CDI is {_name(runtime, oldest)}; an incomplete version "
            "means the oldest release of the series",
        )
    doubt = _doubt(runtime, release)
    forgets = behaves(runtime, release, RuntimeBehaviour.FORGETS_GIDS)
    return Target(
        name=name,
        library=library,
        newest=newest,
        dots_in_class=LibraryBehaviour.ALLOWS_DOTS_IN_CLASS.since <= release_order(library),
        forgets_gids=name if forgets else "",
        doubts=(doubt,) if doubt else (),
    )


def strictest(targets: tuple[Target, ...]) -> Target | None:
    """Return a target with the features that all TARGETS accept; None if TARGETS is empty.

    The name of the result is the name of the target with the oldest library.
    """
    if not targets:
        return None
    return replace(
        min(targets, key=_age),
        dots_in_class=all(target.dots_in_class for target in targets),
        forgets_gids=min((target.forgets_gids for target in targets if target.forgets_gids), default=""),
        doubts=tuple(dict.fromkeys(doubt for target in targets for doubt in target.doubts)),
    )


def target_key(releases: tuple[str, ...]) -> str:
    """Return the configuration key with RELEASES, without duplicates: ``target: [podman-4.3]``."""
    return f"target: [{', '.join(dict.fromkeys(releases))}]"


def _doubt(runtime: str, release: Release) -> str:
    """Return the reason why RELEASE of RUNTIME is unknown; empty if its series is known."""
    latest, (major, minor) = newest_release(runtime), release[:2]
    if (major, minor) > latest[:2]:
        known = f"{_name(runtime, latest)}, the newest release in cdigen's table"
        return f"{_name(runtime, release)} is newer than {known}"
    last = LAST_SERIES.get(runtime, {}).get(major, minor)
    known = f"the last series of {runtime} {major} in cdigen's table"
    return f"{_name(runtime, release)} is newer than {major}.{last}, {known}" if minor > last else ""


def _age(target: Target) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    return release_order(target.newest), release_order(target.library), target.name


def _split(text: str) -> tuple[str, Release]:
    runtime, _, version = text.rpartition("-")
    runtime = RUNTIME_NAMES.get(runtime, runtime)
    parts = version.split(".")
    numbers = [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 6]
    if not runtime or len(numbers) != len(parts) or len(parts) > 3:
        raise ConfigError(
            f"the target {shown(text)!r} is not a runtime, a hyphen and a version",
            hint=f"examples: podman-4.3, containerd-1.7.24; runtimes: {', '.join(LIBRARIES)}",
        )
    if runtime not in LIBRARIES:
        raise ConfigError(
            f"the target {shown(text)!r}: the runtime is unknown",
            hint=f"runtimes: {', '.join(LIBRARIES)}",
        )
    major, minor, patch = (*numbers, 0, 0)[:3]
    return runtime, (major, minor, patch)


def _name(runtime: str, release: Release) -> str:
    return f"{runtime}-{'.'.join(map(str, release))}"
