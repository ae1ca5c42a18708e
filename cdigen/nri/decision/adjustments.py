"""A container with or without other plugins' changes: ``apply_adjustment``, ``subtract_adjustment``. Pure.

A plugin gets a container as the plugins before it have adjusted it. A validator gets it as it was requested,
and one adjustment that holds those of all plugins together; whose part is whose shows only by names, which
are not unique. So that both judge the same container, the validator applies all but our own part.

What one plugin removes of another's adjustment is not in there any more; what it removes of the container's
own is a name that begins with "-", but for variables, of which NRI up to 0.12 tells neither runtime nor
validators (containerd/nri, pkg/adaptation/result.go). None of them is told CDI devices of other plugins.
"""

from __future__ import annotations

from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    from cdigen.nri.pods import Adjustment, Container, ContainerMount

    T = TypeVar("T")

_REMOVES = "-"


def apply_adjustment(container: Container, adjustment: Adjustment) -> Container:
    """Return CONTAINER with the variables, annotations, nodes and mounts of ADJUSTMENT."""
    return replace(
        container,
        env=_environment(container.env, adjustment),
        annotations=_changed(container.annotations, adjustment.annotations),
        devices=tuple(
            _changed(dict.fromkeys(container.devices), {each.path: None for each in adjustment.devices})
        ),
        mounts=tuple(_changed(_by_place(container.mounts), _by_place(adjustment.mounts)).values()),
    )


def subtract_adjustment(adjustment: Adjustment, ours: Adjustment, *, mark: str) -> Adjustment:
    """Return ADJUSTMENT without what is in OURS as well, and without the annotation MARK."""
    own_env = ours.env.items()
    return replace(
        adjustment,
        annotations={name: text for name, text in adjustment.annotations.items() if name != mark},
        env=dict([pair for pair in adjustment.env.items() if pair not in own_env]),
        devices=tuple([device for device in adjustment.devices if device not in ours.devices]),
        mounts=tuple([mount for mount in adjustment.mounts if mount not in ours.mounts]),
    )


def _environment(given: tuple[str, ...], adjustment: Adjustment) -> tuple[str, ...]:
    if not adjustment.env:
        return given
    touched = {name.removeprefix(_REMOVES) for name in adjustment.env}
    kept = [entry for entry in given if entry.partition("=")[0] not in touched]
    set_ = [f"{name}={value}" for name, value in adjustment.env.items() if not name.startswith(_REMOVES)]
    return (*kept, *set_)


def _changed(given: Mapping[str, T], changes: Mapping[str, T]) -> dict[str, T]:
    """Return what is GIVEN by its names with CHANGES: each a name, or one to take away."""
    # One that was taken away and set anew is there under both names.
    touched = {name.removeprefix(_REMOVES) for name in changes}
    kept = {name: each for name, each in given.items() if name not in touched}
    return kept | {name: each for name, each in changes.items() if not name.startswith(_REMOVES)}


def _by_place(mounts: tuple[ContainerMount, ...]) -> dict[str, ContainerMount]:
    return {mount.destination: mount for mount in mounts}
