"""The arguments of 'docker run' for devices: ``select_devices`` and ``arguments``. Pure.

The form ``cdi`` has the CDI names of the devices. The form ``classic`` is for engines without CDI, as in
nvidia-docker 1.0. It contains the device nodes, the groups that may open the nodes, and a volume with the
driver's files. The path of the volume stays the same when the driver changes (``store.views.volumes``). The
hooks of a CDI spec, and its mounts at fixed paths, are not in this form.
"""

from __future__ import annotations

import re

from cdigen.host.root import shown
from cdigen.model.errors import HostError
from cdigen.model.view import view_target, volume_name
from cdigen.pipeline.device_names import known_devices
from cdigen.pipeline.naming import named_drafts, withheld_error
from cdigen.value import frozen, replace
from cdigen.vendors.registry import visible_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from cdigen.model.cdi import ContainerEdits, DeviceNode, Draft
    from cdigen.model.errors import WithheldError
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.model.profile import Profile
    from cdigen.pipeline.device_names import KnownDevice

FORMS = ("cdi", "classic")
# The syntax of Go's strconv.Atoi; no host has devices with longer numbers.
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
# The maximum number of characters of a request in an error message.
_MAX_SHOWN = 100
# Characters that separate arguments on a line, or the parts of an argument.
_SEPARATORS = re.compile(r"[\s,:]")


class InvalidChoiceError(ValueError):
    """The error if the device, volume or form ``word`` does not exist.

    The message is from nvidia-docker 1.0.
    """

    def __init__(self, kind: str, word: str) -> None:
        super().__init__(f"invalid {kind}: {shown(word[:_MAX_SHOWN])}")
        self.word = word


@frozen
class NamedDevice:
    """A device or partition with a CDI ``name``, the ``draft`` of its kind, and the ``edits`` of the device.

    ``others`` has a ``NamedDevice`` of the same device for each other kind.
    """

    number: int
    name: str
    known: KnownDevice
    draft: Draft
    edits: ContainerEdits
    others: tuple[NamedDevice, ...] = ()

    @property
    def volume(self) -> str:
        """The name of the volume with the files that the device needs, or "" if the device needs no files."""
        payload = self.draft.payload
        return volume_name(self.draft.kind) if payload is not None and payload.files else ""


@frozen
class DockerArguments:
    """Values for options of 'docker run': devices, volumes, and the groups that may open the nodes."""

    devices: tuple[str, ...]
    volumes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()

    def options(self) -> tuple[str, ...]:
        """Return the values with the names of their options, in the order of nvidia-docker 1.0."""
        return (
            *(f"--volume={volume}" for volume in self.volumes),
            *(f"--device={device}" for device in self.devices),
            *(f"--group-add={group}" for group in self.groups),
        )


def named_devices(
    inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...], numbered: Iterable[Accelerator]
) -> tuple[NamedDevice, ...]:
    """Return the devices of INVENTORIES in the order of NUMBERED.

    The number of a device is its position in NUMBERED. The result has the partitions of a partitioned device
    instead of the device. The result omits kinds whose specs are withheld (``Draft.withheld``).
    """
    by_cdi_name = {
        f"{draft.kind}={device.name}": (draft, device.edits)
        for vendor, inventory in inventories.items()
        for draft in named_drafts(vendor, inventory, profiles)[0]
        if draft.withheld is None
        for device in draft.devices
    }
    numbers = {id(accelerator): number for number, accelerator in enumerate(numbered)}
    found = []
    for known in known_devices(inventories, profiles):
        number = numbers.get(id(known.accelerator))
        is_whole = known.partition is None
        if number is None or not known.usable or known.accelerator.partitioned == is_whole:
            continue
        by_kind: dict[str, NamedDevice] = {}
        for name in known.names:
            if name in by_cdi_name:
                draft, edits = by_cdi_name[name]
                named = NamedDevice(number=number, name=name, known=known, draft=draft, edits=edits)
                by_kind.setdefault(draft.kind, named)
        if by_kind:
            first, *others = by_kind.values()
            found.append(replace(first, others=tuple(others)))
    return tuple(sorted(found, key=lambda named: named.number))


def withheld_errors(
    inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...]
) -> dict[str, WithheldError]:
    """Return kind -> error for each kind of INVENTORIES whose spec is withheld."""
    return {
        draft.kind: error
        for vendor, inventory in inventories.items()
        for draft in named_drafts(vendor, inventory, profiles)[0]
        if (error := withheld_error(draft)) is not None
    }


def skipped_kinds(device: NamedDevice, kinds: Collection[str]) -> tuple[str, ...]:
    """Return each of KINDS that precedes the kind of DEVICE in the device's own list of names."""
    before = [name.partition("=")[0] for name in device.known.names]
    return tuple(kind for kind in kinds if kind in before[: before.index(device.draft.kind)])


def select_devices(devices: Sequence[NamedDevice], requested: Iterable[str]) -> tuple[NamedDevice, ...]:
    """Return the REQUESTED devices in the order of DEVICES, without duplicates.

    nvidia-docker 1.0 had no fixed order. A request is a number, a UUID, the beginning of a UUID (``GPU-1``),
    an AMD GPU's id as rocminfo prints it, a PCI address, or a CDI name (with or without its kind). A CDI name
    with a kind selects the device of this kind. An empty request or ``*`` selects all devices.
    InvalidChoiceError: a request matches no device or several devices.
    """
    words = tuple(requested)
    if words in {(), ("",), ("*",)}:
        return tuple(devices)
    every = [each for device in devices for each in (device, *device.others)]
    selected = {
        id(device)
        for word in dict.fromkeys(words)
        for device in _find(every if "=" in word else devices, word)
    }
    return tuple(device for device in every if id(device) in selected)


def arguments(
    devices: Sequence[NamedDevice], form: str, volumes: Mapping[str, str], requested: Sequence[str] = ()
) -> DockerArguments:
    """Return the arguments for DEVICES in FORM, with the REQUESTED volumes of the devices.

    FORM is in FORMS. VOLUMES are the paths of the volumes on this host. An empty request or ``*`` selects all
    volumes. InvalidChoiceError: FORM does not exist, or no device has a requested volume. HostError: this
    host does not have the volume.
    """
    if form not in FORMS:
        raise InvalidChoiceError("form", form)
    needed = {device.volume: device for device in devices if device.volume}
    selected = tuple(needed) if tuple(requested) in {(), ("",), ("*",)} else tuple(dict.fromkeys(requested))
    for name in selected:
        if name not in needed:
            raise InvalidChoiceError("volume", name)
    if form == "cdi":
        return DockerArguments(devices=tuple(device.name for device in devices))
    # The common nodes of a kind are first, as in nvidia-docker 1.0.
    edits = [*(device.draft.edits for device in devices), *(device.edits for device in devices)]
    nodes = dict.fromkeys(_node(node) for each in edits for node in each.device_nodes)
    return DockerArguments(
        devices=tuple(filter(None, nodes)),
        volumes=tuple(_volume(needed[name], volumes.get(name, "")) for name in selected),
        groups=tuple(dict.fromkeys(group for each in edits for group in each.additional_gids)),
    )


def _find(devices: Sequence[NamedDevice], word: str) -> list[NamedDevice]:
    if _NUMBER.fullmatch(word):
        found = [device for device in devices if device.number == int(word)]
    elif word.startswith("GPU-") and word != "GPU-":
        of_uuid = [device for device in devices if (device.known.accelerator.uuid or "").startswith(word)]
        found = [device for device in of_uuid if device.number == of_uuid[0].number] or [
            device for device in devices if _spellings(device, word) & _names(device)
        ]
    else:
        found = [device for device in devices if word in _names(device)]
    if not found or len({device.number for device in found}) > 1:
        raise InvalidChoiceError("device", word)
    return found


def _spellings(device: NamedDevice, word: str) -> set[str]:
    """Return the names of WORD in the specs of the vendor of DEVICE.

    For example, rocminfo prints an AMD GPU's id in another form than the CDI name.
    """
    rows = (row for row in visible_devices() if device.draft.kind in row.kinds)
    return {name for row in rows for name in row.names(word)}


def _names(device: NamedDevice) -> set[str]:
    """Return all names of DEVICE except its number.

    For a partition, the result also has the UUID and address of its GPU.
    """
    known, gpu = device.known, device.known.accelerator
    full = {name for name in known.names if name.partition("=")[0] == device.draft.kind}
    short = {name.partition("=")[2] for name in known.names}
    return {*full, *short, known.uuid or "", gpu.uuid or "", gpu.address} - {""}


def _node(node: DeviceNode) -> str:
    """Return the value of --device for NODE, or "" if a path contains a separator.

    For example, udev's names with PCI addresses contain colons.
    """
    where = node.host_path or node.path
    if _SEPARATORS.search(f"{where}{node.path}"):
        return ""
    usual = node.permissions in {"", "rw", "rwm"}
    if usual and where == node.path:
        return where
    return f"{where}:{node.path}" if usual else f"{where}:{node.path}:{node.permissions}"


def _volume(device: NamedDevice, path: str) -> str:
    if not path:
        raise HostError(
            f"the driver's files for {device.draft.kind} are in no volume: its spec mounts single files, or "
            "there is no spec",
            hint="use '--form cdi', or set 'layout: view' in the profile and run 'cdigen generate --write'",
            kind="volume-missing",
        )
    if _SEPARATORS.search(path):
        raise HostError(
            f"{shown(path)} contains a separator of Docker's arguments: the classic form is impossible",
            hint="use '--form cdi', or set another state_dir",
            kind="path-not-plain",
        )
    payload = device.draft.payload
    prefix = payload.prefix if payload is not None else ""
    return f"{path}:{prefix or view_target(device.draft.kind)}:ro"
