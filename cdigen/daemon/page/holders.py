"""Who has which device, by all who may know: ``who_has`` puts their words together. Pure.

One that several know is named once, with all of them. What nobody could tell is a source that says so.
"""

from __future__ import annotations

from cdigen.daemon.page.peers import NRI
from cdigen.daemon.page.view import Holder, HolderSource
from cdigen.holders.open_nodes import NO_RIGHT
from cdigen.pipeline.device_names import by_name
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.daemon.figures import VendorFigures
    from cdigen.daemon.page.peers import Booked, Peers
    from cdigen.daemon.page.view import DeviceKey, RuntimeView, SourceState
    from cdigen.holders.model import Told
    from cdigen.holders.open_nodes import Open
    from cdigen.pipeline.device_names import KnownDevice

DRIVER, ENGINES, OPEN = "driver", "podman, Docker", "open device files"
_NOT_ALLOWED = "no socket is named in page: {sockets: []}"
_MAY_HAVE_ENDED = "containers that have ended may be among them: not all processes are seen from here"
# A container that was given devices may not have a process yet.
_YOUNG_S = 60.0


@frozen
class Heard:
    """What was heard of who has devices.

    ``engines`` are the answers by socket, None where there is none yet. ``living`` are the containers that
    have a process, None where that cannot be told; ``containers`` those that processes are in.
    ``open_nodes`` and ``runtimes`` (what these find) are None where there is no answer yet.
    """

    peers: Peers
    engines: Mapping[str, Told | None]
    living: frozenset[str] | None
    figures: tuple[VendorFigures, ...] = ()
    containers: Mapping[int, str] | None = None
    open_nodes: Open | None = None
    runtimes: tuple[RuntimeView, ...] | None = None


def who_has(
    heard: Heard, devices: tuple[KnownDevice, ...], now_s: float
) -> tuple[dict[DeviceKey, tuple[Holder, ...]], tuple[HolderSource, ...]]:
    """Return the holders of DEVICES as HEARD, and what each source is worth."""
    booked = tuple(one for one in heard.peers.booked if _is_there(one, heard.living, now_s))
    found: dict[DeviceKey, dict[str, Holder]] = {}
    for key, holder in (
        *_by_names(heard.peers.holders, devices),
        *_by_names(((name, one.holder) for one in booked for name in one.devices), devices),
        *_of_engines(heard.engines, devices),
        *_of_processes(heard, _names(heard, booked)),
        *_of_open_nodes(heard, _names(heard, booked), devices),
    ):
        _add(found.setdefault(key, {}), holder)
    sources = (*_peers(heard), *_engines(heard.engines), *_driver(heard.figures), *_open(heard.open_nodes))
    return {key: tuple(those.values()) for key, those in found.items()}, sources


def pids_of(figures: Iterable[VendorFigures], found: Open | None) -> list[int]:
    """Return the processes that FIGURES name, and those FOUND with open nodes."""
    rows = (one.processes or () for vendor in figures for one in vendor.devices)
    told = [process.pid for those in rows for process in those]
    return list(dict.fromkeys((*told, *(pid for pid, _ in (found.nodes if found else ())))))


def numbers_of(devices: Iterable[KnownDevice]) -> dict[str, DeviceKey]:
    """Return whose a node is, by its number (``195:0``), of those that are of one device alone."""
    found: dict[str, set[DeviceKey]] = {}
    for device in devices:
        for node in (device.partition or device.accelerator).nodes:
            number = f"{node.major}:{node.minor}"
            found.setdefault(number, set()).add((device.accelerator.address, device.instance))
    return {number: next(iter(keys)) for number, keys in found.items() if len(keys) == 1}


def _add(those: dict[str, Holder], holder: Holder) -> None:
    """Add HOLDER to THOSE, or its source to the one of that name."""
    known = those.setdefault(holder.name, holder)
    sources = known.said_by.split(", ")
    if holder.said_by not in sources:
        since_s = holder.since_s if known.since_s is None else known.since_s
        those[holder.name] = replace(known, said_by=f"{known.said_by}, {holder.said_by}", since_s=since_s)


def _is_there(one: Booked, living: frozenset[str] | None, now_s: float) -> bool:
    is_young = one.holder.since_s is not None and now_s - one.holder.since_s < _YOUNG_S
    return living is None or is_young or one.id in living


def _by_names(
    holders: Iterable[tuple[str, Holder]], devices: tuple[KnownDevice, ...]
) -> Iterator[tuple[DeviceKey, Holder]]:
    """Yield each of HOLDERS with the devices that its CDI name gives."""
    named = by_name(devices)
    for name, holder in holders:
        for device in named.get(name, ()):
            yield (device.accelerator.address, device.instance), holder


def _of_engines(
    engines: Mapping[str, Told | None], devices: tuple[KnownDevice, ...]
) -> Iterator[tuple[DeviceKey, Holder]]:
    owners = _owners(devices)
    for told in engines.values():
        for container in told.containers if told else ():
            holder = Holder(
                name=f"container {container.name}",
                said_by=told.engine if told else "",
                since_s=container.since_s,
            )
            yield from _by_names(((name, holder) for name in container.devices), devices)
            keys = {key for node in container.nodes for key in _keys(node, owners)}
            # Who has a partition has the node of its GPU as well.
            split = {address for address, instance in keys if instance}
            for key in sorted(keys):
                if key[1] or key[0] not in split:
                    yield key, holder


def _owners(devices: tuple[KnownDevice, ...]) -> dict[str, DeviceKey]:
    """Return whose a node is, by its path, of those that are of one device alone."""
    found: dict[str, set[DeviceKey]] = {}
    for device in devices:
        for node in (device.partition or device.accelerator).nodes:
            found.setdefault(node.host_path, set()).add((device.accelerator.address, device.instance))
    return {path: next(iter(keys)) for path, keys in found.items() if len(keys) == 1}


def _keys(node: str, owners: Mapping[str, DeviceKey]) -> list[DeviceKey]:
    """Return the devices that NODE gives, which may be a folder of nodes (/dev/dri)."""
    path = node.rstrip("/")
    if path in owners:
        return [owners[path]]
    return [key for each, key in owners.items() if each.startswith(f"{path}/") and path.startswith("/dev/")]


def _names(heard: Heard, booked: tuple[Booked, ...]) -> dict[str, str]:
    """Return the names of containers by their ids, as far as somebody knows them."""
    names = {one.id: one.holder.name for one in booked}
    for told in heard.engines.values():
        for container in told.containers if told else ():
            names.setdefault(container.id, f"container {container.name}")
    return names


def _of_processes(heard: Heard, names: Mapping[str, str]) -> Iterator[tuple[DeviceKey, Holder]]:
    containers = heard.containers or {}
    for figures in (one for vendor in heard.figures for one in vendor.devices):
        for process in figures.processes or ():
            container = containers.get(process.pid, "")
            named = names.get(container) or (f"container {container[:12]}" if container else "")
            name = named or f"process {process.pid}{f' ({process.name})' if process.name else ''}"
            yield (figures.address, figures.instance), Holder(name=name, said_by=DRIVER)


def _of_open_nodes(
    heard: Heard, names: Mapping[str, str], devices: tuple[KnownDevice, ...]
) -> Iterator[tuple[DeviceKey, Holder]]:
    """Yield the containers of processes that have nodes open; what the host itself runs has no device."""
    owners, containers = numbers_of(devices), heard.containers or {}
    keys: dict[str, set[DeviceKey]] = {}
    for pid, number in heard.open_nodes.nodes if heard.open_nodes else ():
        if pid in containers and number in owners:
            keys.setdefault(containers[pid], set()).add(owners[number])
    for container, those in keys.items():
        split = {address for address, instance in those if instance}
        holder = Holder(name=names.get(container, f"container {container[:12]}"), said_by=OPEN)
        yield from ((key, holder) for key in sorted(those) if key[1] or key[0] not in split)


def _open(found: Open | None) -> Iterator[HolderSource]:
    if found is not None:
        is_told = found.nodes or not found.problem
        state: SourceState = "asked" if is_told else "off" if found.problem == NO_RIGHT else "silent"
        yield HolderSource(name=OPEN, state=state, detail=found.problem)


def _peers(heard: Heard) -> Iterator[HolderSource]:
    for source in heard.peers.sources:
        is_vague = source.name == NRI and source.state == "asked" and heard.living is None
        yield replace(source, detail=_MAY_HAVE_ENDED) if is_vague else source


def _engines(engines: Mapping[str, Told | None]) -> Iterator[HolderSource]:
    if not engines:
        yield HolderSource(name=ENGINES, state="off", detail=_NOT_ALLOWED)
    for path, told in engines.items():
        if told is None or told.is_silent:
            why = "no answer yet" if told is None else told.problem
            yield HolderSource(name=path, state="silent", detail=why)
        else:
            yield HolderSource(name=told.engine, state="asked", detail=told.problem)


def _driver(figures: tuple[VendorFigures, ...]) -> Iterator[HolderSource]:
    devices = [one for vendor in figures for one in vendor.devices]
    if any(one.processes is not None for one in devices):
        yield HolderSource(name=DRIVER, state="asked")
    elif figures:
        why = next((one.problem for one in figures if one.problem), "it does not tell processes")
        yield HolderSource(name=DRIVER, state="silent", detail=why)
