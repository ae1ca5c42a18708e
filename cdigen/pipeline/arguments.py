"""What 'docker run' is given for devices: ``arguments`` of those that were ``chosen``; pure.

With CDI they are the devices' names. The classic form is for engines without it, as nvidia-docker 1.0 made
it: the nodes, the groups that may open them, and one volume with the driver's files, by a path that stays the
same when the driver changes (``store.views.volumes``). What an engine asks CDI for else (hooks, mounts at
fixed places) is not in it.
"""

from __future__ import annotations

import re

from cdigen.host.root import shown
from cdigen.model.errors import HostError
from cdigen.model.view import view_target, volume_name
from cdigen.pipeline.device_names import known_devices
from cdigen.pipeline.naming import named_drafts
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Protocol

    from cdigen.model.cdi import ContainerEdits, DeviceNode, Draft
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.model.profile import Profile
    from cdigen.pipeline.device_names import KnownDevice

    class Numbered(Protocol):
        """A device that has the number of its place among others."""

        @property
        def accelerator(self) -> Accelerator:
            """The device."""


FORMS = ("cdi", "classic")
# As Go's strconv.Atoi takes it; longer ones are no device of any host.
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
# So much of what was asked for is repeated to whoever asked.
_MAX_SHOWN = 100
# What separates arguments on a line, or the parts of one.
_SEPARATORS = re.compile(r"[\s,:]")


class InvalidChoiceError(ValueError):
    """A device, volume or form that there is not, in the words of nvidia-docker 1.0."""


@frozen
class Offer:
    """A device, or a part of one, that a container may get by ``name``: what its kind and it bring."""

    number: int
    name: str
    known: KnownDevice
    draft: Draft
    edits: ContainerEdits

    @property
    def volume(self) -> str:
        """The name of the volume with the files that it needs, empty where it needs none."""
        payload = self.draft.payload
        return volume_name(self.draft.kind) if payload is not None and payload.files else ""


@frozen
class DockerArguments:
    """Arguments of 'docker run', each without its option: volumes, devices, and groups that open them."""

    devices: tuple[str, ...]
    volumes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()

    def options(self) -> tuple[str, ...]:
        """Return the arguments with their options, in the order of nvidia-docker 1.0."""
        return (
            *(f"--volume={volume}" for volume in self.volumes),
            *(f"--device={device}" for device in self.devices),
            *(f"--group-add={group}" for group in self.groups),
        )


def offers(
    inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...], numbered: Sequence[Numbered]
) -> tuple[Offer, ...]:
    """Return what containers may get of INVENTORIES, in NUMBERED's order; of a split device its parts."""
    given = {
        f"{draft.kind}={device.name}": (draft, device.edits)
        for vendor, inventory in inventories.items()
        for draft in named_drafts(vendor, inventory, profiles)[0]
        for device in draft.devices
    }
    numbers = {id(each.accelerator): number for number, each in enumerate(numbered)}
    found = []
    for known in known_devices(inventories, profiles):
        number = numbers.get(id(known.accelerator))
        name = next((name for name in known.names if name in given), "")
        is_whole = known.partition is None
        if number is not None and name and known.usable and known.accelerator.partitioned != is_whole:
            draft, edits = given[name]
            found.append(Offer(number=number, name=name, known=known, draft=draft, edits=edits))
    return tuple(sorted(found, key=lambda offer: offer.number))


def chosen(offered: Sequence[Offer], asked: Iterable[str]) -> tuple[Offer, ...]:
    """Return those of OFFERED that are ASKED for, in their own order, each once; 1.0 gave them in any.

    One is asked for by its number, by the beginning of its UUID (``GPU-1``), or as a whole by its UUID, PCI
    address or CDI name, with or without the kind. Nothing, or ``*`` alone, asks for all. InvalidChoiceError:
    there is none of that name, or several.
    """
    words = tuple(asked)
    if words in {(), ("",), ("*",)}:
        return tuple(offered)
    wanted = {id(offer) for word in dict.fromkeys(words) for offer in _named(offered, word)}
    return tuple(offer for offer in offered if id(offer) in wanted)


def arguments(
    picked: Sequence[Offer], form: str, volumes: Mapping[str, str], asked: Sequence[str] = ()
) -> DockerArguments:
    """Return the arguments for the devices PICKED in one of FORMS, with those of their volumes ASKED for.

    VOLUMES are the paths of those that this host has. Nothing, or ``*`` alone, asks for all.
    InvalidChoiceError: no such form, or no device has such a volume. HostError: this host lacks it.
    """
    if form not in FORMS:
        raise InvalidChoiceError(f"invalid form: {shown(form[:_MAX_SHOWN])}")
    needed = {offer.volume: offer for offer in picked if offer.volume}
    wanted = tuple(needed) if tuple(asked) in {(), ("",), ("*",)} else tuple(dict.fromkeys(asked))
    for name in wanted:
        if name not in needed:
            raise InvalidChoiceError(f"invalid volume: {shown(name[:_MAX_SHOWN])}")
    if form == "cdi":
        return DockerArguments(devices=tuple(offer.name for offer in picked))
    # What all devices of a kind need comes first, as in nvidia-docker 1.0.
    edits = [*(offer.draft.edits for offer in picked), *(offer.edits for offer in picked)]
    nodes = dict.fromkeys(_node(node) for each in edits for node in each.device_nodes)
    return DockerArguments(
        devices=tuple(filter(None, nodes)),
        volumes=tuple(_volume(needed[name], volumes.get(name, "")) for name in wanted),
        groups=tuple(dict.fromkeys(group for each in edits for group in each.additional_gids)),
    )


def _named(offered: Sequence[Offer], word: str) -> list[Offer]:
    if _NUMBER.fullmatch(word):
        found = [offer for offer in offered if offer.number == int(word)]
    elif word.startswith("GPU-") and word != "GPU-":
        of_uuid = [offer for offer in offered if (offer.known.accelerator.uuid or "").startswith(word)]
        found = [offer for offer in of_uuid if offer.number == of_uuid[0].number]
    else:
        found = [offer for offer in offered if word in _names(offer)]
    if not found or len({offer.number for offer in found}) > 1:
        raise InvalidChoiceError(f"invalid device: {shown(word[:_MAX_SHOWN])}")
    return found


def _names(offer: Offer) -> set[str]:
    """Return what OFFER, or the device that it is a part of, is called besides its number."""
    known, gpu = offer.known, offer.known.accelerator
    short = {name.partition("=")[2] for name in known.names}
    return {*known.names, *short, known.uuid or "", gpu.uuid or "", gpu.address} - {""}


def _node(node: DeviceNode) -> str:
    """Return NODE for --device; empty where its name holds colons, as udev's names by PCI address do."""
    where = node.host_path or node.path
    if _SEPARATORS.search(f"{where}{node.path}"):
        return ""
    usual = node.permissions in {"", "rw", "rwm"}
    if usual and where == node.path:
        return where
    return f"{where}:{node.path}" if usual else f"{where}:{node.path}:{node.permissions}"


def _volume(offer: Offer, path: str) -> str:
    if not path:
        raise HostError(
            f"the driver's files for {offer.draft.kind} are in no volume: its spec mounts them one by one, "
            "or there is none",
            hint="ask for the form cdi; or install the hook (docs/hook.md) or choose 'layout: view', and let "
            "'cdigen run' or 'cdigen generate --write' write the spec",
            kind="volume-missing",
        )
    if _SEPARATORS.search(path):
        raise HostError(
            f"{shown(path)} holds what separates arguments of Docker, so there is no classic form of it",
            hint="ask for the form cdi, or choose another state_dir",
            kind="path-not-plain",
        )
    payload = offer.draft.payload
    prefix = payload.prefix if payload is not None else ""
    return f"{path}:{prefix or view_target(offer.draft.kind)}:ro"
