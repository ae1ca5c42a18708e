"""``find_conflicting_plugin``: a pure function that finds the plugin that made an adjustment invalid."""

from __future__ import annotations

from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from cdigen.nri.decision.result.injection import AdjustmentValidation
    from cdigen.nri.pods import Adjustment, AdjustmentOwners, Container

    T = TypeVar("T")

# The prefix of the plugin name if the plugin removed the item (containerd/nri, pkg/api/owners.go).
_REMOVED = "-"
_NO_PLUGIN = ("", "")


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
        plugin = owners_by_path.get(name, "").removeprefix(_REMOVED)
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
            plugin.startswith(_REMOVED)
            and not validate(_without_variable(container, name), adjustment).reason
        ):
            return plugin.removeprefix(
                _REMOVED
            ), f"removed {name}, but NRI keeps the variable in the container"
    return _NO_PLUGIN


def _without(adjustment: Adjustment, plugin: str, owners: AdjustmentOwners) -> Adjustment:
    def remaining(rows: Mapping[str, T], owner: Mapping[str, str]) -> dict[str, T]:
        return {name: each for name, each in rows.items() if owner.get(name) != plugin}

    return replace(
        adjustment,
        annotations=remaining(adjustment.annotations, owners.annotations),
        env=remaining(adjustment.env, owners.env),
        mounts=tuple(
            remaining({each.destination: each for each in adjustment.mounts}, owners.mounts).values()
        ),
        devices=tuple(remaining({each.path: each for each in adjustment.devices}, owners.devices).values()),
    )


def _without_variable(container: Container, name: str) -> Container:
    env = tuple([entry for entry in container.env if entry.partition("=")[0] != name])
    return replace(container, env=env)
