"""The users of devices: ``users_by_device`` combines the reports of all sources. All functions are pure.

A user that several sources report is listed once with all sources. A source that did not respond is listed
with the reason.
"""

from __future__ import annotations

from cdigen.device_users.open_nodes import NO_PTRACE
from cdigen.page.services import NRI
from cdigen.page.view import DeviceUser, DeviceUserSource
from cdigen.pipeline.device_names import devices_by_name
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cdigen.daemon.stats import VendorStats
    from cdigen.device_users.engines import EngineReport
    from cdigen.device_users.open_nodes import OpenDeviceNodes
    from cdigen.model.inventory import HostNode
    from cdigen.page.services import NriContainer, ServiceStatuses
    from cdigen.page.view import DeviceKey, RuntimeView, SourceState
    from cdigen.pipeline.device_names import KnownDevice

DRIVER, ENGINES, OPEN = "driver", "podman, Docker", "open device files"
_NOT_ALLOWED = "no socket is configured in page: {sockets: []}"
_MAY_HAVE_ENDED = "ended containers may be listed, because not all processes of the host are visible"
# Seconds after the injection. During this time, a container may have no process yet.
_YOUNG_S = 60.0


@frozen
class UserReports:
    """The reports of all sources about users of devices.

    ``engines`` maps sockets to reports. A report is None if the engine did not respond. ``running`` are the
    ids of containers that have a process, None if unknown. ``containers`` maps process ids to container ids.
    ``open_nodes`` and ``runtimes`` are None if there was no response. ``runtimes`` contains the devices that
    each runtime finds.
    """

    services: ServiceStatuses
    engines: Mapping[str, EngineReport | None]
    running: frozenset[str] | None
    stats: tuple[VendorStats, ...] = ()
    containers: Mapping[int, str] | None = None
    open_nodes: OpenDeviceNodes | None = None
    runtimes: tuple[RuntimeView, ...] | None = None


def users_by_device(
    reports: UserReports, devices: tuple[KnownDevice, ...], now_s: float
) -> tuple[dict[DeviceKey, tuple[DeviceUser, ...]], tuple[DeviceUserSource, ...]]:
    """Return the users of DEVICES according to REPORTS, and the state of each source."""
    injected = tuple(
        one for one in reports.services.nri_containers if _is_running(one, reports.running, now_s)
    )
    found: dict[DeviceKey, dict[str, DeviceUser]] = {}
    for key, user in (
        *_by_names(reports.services.users, devices),
        *_by_names(((name, one.user) for one in injected for name in one.devices), devices),
        *_of_engines(reports.engines, devices),
        *_of_processes(reports, _names(reports, injected)),
        *_of_open_nodes(reports, _names(reports, injected), devices),
    ):
        _add(found.setdefault(key, {}), user)
    sources = (
        *_services(reports),
        *_engines(reports.engines),
        *_driver(reports.stats),
        *_open(reports.open_nodes),
    )
    return {key: tuple(users.values()) for key, users in found.items()}, sources


def pids_of(stats: Iterable[VendorStats], found: OpenDeviceNodes | None) -> list[int]:
    """Return the ids of the processes in STATS, and of the processes in FOUND that have device nodes open."""
    rows = (one.processes or () for vendor in stats for one in vendor.devices)
    pids = [process.pid for processes in rows for process in processes]
    return list(dict.fromkeys((*pids, *(pid for pid, _ in (found.nodes if found else ())))))


def numbers_of(devices: Iterable[KnownDevice]) -> dict[str, DeviceKey]:
    """Return a map: the number of a node (``195:0``) -> its device. Nodes that devices share are left out."""
    return _by_node(devices, lambda node: f"{node.major}:{node.minor}")


def _by_node(devices: Iterable[KnownDevice], name_of: Callable[[HostNode], str]) -> dict[str, DeviceKey]:
    """Return a map: the name of a node -> its device. Nodes that devices share are left out."""
    found: dict[str, set[DeviceKey]] = {}
    for device in devices:
        for node in (device.partition or device.accelerator).nodes:
            found.setdefault(name_of(node), set()).add((device.accelerator.address, device.instance))
    return {name: next(iter(keys)) for name, keys in found.items() if len(keys) == 1}


def _add(users: dict[str, DeviceUser], user: DeviceUser) -> None:
    """Add USER to USERS, or only its source if USERS has a user with this name."""
    known = users.setdefault(user.name, user)
    sources = known.source.split(", ")
    if user.source not in sources:
        since_s = user.since_s if known.since_s is None else known.since_s
        users[user.name] = replace(known, source=f"{known.source}, {user.source}", since_s=since_s)


def _is_running(one: NriContainer, running: frozenset[str] | None, now_s: float) -> bool:
    is_young = one.user.since_s is not None and now_s - one.user.since_s < _YOUNG_S
    return running is None or is_young or one.id in running


def _by_names(
    users: Iterable[tuple[str, DeviceUser]], devices: tuple[KnownDevice, ...]
) -> Iterator[tuple[DeviceKey, DeviceUser]]:
    """Yield each user in USERS (pairs of a CDI name and a user) with the key of each device of that name."""
    named = devices_by_name(devices)
    for name, user in users:
        for device in named.get(name, ()):
            yield (device.accelerator.address, device.instance), user


def _of_engines(
    engines: Mapping[str, EngineReport | None], devices: tuple[KnownDevice, ...]
) -> Iterator[tuple[DeviceKey, DeviceUser]]:
    by_path = _by_node(devices, lambda node: node.host_path)
    for report in engines.values():
        for container in report.containers if report else ():
            user = DeviceUser(
                name=f"container {container.name}",
                source=report.engine if report else "",
                since_s=container.since_s,
            )
            yield from _by_names(((name, user) for name in container.devices), devices)
            keys = {key for node in container.nodes for key in _keys(node, by_path)}
            yield from ((key, user) for key in _without_whole(keys))


def _without_whole(keys: set[DeviceKey]) -> list[DeviceKey]:
    """Return KEYS in order. The user of a partition also has the node of its GPU, which is left out."""
    split = {address for address, instance in keys if instance}
    return [key for key in sorted(keys) if key[1] or key[0] not in split]


def _keys(node: str, by_path: Mapping[str, DeviceKey]) -> list[DeviceKey]:
    """Return the devices of NODE. NODE is a device node, or a folder of device nodes (/dev/dri)."""
    path = node.rstrip("/")
    if path in by_path:
        return [by_path[path]]
    return [key for each, key in by_path.items() if each.startswith(f"{path}/") and path.startswith("/dev/")]


def _names(reports: UserReports, injected: tuple[NriContainer, ...]) -> dict[str, str]:
    """Return the known names of containers by container id."""
    names = {one.id: one.user.name for one in injected}
    for report in reports.engines.values():
        for container in report.containers if report else ():
            names.setdefault(container.id, f"container {container.name}")
    return names


def _of_processes(reports: UserReports, names: Mapping[str, str]) -> Iterator[tuple[DeviceKey, DeviceUser]]:
    containers = reports.containers or {}
    for stats in (one for vendor in reports.stats for one in vendor.devices):
        for process in stats.processes or ():
            container = containers.get(process.pid, "")
            named = names.get(container) or (f"container {container[:12]}" if container else "")
            name = named or f"process {process.pid}{f' ({process.name})' if process.name else ''}"
            yield (stats.address, stats.instance), DeviceUser(name=name, source=DRIVER)


def _of_open_nodes(
    reports: UserReports, names: Mapping[str, str], devices: tuple[KnownDevice, ...]
) -> Iterator[tuple[DeviceKey, DeviceUser]]:
    """Yield each container that has a device node open, with the device's key. Leave out other processes."""
    by_number, containers = numbers_of(devices), reports.containers or {}
    keys: dict[str, set[DeviceKey]] = {}
    for pid, number in reports.open_nodes.nodes if reports.open_nodes else ():
        if pid in containers and number in by_number:
            keys.setdefault(containers[pid], set()).add(by_number[number])
    for container, opened in keys.items():
        user = DeviceUser(name=names.get(container, f"container {container[:12]}"), source=OPEN)
        yield from ((key, user) for key in _without_whole(opened))


def _open(found: OpenDeviceNodes | None) -> Iterator[DeviceUserSource]:
    if found is not None:
        is_read = found.nodes or not found.problem
        state: SourceState = (
            "responded" if is_read else "off" if found.problem == NO_PTRACE else "no-response"
        )
        yield DeviceUserSource(name=OPEN, state=state, detail=found.problem)


def _services(reports: UserReports) -> Iterator[DeviceUserSource]:
    for source in reports.services.sources:
        is_vague = source.name == NRI and source.state == "responded" and reports.running is None
        yield replace(source, detail=_MAY_HAVE_ENDED) if is_vague else source


def _engines(engines: Mapping[str, EngineReport | None]) -> Iterator[DeviceUserSource]:
    if not engines:
        yield DeviceUserSource(name=ENGINES, state="off", detail=_NOT_ALLOWED)
    for path, report in engines.items():
        if report is None or report.has_failed:
            why = "no response yet" if report is None else report.problem
            yield DeviceUserSource(name=path, state="no-response", detail=why)
        else:
            yield DeviceUserSource(name=report.engine, state="responded", detail=report.problem)


def _driver(stats: tuple[VendorStats, ...]) -> Iterator[DeviceUserSource]:
    devices = [one for vendor in stats for one in vendor.devices]
    if any(one.processes is not None for one in devices):
        yield DeviceUserSource(name=DRIVER, state="responded")
    elif stats:
        why = next((one.problem for one in stats if one.problem), "the driver does not report processes")
        yield DeviceUserSource(name=DRIVER, state="no-response", detail=why)
