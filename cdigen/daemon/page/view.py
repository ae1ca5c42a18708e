"""``PageView``: all that the page shows, and ``device_views``, which says of each device what is known of it.

Times are seconds since 1970. Nothing here is escaped or shortened.
"""

from __future__ import annotations

from cdigen.topology.matrix import devices_of
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal

    from cdigen.daemon.figures import VendorFigures
    from cdigen.daemon.report import DaemonStatus
    from cdigen.model.figures import DeviceFigures
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.topology.matrix import Device

    # asked: it answers; off: nobody allowed it; absent: this host has none; silent: it does not answer.
    SourceState = Literal["asked", "off", "absent", "silent"]
    # How a process beside the daemon stands, for whoever counts on it.
    PeerState = Literal["good", "waiting", "bad", "absent"]

    # A device: its PCI address, and the driver's name of the partition, empty for a whole one.
    DeviceKey = tuple[str, str]


@frozen
class Holder:
    """Who has a device: ``name`` for people (``pod ml/train-0, container trainer``), by whose word.

    ``since_s`` is None where it is not known.
    """

    name: str
    said_by: str
    since_s: float | None = None


@frozen
class HolderSource:
    """One that may know who has devices (``kubelet``): whether it does, and ``detail`` if not."""

    name: str
    state: SourceState
    detail: str = ""


@frozen
class DeviceView:
    """A device as the page shows it: ``label`` is its name in the picture, empty for a partition."""

    device: KnownDevice
    label: str = ""
    figures: DeviceFigures | None = None
    holders: tuple[Holder, ...] = ()


@frozen
class RuntimeView:
    """What an installed runtime makes of the specs: it finds so many devices of those ``offered``.

    ``problems`` are pairs of a device, or a file, and why the runtime does not find it.
    """

    name: str
    version: str
    found: int
    offered: int
    problems: tuple[tuple[str, str], ...] = ()


@frozen
class Refusal:
    """A container that was refused: when, who (``pod ml/train-0``), and why."""

    at_s: float
    who: str
    reason: str


@frozen
class Peer:
    """A process beside the daemon (``NRI plugin``): how it stands, in its own word, since when, and why.

    ``lines`` are what else people want to know of it.
    """

    name: str
    state: PeerState
    word: str
    since_s: float | None = None
    reason: str = ""
    lines: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()


@frozen
class PageView:
    """What the page shows, as of ``at_s``; ``reload_s`` is 0 where it does not reload itself.

    ``drivers`` are pairs of a vendor and its driver's version; ``cuda`` is the newest CUDA that NVIDIA's
    serves, empty where that is not known or there is none. ``figures_problem`` says why figures are
    missing. ``sources`` is empty where nobody was asked who has what. ``runtimes`` is None where nobody
    looked. ``looked_for`` are the makers whose devices are looked for. ``is_nameless``: pods, containers and
    processes are not named (``nameless``).
    """

    at_s: float
    host: str
    status: DaemonStatus
    devices: tuple[DeviceView, ...] = ()
    topology: tuple[Device, ...] = ()
    drivers: tuple[tuple[str, str], ...] = ()
    cuda: str = ""
    figures_problem: str = ""
    sources: tuple[HolderSource, ...] = ()
    runtimes: tuple[RuntimeView, ...] | None = None
    looked_for: tuple[str, ...] = ()
    peers: tuple[Peer, ...] = ()
    is_nameless: bool = False
    reload_s: int = 0


def is_offered(device: KnownDevice) -> bool:
    """Return whether containers can have DEVICE: a GPU that is split is offered as its partitions."""
    return device.usable and (device.partition is not None or not device.accelerator.partitioned)


def offered_names(devices: Iterable[KnownDevice]) -> tuple[str, ...]:
    """Return the names of those of DEVICES that containers can have."""
    return tuple(device.name for device in devices if is_offered(device))


def nameless(view: PageView) -> PageView:
    """Return VIEW for those who may know that a device is in use, and not by whom.

    Refusals go as a whole: their reasons quote what pods asked for.
    """
    devices = tuple(
        replace(one, holders=_unnamed(one.holders), figures=one.figures and without_names(one.figures))
        for one in view.devices
    )
    peers = tuple(replace(peer, refusals=()) for peer in view.peers)
    return replace(view, devices=devices, peers=peers, is_nameless=True)


def without_names(figures: DeviceFigures) -> DeviceFigures:
    """Return FIGURES with the numbers of processes, and without their names."""
    if not figures.processes:
        return figures
    return replace(figures, processes=tuple(replace(one, name="") for one in figures.processes))


def _unnamed(holders: tuple[Holder, ...]) -> tuple[Holder, ...]:
    said = dict.fromkeys(holder.said_by for holder in holders)
    return tuple(Holder(name="in use", said_by=each) for each in said)


def device_views(
    devices: Iterable[KnownDevice],
    inventories: Mapping[str, Inventory],
    figures: Iterable[VendorFigures] = (),
    holders: Mapping[DeviceKey, tuple[Holder, ...]] | None = None,
) -> tuple[DeviceView, ...]:
    """Return what is known of each of DEVICES, which ``known_devices`` made of INVENTORIES."""
    labels = {_place(one.vendor, one.accelerator): one.label for one in devices_of(inventories)}
    told = {(one.address, one.instance): one for vendor in figures for one in vendor.devices}
    return tuple(
        DeviceView(
            device=device,
            label="" if device.partition else labels.get(_place(device.vendor, device.accelerator), ""),
            figures=told.get((device.accelerator.address, device.instance)),
            holders=(holders or {}).get((device.accelerator.address, device.instance), ()),
        )
        for device in devices
    )


def _place(vendor: str, accelerator: Accelerator) -> tuple[str, str, int]:
    return vendor, accelerator.device_class, accelerator.index
