"""Calls plugins in order, as a runtime does: each receives the container as the previous plugins changed it.

`chained` merges their adjustments as containerd/nri, pkg/adaptation/result.go (v0.12) does. If a plugin
removes an item that an earlier plugin set, the item is not in the result. If a plugin removes an item of the
container, the result contains the removal, except for variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdigen.nri.pods import Adjustment, AdjustmentOwners
from cdigen.value import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.nri.pods import Container

    Plugin = Callable[[Container], Adjustment]


def chained(container: Container, *plugins: Plugin) -> Adjustment:
    """Return the merged adjustment of PLUGINS for CONTAINER."""
    whole = Adjustment()
    for plugin in plugins:
        made = plugin(container)
        gone = {name[1:] for name in _names(made) if name.startswith("-")}
        set_ = {name for name in _names(made) if not name.startswith("-")}
        whole = _without(whole, gone)
        clashes = (set(_names(whole)) | {*whole.cdi_devices}) & (set_ | {*made.cdi_devices})
        assert not clashes, f"two plugins both tried to set {clashes}"
        container = _changed(container, made, gone | set_)
        whole = Adjustment(
            annotations={**whole.annotations, **made.annotations},
            env={**whole.env, **{name: text for name, text in made.env.items() if name[0] != "-"}},
            mounts=whole.mounts + made.mounts,
            devices=whole.devices + made.devices,
            hooks=whole.hooks + made.hooks,
            cdi_devices=whole.cdi_devices + made.cdi_devices,
        )
    return whole


def owned(container: Container, plugins: Mapping[str, Plugin]) -> AdjustmentOwners:
    """Return the owner of each change of PLUGINS: the plugin's name, with "-" before it for a removal.

    Source: containerd/nri, pkg/api/owners.go (v0.12).
    """
    owners: dict[str, dict[str, str]] = {"annotations": {}, "env": {}, "mounts": {}, "devices": {}}
    for name, plugin in plugins.items():
        made = plugin(container)
        changes = {
            "annotations": [*made.annotations],
            "env": [*made.env],
            "mounts": [mount.destination for mount in made.mounts],
            "devices": [device.path for device in made.devices],
        }
        # An item that is removed and set again belongs to the plugin that sets it.
        for field, keys in changes.items():
            for key in sorted(keys, key=lambda key: key[0] != "-"):
                owners[field][key.removeprefix("-")] = f"-{name}" if key[0] == "-" else name
        container = _changed(container, made, {key.removeprefix("-") for key in _names(made)})
    return AdjustmentOwners(**owners)


def _names(made: Adjustment) -> list[str]:
    rows = [mount.destination for mount in made.mounts] + [device.path for device in made.devices]
    return [*made.annotations, *made.env, *rows]


def _without(made: Adjustment, gone: set[str]) -> Adjustment:
    return replace(
        made,
        annotations={name: text for name, text in made.annotations.items() if name not in gone},
        env={name: text for name, text in made.env.items() if name not in gone},
        mounts=tuple(mount for mount in made.mounts if mount.destination not in gone),
        devices=tuple(device for device in made.devices if device.path not in gone),
    )


def _changed(container: Container, made: Adjustment, touched: set[str]) -> Container:
    """Return CONTAINER as the next plugin receives it: with the changes MADE, but not their CDI devices."""
    return replace(
        container,
        env=(
            *(entry for entry in container.env if entry.partition("=")[0] not in touched),
            *(f"{name}={text}" for name, text in made.env.items() if name[0] != "-"),
        ),
        annotations={
            **{name: text for name, text in container.annotations.items() if name not in touched},
            **{name: text for name, text in made.annotations.items() if name[0] != "-"},
        },
        mounts=(
            *(mount for mount in container.mounts if mount.destination not in touched),
            *(mount for mount in made.mounts if mount.destination[0] != "-"),
        ),
        devices=(
            *(path for path in container.devices if path not in touched),
            *(device.path for device in made.devices if device.path[0] != "-"),
        ),
    )
