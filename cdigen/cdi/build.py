"""``build``: returns the JSON document of one spec file for the draft of a vendor."""

from __future__ import annotations

from cdigen.cdi.version import minimum_version
from cdigen.model.cdi import ContainerEdits
from cdigen.model.names import NONE, natural_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cdigen.model.cdi import Device, DeviceNode, Draft, Hook, Mount

ALL = "all"


def build(draft: Draft) -> dict[str, Any]:
    """Return the CDI document of DRAFT.

    The devices are in natural order. The last device is ``all``, which has the edits of all devices except
    ``none``. ``all`` does not set a variable that devices set to different values. The function does not add
    ``all`` if the draft already has a device ``all``, or if ``has_all`` is false.

    The document has the lowest version that its content permits, because a runtime that does not support the
    version refuses the whole file (container-device-interface issue 91).
    """
    devices = sorted(draft.devices, key=lambda device: (device.name == ALL, natural_key(device.name)))
    single = [device for device in devices if device.name != NONE]
    needs_all = draft.has_all and bool(single) and single[-1].name != ALL
    document: dict[str, Any] = {
        "cdiVersion": "",
        "kind": draft.kind,
        "devices": [
            *({"name": device.name, "containerEdits": _edits(device.edits)} for device in devices),
            *([{"name": ALL, "containerEdits": _edits(_union(single))}] if needs_all else []),
        ],
    }
    shared = _edits(draft.edits)
    if shared:
        document["containerEdits"] = shared
    document["cdiVersion"] = minimum_version(document)
    return document


def _edits(edits: ContainerEdits) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "env": sorted(edits.env),
        "deviceNodes": [_node(node) for node in sorted(edits.device_nodes, key=_node_key)],
        "hooks": [_hook(hook) for hook in edits.hooks],
        "mounts": [_mount(mount) for mount in sorted(edits.mounts, key=_mount_key)],
        "additionalGids": sorted(set(edits.additional_gids)),
    }
    return {key: value for key, value in parts.items() if value}


def conflicting_variables(entries: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the variables that ENTRIES (``NAME=value``) set to different values."""
    values: dict[str, set[str]] = {}
    for entry in entries:
        name, _, value = entry.partition("=")
        values.setdefault(name, set()).add(value)
    return tuple(name for name, different in values.items() if len(different) > 1)


def _union(devices: Iterable[Device]) -> ContainerEdits:
    """Return the edits of all DEVICES without repetitions; a GPU can be several devices with equal edits."""
    every = [device.edits for device in devices]
    entries = tuple(dict.fromkeys(entry for edits in every for entry in edits.env))
    several = conflicting_variables(entries)
    return ContainerEdits(
        env=tuple(entry for entry in entries if entry.partition("=")[0] not in several),
        device_nodes=tuple(dict.fromkeys(node for edits in every for node in edits.device_nodes)),
        hooks=tuple(dict.fromkeys(hook for edits in every for hook in edits.hooks)),
        mounts=tuple(dict.fromkeys(mount for edits in every for mount in edits.mounts)),
        additional_gids=tuple(dict.fromkeys(gid for edits in every for gid in edits.additional_gids)),
    )


def _node(node: DeviceNode) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": node.path}
    if node.host_path is not None:
        entry["hostPath"] = node.host_path
    if node.file_mode is not None:
        entry["fileMode"] = node.file_mode
    if node.gid is not None:
        entry["gid"] = node.gid
    entry["permissions"] = node.permissions
    return entry


def _hook(hook: Hook) -> dict[str, Any]:
    return {
        "hookName": hook.hook_name,
        "path": hook.path,
        "args": list(hook.args),
        "env": list(hook.env),
        "timeout": hook.timeout,
    }


def _mount(mount: Mount) -> dict[str, Any]:
    return {
        "hostPath": mount.host_path,
        "containerPath": mount.container_path,
        **({"type": mount.type} if mount.type else {}),
        "options": list(mount.options),
    }


def _node_key(node: DeviceNode) -> tuple[tuple[tuple[int, int, str], ...], str]:
    return natural_key(node.path), node.host_path or ""


def _mount_key(mount: Mount) -> tuple[tuple[tuple[int, int, str], ...], str]:
    return natural_key(mount.container_path), mount.host_path
