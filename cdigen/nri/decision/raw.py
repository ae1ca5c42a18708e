"""``raw_adjustment``: injects CDI devices as device nodes, mounts and hooks.

cdigen uses this module for runtimes that drop CDI devices. ``prepare`` reads a spec once, so each container
needs little work. cdigen applies edits in the order of the CDI library (pkg/cdi, InjectDevices and
ContainerEdits.Apply of v1.1.0). For the first device of a spec, the library applies the edits of the document
before the edits of the device. A later edit replaces an earlier edit with the same path or key. If several
devices have an equal hook, cdigen adds the hook once. The library adds the hook for each of the devices.

In a container with a user namespace, bind mounts get the option ``idmap`` or ``ridmap``, as in the next
release of the library (pkg/cdi/oci.go, withIDMapForBindMount; PR 288). Without the mapping, files of root
belong to the overflow user in the container. Kubernetes requires runc 1.2 or crun 1.9 for user namespaces;
both support the options.

These runtimes have NRI 0.3 to 0.9, which does not support all edits:

- ``netDevices``: cdigen refuses the container, because the device is useless without its network interface.
- A device node with a type other than b and c: cdigen refuses the container. The runtime would write a rule
  that no cgroup accepts.
- A variable or path that starts with "-": cdigen refuses the container. The runtime would remove the item.
- ``additionalGids``: cdigen ignores and reports the groups. A process of root, or of the node's group, does
  not need the groups. NRI does not report the user of the container. ``supplementalGroups`` of the pod have
  the same effect.
- ``intelRdt``: cdigen ignores and reports the edit. The device works, but the container shares caches and
  memory bandwidth with other containers.
- ``permissions``: the runtime always grants rw (AccessString of pkg/api). cdigen reports a spec that grants
  less. The runtime does not grant m. A container needs m only to create device nodes.
- A device node without an owner in the spec: the library sets the container's user as the owner, but NRI does
  not report this user. cdigen copies the owner of the host's node, and reports a node that other users cannot
  use.
"""

from __future__ import annotations

import errno
import os
import stat

from cdigen.host.root import reason, shown
from cdigen.nri.decision.decide import IgnoredRequest
from cdigen.nri.decision.request.refusal import InjectionRefusal, quote
from cdigen.nri.pods import Adjustment, ContainerDevice, ContainerHook, ContainerMount
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from cdigen.host.root import Root

    # The type (b, c or p), major, minor, permission bits, owner and group of a device node on the host.
    NodeNumbers = tuple[str, int, int, int, int, int]

_TYPES = ("b", "c")
_OTHERS_RW = 0o006
# Type or option of a bind mount -> the option that maps the IDs of the user namespace.
_ID_MAPS = {"bind": "idmap", "rbind": "ridmap"}
_TYPE_OF = {stat.S_IFBLK: "b", stat.S_IFCHR: "c", stat.S_IFIFO: "p"}


class SpecNode:
    """A device node of a spec.

    SPEC contains the fields in the spec. The missing fields come from the host's device node at HOST_PATH.
    The last result is cached, because a container can get hundreds of nodes and the host's nodes rarely
    change.
    """

    def __init__(self, spec: ContainerDevice, host_path: str) -> None:
        self.spec = spec
        self.host_path = host_path
        self._last: tuple[NodeNumbers, ContainerDevice, IgnoredRequest | None] | None = None

    def device(self, read: Callable[[str], NodeNumbers]) -> tuple[ContainerDevice, IgnoredRequest | None]:
        """Return the device for the adjustment, and the ignored part of the spec or None.

        READ returns the numbers of a device node on the host. Raise InjectionRefusal (``raw_node``) if the
        node is missing or has another type.
        """
        try:
            host_node = read(self.host_path)
        except OSError as error:
            if _is_specified(self.spec):
                return self.spec, None
            raise InjectionRefusal(
                "raw_node", f"{shown(self.host_path)} on the host: {reason(error)}"
            ) from None
        if self._last is None or self._last[0] != host_node:
            self._last = (host_node, *_completed(self.spec, self.host_path, host_node))
        return self._last[1:]


@frozen
class AdjustmentEdits:
    """The ``containerEdits`` of a spec as values for an adjustment.

    ``problem`` is the reason why NRI cannot apply the edits to any container. ``problem`` is empty if NRI can
    apply the edits.
    """

    env: Mapping[str, str]
    nodes: Mapping[str, SpecNode]
    mounts: Mapping[str, ContainerMount]
    hooks: tuple[ContainerHook, ...]
    ignored_requests: tuple[IgnoredRequest, ...] = ()
    problem: str = ""


@frozen
class PreparedSpec:
    """A parsed spec, with the ``common`` edits of the document and the edits of each device by its name."""

    kind: str
    common: AdjustmentEdits
    devices: Mapping[str, AdjustmentEdits]


class _UnsupportedEditError(ValueError):
    """The error for an edit that an NRI adjustment cannot contain."""


def prepare(document: Mapping[str, Any]) -> PreparedSpec:
    """Return the edits of DOCUMENT.

    DOCUMENT is a spec in the form of ``decode_document``, as the runtime's CDI library decodes it. The
    function raises no errors. When a container requests a device with a problem, ``raw_adjustment`` raises an
    error.
    """
    return PreparedSpec(
        kind=document["kind"],
        common=_edits(document["containerEdits"]),
        devices={device["name"]: _edits(device["containerEdits"]) for device in document["devices"] or ()},
    )


def raw_adjustment(
    devices: Iterable[tuple[PreparedSpec, str]],
    read: Callable[[str], NodeNumbers],
    *,
    maps_ids: bool = False,
) -> tuple[Adjustment, tuple[IgnoredRequest, ...]]:
    """Return the adjustment that injects DEVICES, and the ignored parts of the specs.

    DEVICES are pairs of a spec and the name of a device in the spec, in the order of the requests. READ
    returns the numbers of the host's device node at a path, or raises OSError. If MAPS_IDS is true, the bind
    mounts map the IDs of the container's user namespace. Raise InjectionRefusal if NRI
    cannot inject a device (``raw_spec``), if no spec defines the device (``unknown_device``), or if a node is
    missing or has another type (``raw_node``).
    """
    edits = _applied(devices)
    env: dict[str, str] = {}
    nodes: dict[str, SpecNode] = {}
    mounts: dict[str, ContainerMount] = {}
    hooks: dict[ContainerHook, None] = {}
    ignored_requests: dict[IgnoredRequest, None] = {}
    for one in edits:
        env |= one.env
        nodes |= one.nodes
        for destination in one.mounts:
            # A mount that replaces another mount moves to the end, as in the library.
            mounts.pop(destination, None)
        mounts |= one.mounts
        hooks |= dict.fromkeys(one.hooks)
        ignored_requests |= dict.fromkeys(one.ignored_requests)
    completed = [node.device(read) for node in nodes.values()]
    ignored_requests |= dict.fromkeys([ignored for _, ignored in completed if ignored])
    adjustment = Adjustment(
        env=env,
        mounts=tuple([_id_mapped(mount) for mount in mounts.values()] if maps_ids else mounts.values()),
        devices=tuple([device for device, _ in completed]),
        hooks=tuple(hooks),
    )
    return adjustment, tuple(ignored_requests)


def read_node(root: Root, path: str) -> NodeNumbers:
    """Return the numbers of the device node at PATH in the tree ROOT; raise OSError if there is no such node.

    A symbolic link is not a device node, as in the library (deviceInfoFromPath).
    """
    folder, _, name = path.rpartition("/")
    try:
        status = os.lstat(f"{root.outer_path(root.directory(folder or '/'))}/{name}")
    except ValueError:
        raise OSError(errno.EINVAL, "no file has such a name", path) from None
    kind = _TYPE_OF.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        raise OSError(errno.ENODEV, "not a device node", path)
    return (
        kind,
        os.major(status.st_rdev),
        os.minor(status.st_rdev),
        stat.S_IMODE(status.st_mode),
        status.st_uid,
        status.st_gid,
    )


def _applied(devices: Iterable[tuple[PreparedSpec, str]]) -> list[AdjustmentEdits]:
    """Return the edits of DEVICES, in the order of application.

    Raise InjectionRefusal if a device does not exist, or if NRI does not support an edit.
    """
    edits: dict[tuple[int, str | None], AdjustmentEdits] = {}
    for spec, name in devices:
        own = spec.devices.get(name)
        if own is None:
            raise InjectionRefusal(
                "unknown_device", f"the spec of {shown(spec.kind)} has no device {quote(name)}"
            )
        edits.setdefault((id(spec), None), spec.common)
        edits.setdefault((id(spec), name), own)
        problem = spec.common.problem or own.problem
        if problem:
            text = f"cannot be injected into a runtime that drops CDI devices: {problem}"
            raise InjectionRefusal("raw_spec", f"{shown(f'{spec.kind}={name}')} {text}")
    return list(edits.values())


def _id_mapped(mount: ContainerMount) -> ContainerMount:
    """Return MOUNT with the option that maps IDs, if MOUNT is a bind mount without such an option."""
    if any(option in mount.options for option in _ID_MAPS.values()):
        return mount
    kinds = [
        *((mount.type,) if mount.type == "bind" else ()),
        *(one for one in mount.options if one in _ID_MAPS),
    ]
    return replace(mount, options=(*mount.options, _ID_MAPS[kinds[-1]])) if kinds else mount


def _is_specified(spec: ContainerDevice) -> bool:
    """Return whether SPEC has a type and a major number.

    The library then does not use the type and the numbers of the host's node (fillMissingInfo).
    """
    return bool(spec.type and spec.major)


def _completed(
    spec: ContainerDevice, host_path: str, host_node: NodeNumbers
) -> tuple[ContainerDevice, IgnoredRequest | None]:
    """Return SPEC with the missing fields from HOST_NODE (fillMissingInfo), and the ignored part or None."""
    kind, major, minor, mode, uid, gid = host_node
    device = replace(
        spec,
        file_mode=mode if spec.file_mode is None else spec.file_mode,
        uid=uid if spec.uid is None else spec.uid,
        gid=gid if spec.gid is None else spec.gid,
    )
    ignored = _ignored_owner(device) if spec.uid is None else None
    if _is_specified(spec):
        return device, ignored
    if kind not in ((spec.type,) if spec.type else _TYPES):
        text = f"{shown(host_path)} on the host is of type {kind}, not {spec.type or ' or '.join(_TYPES)}"
        raise InjectionRefusal("raw_node", text)
    # The library ignores the minor number if the major number is missing.
    numbers = (spec.major, spec.minor) if spec.major else (major, minor)
    return replace(device, type=kind, major=numbers[0], minor=numbers[1]), ignored


def _ignored_owner(device: ContainerDevice) -> IgnoredRequest | None:
    if device.file_mode is None or device.file_mode & _OTHERS_RW == _OTHERS_RW:
        return None
    text = f"{shown(device.path)} belongs to {device.uid}:{device.gid} with the mode {device.file_mode:04o}"
    return IgnoredRequest(
        cause="raw_owner", text=f"{text}: access unchecked, NRI does not report the container's user"
    )


def _edits(edits: Mapping[str, Any]) -> AdjustmentEdits:
    """Return EDITS as values for an adjustment.

    If NRI does not support an edit, the result has a ``problem`` and no edits.
    """
    try:
        return _supported_edits(edits)
    except _UnsupportedEditError as error:
        return AdjustmentEdits(env={}, nodes={}, mounts={}, hooks=(), problem=str(error))


def _supported_edits(edits: Mapping[str, Any]) -> AdjustmentEdits:
    """Return EDITS as values for an adjustment.

    Raise _UnsupportedEditError if NRI does not support an edit.
    """
    if edits["netDevices"]:
        raise _UnsupportedEditError("NRI cannot move network interfaces (netDevices)")
    nodes = edits["deviceNodes"] or ()
    mounts = [_mount(mount) for mount in edits["mounts"] or ()]
    return AdjustmentEdits(
        env=dict([_variable(text) for text in edits["env"] or ()]),
        nodes={node.spec.path: node for node in map(_node, nodes)},
        mounts={mount.destination: mount for mount in mounts},
        hooks=tuple([_hook(hook) for hook in edits["hooks"] or ()]),
        ignored_requests=(*_ignored_edits(edits), *_ignored_permissions(nodes)),
    )


def _ignored_edits(edits: Mapping[str, Any]) -> list[IgnoredRequest]:
    ignored_requests = []
    # The library ignores the group 0.
    groups = [str(group) for group in edits["additionalGids"] or () if group]
    if groups:
        ignored_requests.append(
            IgnoredRequest(cause="raw_groups", text=f"additionalGids {', '.join(groups)} are ignored")
        )
    if edits["intelRdt"] is not None:
        ignored_requests.append(IgnoredRequest(cause="raw_rdt", text="intelRdt is ignored"))
    return ignored_requests


def _ignored_permissions(nodes: Iterable[Mapping[str, Any]]) -> list[IgnoredRequest]:
    """Return an entry for each of NODES for which the runtime grants more permissions than the spec."""
    ignored_requests = []
    for node in nodes:
        permissions = node["permissions"]
        if permissions and not {"r", "w"} <= set(permissions):
            text = f"{shown(node['path'])} has the permissions rw instead of {quote(permissions)}"
            ignored_requests.append(IgnoredRequest(cause="raw_permissions", text=text))
    return ignored_requests


def _variable(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return _settable(key, "variable"), value


def _node(node: Mapping[str, Any]) -> SpecNode:
    path, kind = _settable(node["path"], "device node"), node["type"]
    if kind and kind not in _TYPES:
        raise _UnsupportedEditError(
            f"the node {shown(path)} is of type {quote(kind)}, not {' or '.join(_TYPES)}"
        )
    spec = ContainerDevice(
        path=path,
        type=kind,
        major=node["major"],
        minor=node["minor"],
        file_mode=node["fileMode"],
        uid=node["uid"],
        gid=node["gid"],
    )
    return SpecNode(spec, node["hostPath"] or path)


def _mount(mount: Mapping[str, Any]) -> ContainerMount:
    return ContainerMount(
        destination=_settable(mount["containerPath"], "mount"),
        source=mount["hostPath"],
        type=mount["type"],
        options=tuple(mount["options"] or ()),
    )


def _hook(hook: Mapping[str, Any]) -> ContainerHook:
    return ContainerHook(
        stage=hook["hookName"],
        path=hook["path"],
        args=tuple(hook["args"] or ()),
        env=tuple(hook["env"] or ()),
        timeout=hook["timeout"],
    )


def _settable(name: str, what: str) -> str:
    # A name that starts with "-" means the removal of an item in NRI (IsMarkedForRemoval of pkg/api).
    if not name or name.startswith("-"):
        raise _UnsupportedEditError(f"NRI cannot set a {what} with the name {quote(name)}")
    return name
