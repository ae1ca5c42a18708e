"""The content of the page (``PageView``), and the known facts about each device (``device_views``).

Times are seconds since 1970. Texts are not escaped and not shortened.
"""

from __future__ import annotations

from cdigen.topology.matrix import devices_of
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal

    from cdigen.daemon.cycle.report import DaemonStatus
    from cdigen.daemon.stats import VendorStats
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.model.stats import DeviceStats
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.topology.matrix import MatrixDevice

    # off: not configured or not permitted. absent: not on this host. no-response: the source did not respond.
    SourceState = Literal["responded", "off", "absent", "no-response"]
    # The state of another service of cdigen, for people who use its devices.
    ServiceState = Literal["good", "waiting", "bad", "absent"]

    # (PCI address, the driver's name of the partition); the name is "" for a whole device.
    DeviceKey = tuple[str, str]


@frozen
class DeviceUser:
    """A user of a device.

    ``name`` is for people (``pod ml/train-0, container trainer``). ``source`` is the source that reports the
    user. ``since_s`` is None if unknown.
    """

    name: str
    source: str
    since_s: float | None = None


@frozen
class DeviceUserSource:
    """A source of users (``kubelet``), and its state. ``detail`` explains the state."""

    name: str
    state: SourceState
    detail: str = ""


@frozen
class DeviceView:
    """A device on the page. ``label`` is its name in the picture of the topology, and "" for a partition."""

    device: KnownDevice
    label: str = ""
    stats: DeviceStats | None = None
    users: tuple[DeviceUser, ...] = ()


@frozen
class RuntimeView:
    """An installed runtime, which finds ``found`` of the ``offered`` devices in the specs.

    ``problems`` are pairs: a device or a file, and the reason why the runtime does not find devices.
    """

    name: str
    version: str
    found: int
    offered: int
    problems: tuple[tuple[str, str], ...] = ()


@frozen
class RefusedContainer:
    """A refused container: the time, the container's name (``pod ml/train-0``), and the reason."""

    at_s: float
    container: str
    reason: str


@frozen
class ServiceStatus:
    """Another service of cdigen (``NRI plugin``): its state, the start of the state, and the reason.

    ``status`` is the name of the state in the service's status.json. ``lines`` are further facts. ``hint`` is
    the next step if the state is ``bad``.
    """

    name: str
    state: ServiceState
    status: str
    since_s: float | None = None
    reason: str = ""
    hint: str = ""
    lines: tuple[str, ...] = ()
    refusals: tuple[RefusedContainer, ...] = ()


@frozen
class PageView:
    """The content of the page as of ``at_s``. ``reload_s`` is 0 if the page does not reload.

    ``drivers`` are pairs of a vendor and the version of its driver. ``cuda`` is the newest CUDA version that
    NVIDIA's driver serves, "" if it is unknown or there is no driver. ``stats_problem`` is the reason for
    missing stats. ``sources`` is empty if no source was queried. ``runtimes`` is None if there was no
    response. ``searched`` are the vendors whose devices are discovered. ``is_nameless`` is true if pods,
    containers and processes are not named (``nameless``).
    """

    at_s: float
    host: str
    status: DaemonStatus
    devices: tuple[DeviceView, ...] = ()
    topology: tuple[MatrixDevice, ...] = ()
    drivers: tuple[tuple[str, str], ...] = ()
    cuda: str = ""
    stats_problem: str = ""
    sources: tuple[DeviceUserSource, ...] = ()
    runtimes: tuple[RuntimeView, ...] | None = None
    searched: tuple[str, ...] = ()
    services: tuple[ServiceStatus, ...] = ()
    is_nameless: bool = False
    reload_s: int = 0


def names_for_containers(devices: Iterable[KnownDevice]) -> tuple[str, ...]:
    """Return the names of the DEVICES that containers can have."""
    return tuple(device.name for device in devices if device.is_offered)


def nameless(view: PageView) -> PageView:
    """Return VIEW without the names of users. The result only shows whether a device is in use.

    The result has no refused containers, because the reasons for a refusal quote the requests of pods.
    """
    devices = tuple(
        replace(one, users=_unnamed(one.users), stats=one.stats and without_names(one.stats))
        for one in view.devices
    )
    services = tuple(replace(service, refusals=()) for service in view.services)
    return replace(view, devices=devices, services=services, is_nameless=True)


def without_names(stats: DeviceStats) -> DeviceStats:
    """Return STATS without the names of processes. The process ids are kept."""
    if not stats.processes:
        return stats
    return replace(stats, processes=tuple(replace(one, name="") for one in stats.processes))


def _unnamed(users: tuple[DeviceUser, ...]) -> tuple[DeviceUser, ...]:
    sources = dict.fromkeys(user.source for user in users)
    return tuple(DeviceUser(name="in use", source=each) for each in sources)


def device_views(
    devices: Iterable[KnownDevice],
    inventories: Mapping[str, Inventory],
    stats: Iterable[VendorStats] = (),
    users: Mapping[DeviceKey, tuple[DeviceUser, ...]] | None = None,
) -> tuple[DeviceView, ...]:
    """Return the known facts about each of DEVICES, which ``known_devices`` returned for INVENTORIES."""
    labels = {_place(one.vendor, one.accelerator): one.label for one in devices_of(inventories)}
    by_device = {(one.address, one.instance): one for vendor in stats for one in vendor.devices}
    return tuple(
        DeviceView(
            device=device,
            label="" if device.partition else labels.get(_place(device.vendor, device.accelerator), ""),
            stats=by_device.get((device.accelerator.address, device.instance)),
            users=(users or {}).get((device.accelerator.address, device.instance), ()),
        )
        for device in devices
    )


def _place(vendor: str, accelerator: Accelerator) -> tuple[str, str, int]:
    return vendor, accelerator.device_class, accelerator.index
