"""Turn the release named by ``--target`` into what it accepts: ``parse``.

``parse`` turns ``podman-4.3`` into a ``Target``, ``strictest`` makes one of several. A version without a
patch level means the oldest of its series, which may be installed.
"""

from __future__ import annotations

from cdigen.cdi.library import LibraryBehaviour
from cdigen.cdi.version import release_order
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.runtimes.releases import (
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
    """The runtime ``name`` (``podman-4.3.0``), whose CDI ``library`` reads specs up to ``newest``.

    ``dots_in_class`` is false where the library is so old that it refuses a kind with a dot in its
    class. ``forgets_gids`` names the release, this one or one beside it, that reads a spec's
    additional groups and starts the process without them; empty where none does. ``doubts`` say which
    releases are newer than all that are known, and what each is taken for.
    """

    name: str
    library: str
    newest: str
    dots_in_class: bool
    forgets_gids: str = ""
    doubts: tuple[str, ...] = ()


def parse(text: str) -> Target:
    """Return the target that TEXT names: a runtime, a hyphen, one to three numbers.

    A release between two rows of the table, or after the last, is like the row before it, with a doubt if it
    is of a later series. Raises ConfigError if TEXT is not a release of a known runtime, or is too old for
    CDI.
    """
    runtime, release = _split(text)
    name = _name(runtime, release)
    library, newest = library_of(runtime, release)
    if not library:
        oldest = LIBRARIES[runtime][0][0]
        raise ConfigError(
            f"the target {name} is too old: it reads no CDI specs",
            hint=f"the oldest that does is {_name(runtime, oldest)}; a version that is not given in "
            "full means the oldest of its series",
        )
    latest = newest_release(runtime)
    newest_known = f"{_name(runtime, latest)}, the newest that cdigen knows"
    doubt = f"{name} is newer than {newest_known}, and is taken for that one"
    forgets = behaves(runtime, release, RuntimeBehaviour.FORGETS_GIDS)
    return Target(
        name=name,
        library=library,
        newest=newest,
        dots_in_class=LibraryBehaviour.ALLOWS_DOTS_IN_CLASS.since <= release_order(library),
        forgets_gids=name if forgets else "",
        doubts=(doubt,) if release[:2] > latest[:2] else (),
    )


def strictest(targets: tuple[Target, ...]) -> Target | None:
    """Return a target that accepts only what each of TARGETS accepts; None if there are none.

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
            hint=f"such as podman-4.3 or containerd-1.7.24; known runtimes: {', '.join(LIBRARIES)}",
        )
    if runtime not in LIBRARIES:
        raise ConfigError(
            f"the target {shown(text)!r} is not a runtime that cdigen knows",
            hint=f"known runtimes: {', '.join(LIBRARIES)}",
        )
    major, minor, patch = (*numbers, 0, 0)[:3]
    return runtime, (major, minor, patch)


def _name(runtime: str, release: Release) -> str:
    return f"{runtime}-{'.'.join(map(str, release))}"
