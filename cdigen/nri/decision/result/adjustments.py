"""Pure functions that add or remove changes of plugins: ``apply_adjustment``, ``subtract_adjustment``.

In CreateContainer, a plugin receives the container with the changes of all earlier plugins. A validator
receives the original container, and one adjustment with the changes of all plugins. NRI identifies the author
of a change only by the name of the plugin, and these names are not unique. Therefore cdigen's validator
computes cdigen's own changes again, and applies only the other changes. So CreateContainer and the validation
decide about the same container.

The adjustment does not contain a change that a later plugin removed. If a plugin removed an item of the
original container, the adjustment contains "-" and the name of the item. NRI up to 0.12 does not report
removed variables to the runtime or to validators (containerd/nri, pkg/adaptation/result.go). Plugins do not
receive CDI devices of other plugins.
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
    """Return CONTAINER with the changes to variables, annotations, nodes and mounts in ADJUSTMENT."""
    return replace(
        container,
        env=_environment(container.env, adjustment),
        annotations=_changed(container.annotations, adjustment.annotations),
        devices=tuple(
            _changed(dict.fromkeys(container.devices), {each.path: None for each in adjustment.devices})
        ),
        mounts=tuple(
            _changed(_by_destination(container.mounts), _by_destination(adjustment.mounts)).values()
        ),
    )


def subtract_adjustment(adjustment: Adjustment, own: Adjustment, *, mark: str) -> Adjustment:
    """Return ADJUSTMENT without the changes in OWN and without the annotation MARK."""
    own_env = own.env.items()
    return replace(
        adjustment,
        annotations={name: text for name, text in adjustment.annotations.items() if name != mark},
        env=dict([pair for pair in adjustment.env.items() if pair not in own_env]),
        devices=tuple([device for device in adjustment.devices if device not in own.devices]),
        mounts=tuple([mount for mount in adjustment.mounts if mount not in own.mounts]),
    )


def _environment(existing: tuple[str, ...], adjustment: Adjustment) -> tuple[str, ...]:
    if not adjustment.env:
        return existing
    touched = {name.removeprefix(_REMOVES) for name in adjustment.env}
    kept = [entry for entry in existing if entry.partition("=")[0] not in touched]
    set_ = [f"{name}={value}" for name, value in adjustment.env.items() if not name.startswith(_REMOVES)]
    return (*kept, *set_)


def _changed(existing: Mapping[str, T], changes: Mapping[str, T]) -> dict[str, T]:
    """Return EXISTING with CHANGES; both map names to items.

    A name in CHANGES that starts with "-" removes an item.
    """
    # If an item was removed and set again, CHANGES has the name with "-" and the name without "-".
    touched = {name.removeprefix(_REMOVES) for name in changes}
    kept = {name: each for name, each in existing.items() if name not in touched}
    return kept | {name: each for name, each in changes.items() if not name.startswith(_REMOVES)}


def _by_destination(mounts: tuple[ContainerMount, ...]) -> dict[str, ContainerMount]:
    return {mount.destination: mount for mount in mounts}
