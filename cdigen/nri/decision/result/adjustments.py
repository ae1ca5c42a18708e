"""Pure functions that add or remove changes of plugins: ``apply_adjustment``, ``subtract_adjustment``.

``find_conflicting_plugin`` finds the plugin that made an adjustment invalid.

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
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from cdigen.nri.decision.result.injection import AdjustmentValidation
    from cdigen.nri.pods import Adjustment, AdjustmentOwners, Container, ContainerMount

    T = TypeVar("T")

# The prefix of the name of a removed item, and of the plugin that removed an item (containerd/nri,
# pkg/api/owners.go).
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


def find_conflicting_plugin(  # noqa: PLR0913 - the arguments are independent
    validate: Callable[[Container, Adjustment], AdjustmentValidation],
    validation: AdjustmentValidation,
    container: Container,
    adjustment: Adjustment,
    owners: AdjustmentOwners,
    *,
    own: str,
) -> tuple[str, str]:
    """Return the other plugin (``30-other``) that caused VALIDATION, and the action of this plugin.

    Both values are "" if no such plugin is found. CONTAINER is the original container. ADJUSTMENT contains
    the changes of all plugins. OWNERS contains the plugin that made each change. OWN is the name of cdigen's
    plugin (``20-cdigen``). The function first searches for a plugin that removed a missing item. Then it
    searches for a plugin that changed the requests of the container, or that removed a variable. A change is
    the cause if VALIDATE accepts the container without the change. The action is the second half of a
    sentence that starts with the plugin name.
    """
    owners_by_path = {**owners.mounts, **owners.devices}
    for name in validation.missing:
        plugin = owners_by_path.get(name, "").removeprefix(_REMOVES)
        if plugin not in {"", own}:
            return plugin, f"removed {name}"
    all_owners = (owners.env, owners.annotations, owners.mounts, owners.devices)
    for plugin in sorted({plugin for rows in all_owners for plugin in rows.values()} - {own}):
        # The runtime calls plugins in the order of the two digits in their names. The changes of earlier
        # plugins are no cause, because cdigen's response already depends on these changes.
        if plugin[:2] >= own[:2] and not validate(container, _without(adjustment, plugin, owners)).reason:
            return plugin, "changed the requests of the container"
    for name, plugin in owners.env.items():
        if (
            plugin.startswith(_REMOVES)
            and not validate(_without_variable(container, name), adjustment).reason
        ):
            return plugin.removeprefix(
                _REMOVES
            ), f"removed {name}, but NRI keeps the variable in the container"
    return "", ""


def _without(adjustment: Adjustment, plugin: str, owners: AdjustmentOwners) -> Adjustment:
    def remaining(rows: Mapping[str, T], owner: Mapping[str, str]) -> dict[str, T]:
        return {name: each for name, each in rows.items() if owner.get(name) != plugin}

    return replace(
        adjustment,
        annotations=remaining(adjustment.annotations, owners.annotations),
        env=remaining(adjustment.env, owners.env),
        mounts=tuple(remaining(_by_destination(adjustment.mounts), owners.mounts).values()),
        devices=tuple(remaining({each.path: each for each in adjustment.devices}, owners.devices).values()),
    )


def _without_variable(container: Container, name: str) -> Container:
    env = tuple([entry for entry in container.env if entry.partition("=")[0] != name])
    return replace(container, env=env)


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
