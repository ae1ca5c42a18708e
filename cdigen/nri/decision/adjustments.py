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
    from collections.abc import Iterable

    from cdigen.nri.pods import Adjustment, Container, ContainerMount

_REMOVES = "-"


def apply_adjustment(container: Container, adjustment: Adjustment) -> Container:
    """Return CONTAINER with the variables, annotations, nodes and mounts of ADJUSTMENT."""
    return replace(
        container,
        env=_environment(container.env, adjustment),
        annotations=_annotations(container, adjustment),
        devices=tuple(_kept(container.devices, [device.path for device in adjustment.devices])),
        mounts=_mounts(container, adjustment),
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


def _annotations(container: Container, adjustment: Adjustment) -> dict[str, str]:
    # One that was taken away and set anew is there under both names.
    touched = {name.removeprefix(_REMOVES) for name in adjustment.annotations}
    kept = {name: text for name, text in container.annotations.items() if name not in touched}
    return kept | {
        name: text for name, text in adjustment.annotations.items() if not name.startswith(_REMOVES)
    }


def _mounts(container: Container, adjustment: Adjustment) -> tuple[ContainerMount, ...]:
    touched = {mount.destination.removeprefix(_REMOVES) for mount in adjustment.mounts}
    kept = [mount for mount in container.mounts if mount.destination not in touched]
    added = [mount for mount in adjustment.mounts if not mount.destination.startswith(_REMOVES)]
    return (*kept, *added)


def _kept(given: Iterable[str], changes: list[str]) -> list[str]:
    """Return the names GIVEN with CHANGES: a name, or one to take away."""
    touched = {name.removeprefix(_REMOVES) for name in changes}
    kept = [name for name in given if name not in touched]
    return kept + [name for name in changes if not name.startswith(_REMOVES)]
