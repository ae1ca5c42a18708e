"""CDI devices as device nodes, mounts and hooks, for a runtime that drops them: ``raw_adjustment``.

``prepare`` reads a spec once, so that little is left to do for each container. Edits are applied
as the CDI library does (pkg/cdi, InjectDevices and ContainerEdits.Apply of v1.1.0): those of the document
when the first of its devices is met, then the device's; what comes later replaces what has the same path or
key. Hooks that are alike in all run once, though the library would run them once for each device.

What NRI cannot say to the runtimes that need this (NRI 0.3 to 0.9):

- ``netDevices``: the interface is the device, so the container is refused. So it is for nodes that are
  neither of type b nor c, for which the runtime would write a rule that no cgroup takes, and for a variable
  or path that begins with "-", which the runtime would take away instead;
- ``additionalGids``: a note. Only a process that is neither root nor in the node's group misses them, and
  NRI does not tell who the process is; ``supplementalGroups`` of the pod give the same;
- ``intelRdt``: a note. Caches and bandwidth are shared then, and the device works;
- ``permissions``: the runtime always gives rw (AccessString of pkg/api): a note where the spec gives less.
  The m that it leaves out lets a container make nodes, not use them;
- the owner of a node for which the spec names none: the library takes the container's user, which NRI does
  not tell. Here it is the host's, with a note where others cannot use the node.
"""

from __future__ import annotations

import errno
import os
import stat

from cdigen.host.root import reason, shown
from cdigen.nri.decision.decide import Note
from cdigen.nri.decision.refusal import Refusal, quote
from cdigen.nri.pods import Adjustment, ContainerDevice, ContainerHook, ContainerMount
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from cdigen.host.root import Root

    # Type (b or c), major, minor, permission bits, owner and group of a node of the host.
    Numbers = tuple[str, int, int, int, int, int]

_TYPES = ("b", "c")
_OTHERS_RW = 0o006
_TYPE_OF = {stat.S_IFBLK: "b", stat.S_IFCHR: "c", stat.S_IFIFO: "p"}


class SpecNode:
    """A device node of a spec; what GIVEN leaves open is read from the host's node ``host_path``.

    What was made of it last is remembered, as the host's nodes hardly ever change: a container may get
    hundreds.
    """

    def __init__(self, given: ContainerDevice, host_path: str) -> None:
        self.given = given
        self.host_path = host_path
        self._made: tuple[Numbers, ContainerDevice, Note | None] | None = None

    def device(self, numbers: Callable[[str], Numbers]) -> tuple[ContainerDevice, Note | None]:
        """Return the device of an adjustment, and what there is to note; Refusal (``raw_node``)."""
        try:
            found = numbers(self.host_path)
        except OSError as error:
            if _is_specified(self.given):
                return self.given, None
            raise Refusal("raw_node", f"{shown(self.host_path)} on the host: {reason(error)}") from None
        if self._made is None or self._made[0] != found:
            self._made = (found, *_filled(self.given, self.host_path, found))
        return self._made[1:]


@frozen
class AdjustmentEdits:
    """``containerEdits`` as an adjustment has them; ``problem`` is why no container can be given them."""

    env: Mapping[str, str]
    nodes: Mapping[str, SpecNode]
    mounts: Mapping[str, ContainerMount]
    hooks: tuple[ContainerHook, ...]
    notes: tuple[Note, ...] = ()
    problem: str = ""


@frozen
class PreparedSpec:
    """A spec, read once: the edits of the whole document, and those of each device by its name."""

    kind: str
    common: AdjustmentEdits
    devices: Mapping[str, AdjustmentEdits]


class _CannotSayError(ValueError):
    """Say what of a spec an adjustment cannot carry."""


def prepare(document: Mapping[str, Any]) -> PreparedSpec:
    """Return DOCUMENT, a spec as its runtime's library decodes it (``decode_document``), ready for use.

    Nothing is raised: what cannot be given is found again when somebody asks for it.
    """
    return PreparedSpec(
        kind=document["kind"],
        common=_edits(document["containerEdits"]),
        devices={device["name"]: _edits(device["containerEdits"]) for device in document["devices"] or ()},
    )


def raw_adjustment(
    devices: Iterable[tuple[PreparedSpec, str]], numbers: Callable[[str], Numbers]
) -> tuple[Adjustment, tuple[Note, ...]]:
    """Return what gives a container DEVICES, and what there is to note.

    DEVICES are pairs of a spec and the name of a device in it, in the order in which they were asked for.
    NUMBERS reads a node of the host by its path, or raises OSError. Refusal: a device cannot be given
    (``raw_spec``), or a node is not there or of another type (``raw_node``).
    """
    edits = _applied(devices)
    env: dict[str, str] = {}
    nodes: dict[str, SpecNode] = {}
    mounts: dict[str, ContainerMount] = {}
    hooks: dict[ContainerHook, None] = {}
    notes: dict[Note, None] = {}
    for one in edits:
        env |= one.env
        nodes |= one.nodes
        for destination in one.mounts:
            # What replaces a mount comes after all that were there, as in the library.
            mounts.pop(destination, None)
        mounts |= one.mounts
        hooks |= dict.fromkeys(one.hooks)
        notes |= dict.fromkeys(one.notes)
    found = [node.device(numbers) for node in nodes.values()]
    notes |= dict.fromkeys([note for _, note in found if note])
    adjustment = Adjustment(
        env=env,
        mounts=tuple(mounts.values()),
        devices=tuple([device for device, _ in found]),
        hooks=tuple(hooks),
    )
    return adjustment, tuple(notes)


def read_numbers(root: Root, path: str) -> Numbers:
    """Return what the node PATH of the host ROOT is, for ``raw_adjustment``; raises OSError.

    As in the library, a link in the place of the node is none (deviceInfoFromPath).
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
    """Return the edits of DEVICES in the order in which they count; Refusal: one of them cannot be given."""
    edits: dict[tuple[int, str | None], AdjustmentEdits] = {}
    for spec, name in devices:
        own = spec.devices.get(name)
        if own is None:
            raise Refusal("unknown_device", f"the spec of {shown(spec.kind)} has no device {quote(name)}")
        edits.setdefault((id(spec), None), spec.common)
        edits.setdefault((id(spec), name), own)
        problem = spec.common.problem or own.problem
        if problem:
            text = f"cannot be given where the runtime drops CDI devices: {problem}"
            raise Refusal("raw_spec", f"{shown(f'{spec.kind}={name}')} {text}")
    return list(edits.values())


def _is_specified(given: ContainerDevice) -> bool:
    """Return whether the library takes the type and numbers of a spec as they are (fillMissingInfo)."""
    return bool(given.type and given.major)


def _filled(given: ContainerDevice, host_path: str, found: Numbers) -> tuple[ContainerDevice, Note | None]:
    """Return GIVEN with what it leaves to the host, whose node FOUND is (fillMissingInfo)."""
    kind, major, minor, mode, uid, gid = found
    made = replace(
        given,
        file_mode=mode if given.file_mode is None else given.file_mode,
        uid=uid if given.uid is None else given.uid,
        gid=gid if given.gid is None else given.gid,
    )
    note = _owner_note(made) if given.uid is None else None
    if _is_specified(given):
        return made, note
    if kind not in ((given.type,) if given.type else _TYPES):
        text = f"{shown(host_path)} on the host is of type {kind}, not {given.type or ' or '.join(_TYPES)}"
        raise Refusal("raw_node", text)
    # A minor number without a major one does not count.
    numbers = (given.major, given.minor) if given.major else (major, minor)
    return replace(made, type=kind, major=numbers[0], minor=numbers[1]), note


def _owner_note(made: ContainerDevice) -> Note | None:
    if made.file_mode is None or made.file_mode & _OTHERS_RW == _OTHERS_RW:
        return None
    text = f"{shown(made.path)} belongs to {made.uid}:{made.gid} with the mode {made.file_mode:04o}"
    return Note(cause="raw_owner", text=f"{text}, and nobody tells whether the container's user may use it")


def _edits(given: Mapping[str, Any]) -> AdjustmentEdits:
    """Return GIVEN, ``containerEdits``, as an adjustment has them."""
    try:
        return _readable(given)
    except _CannotSayError as error:
        return AdjustmentEdits(env={}, nodes={}, mounts={}, hooks=(), problem=str(error))


def _readable(given: Mapping[str, Any]) -> AdjustmentEdits:
    """Return GIVEN as an adjustment has it; _CannotSayError where that has no words for it."""
    if given["netDevices"]:
        raise _CannotSayError("its netDevices are network interfaces, which NRI could not move")
    nodes = given["deviceNodes"] or ()
    mounts = [_mount(mount) for mount in given["mounts"] or ()]
    return AdjustmentEdits(
        env=dict([_variable(text) for text in given["env"] or ()]),
        nodes={node.given.path: node for node in map(_node, nodes)},
        mounts={mount.destination: mount for mount in mounts},
        hooks=tuple([_hook(hook) for hook in given["hooks"] or ()]),
        notes=(*_left_out(given), *_widened(nodes)),
    )


def _left_out(given: Mapping[str, Any]) -> list[Note]:
    notes = []
    # The library passes over 0.
    groups = [str(group) for group in given["additionalGids"] or () if group]
    if groups:
        notes.append(Note(cause="raw_groups", text=f"additionalGids {', '.join(groups)} are left out"))
    if given["intelRdt"] is not None:
        notes.append(Note(cause="raw_rdt", text="intelRdt is left out"))
    return notes


def _widened(nodes: Iterable[Mapping[str, Any]]) -> list[Note]:
    """Return a note for each node of which the spec gives less than what NRI's runtimes always give."""
    notes = []
    for node in nodes:
        given = node["permissions"]
        if given and not {"r", "w"} <= set(given):
            text = f"{shown(node['path'])} has the permissions rw in place of {quote(given)}"
            notes.append(Note(cause="raw_permissions", text=text))
    return notes


def _variable(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return _settable(key, "variable"), value


def _node(node: Mapping[str, Any]) -> SpecNode:
    path, kind = _settable(node["path"], "device node"), node["type"]
    if kind and kind not in _TYPES:
        raise _CannotSayError(f"the node {shown(path)} is of type {quote(kind)}, not {' or '.join(_TYPES)}")
    given = ContainerDevice(
        path=path,
        type=kind,
        major=node["major"],
        minor=node["minor"],
        file_mode=node["fileMode"],
        uid=node["uid"],
        gid=node["gid"],
    )
    return SpecNode(given, node["hostPath"] or path)


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
    # NRI removes what such a name names (IsMarkedForRemoval of pkg/api).
    if not name or name.startswith("-"):
        raise _CannotSayError(f"NRI cannot set a {what} of the name {quote(name)}")
    return name
