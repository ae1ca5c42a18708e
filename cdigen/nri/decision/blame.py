"""Which other plugin has made a container one that must not start: ``blame``. Pure."""

from __future__ import annotations

from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from cdigen.nri.decision.answer import Verdict
    from cdigen.nri.pods import Adjustment, Container, Owners

    T = TypeVar("T")

# Before the name of a plugin that has taken something away (containerd/nri, pkg/api/owners.go).
_TAKEN = "-"
_NOBODY = ("", "")


def blame(  # noqa: PLR0913 - each is its own thing
    judge: Callable[[Container, Adjustment], Verdict],
    verdict: Verdict,
    container: Container,
    adjustment: Adjustment,
    owners: Owners,
    *,
    own: str,
) -> tuple[str, str]:
    """Return which other plugin (``30-other``) is why JUDGE gives VERDICT, and what it did; empty: none.

    CONTAINER is as it was asked for, ADJUSTMENT what all plugins have made of it, OWNERS who made what. It is
    the one who took away what is missing, or but for whom JUDGE would let the container start. OWN is our
    name (``20-cdigen``). What it did is written to follow its name in a sentence.
    """
    takers = {**owners.mounts, **owners.devices}
    for name in verdict.missing:
        plugin = takers.get(name, "").removeprefix(_TAKEN)
        if plugin not in {"", own}:
            return plugin, f"has taken {name} away"
    everyone = (owners.env, owners.annotations, owners.mounts, owners.devices)
    for plugin in sorted({plugin for rows in everyone for plugin in rows.values()} - {own}):
        # What those before us changed was answered by us: they are called in the order of the two digits.
        if plugin[:2] >= own[:2] and not judge(container, _without(adjustment, plugin, owners)).reason:
            return plugin, "has changed what it asks for"
    for name, plugin in owners.env.items():
        if plugin.startswith(_TAKEN) and not judge(_unasked(container, name), adjustment).reason:
            return plugin.removeprefix(_TAKEN), f"has taken {name} away, which NRI leaves to the container"
    return _NOBODY


def _without(adjustment: Adjustment, plugin: str, owners: Owners) -> Adjustment:
    """Return ADJUSTMENT without what PLUGIN has set."""

    def left(rows: Mapping[str, T], owner: Mapping[str, str]) -> dict[str, T]:
        return {name: each for name, each in rows.items() if owner.get(name) != plugin}

    return replace(
        adjustment,
        annotations=left(adjustment.annotations, owners.annotations),
        env=left(adjustment.env, owners.env),
        mounts=tuple(left({each.destination: each for each in adjustment.mounts}, owners.mounts).values()),
        devices=tuple(left({each.path: each for each in adjustment.devices}, owners.devices).values()),
    )


def _unasked(container: Container, name: str) -> Container:
    """Return CONTAINER without the variable NAME."""
    env = tuple([entry for entry in container.env if entry.partition("=")[0] != name])
    return replace(container, env=env)
