"""Checks of health: what the daemon knows of devices, whether it hears the kernel, links that lost lanes.

What the kernel reads from a device for sysfs wakes one that sleeps, so those are not asked.
"""

from __future__ import annotations

import posixpath

from cdigen.doctor.commands import run_cdigen
from cdigen.doctor.others import is_enabled
from cdigen.doctor.result import Remedy, Topic
from cdigen.frontend.daemon_inventory import read_daemon_inventory
from cdigen.health.annotate import MARKED
from cdigen.host.root import shown
from cdigen.host.sysfs import PCI_DEVICES
from cdigen.pipeline.device_names import known_devices
from cdigen.runtimes.daemon_service import UNIT
from cdigen.vendors.kernel.pci_health import sleeps
from cdigen.vendors.kernel.pci_link import changes_lanes, lanes
from cdigen.vendors.registry import NAMES
from cdigen.watch.kernel_log import SOCKET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.model.health import Cause
    from cdigen.pipeline.device_names import KnownDevice

TOPIC = Topic(name="health")
HEALTH, LOG, LINK = "device-health", "kernel-log", "pci-link"
SOURCE = "kernel-log"
SOCKET_UNIT = "cdigen-kernel-log.socket"


def known_by_daemon(context: Context) -> tuple[tuple[KnownDevice, ...], str]:
    """Return the devices whose health the daemon knows, or none and the reason."""
    known = read_daemon_inventory(context.outer(context.configuration.daemon.run_dir), context.host)
    if problem := known.problem or ", ".join(known.stale.values()):
        return (), problem
    reliable = {name: own for name, own in known.vendors.items() if name in NAMES}
    return known_devices(reliable, context.configuration.offered_profiles), ""


def _health(context: Context) -> Iterator[CheckResult]:
    """Report each device that the daemon knows to be unhealthy."""
    devices, problem = known_by_daemon(context)
    if problem:
        yield TOPIC.unchecked(HEALTH, f"the daemon knows which devices are healthy: {shown(problem)}")
        return
    ill = [(device, causes) for device in devices if (causes := device.own_causes)]
    for device, causes in ill:
        named = not set(context.request.devices).isdisjoint({device.name, *device.names})
        text = f"{device.name} is unhealthy: {'; '.join(_told(cause) for cause in causes)} (docs/health.md)"
        yield TOPIC.failed(HEALTH, shown(text), _remedies(context, device, causes), is_error=named)
    if not ill:
        yield TOPIC.good(HEALTH, _well(devices))


def _remedies(context: Context, device: KnownDevice, causes: tuple[Cause, ...]) -> tuple[Remedy, ...]:
    """Return what takes back a person's mark, where nothing else is wrong with DEVICE."""
    if [cause.cause for cause in causes] != [MARKED]:
        return ()
    why = "let the device be used again, once what it was marked for is mended"
    return (run_cdigen(context, "health", "--clear", device.name, why=why),)


def _told(cause: Cause) -> str:
    seen = f" ({cause.detail})" if cause.detail else ""
    return f"{cause.cause} since {cause.since}{seen}, until {cause.clears_when}"


def _well(devices: tuple[KnownDevice, ...]) -> str:
    known = sum(device.health == "healthy" for device in devices)
    rest = len(devices) - known
    return f"{known} devices are healthy" + (f", of {rest} nothing tells it" if rest else "")


def _kernel_log(context: Context) -> Iterator[CheckResult]:
    """Report whether the daemon hears what drivers write into the kernel's log."""
    status, problem = context.request.daemon()
    if status is None or problem:
        yield TOPIC.unchecked(LOG, "no daemon runs, which would read the kernel's log")
        return
    row = (status.get("sources") or {}).get(SOURCE)
    if row is None:
        yield TOPIC.good(LOG, "the daemon is told not to read the kernel's log (health: {kernel_log: false})")
    elif row.get("healthy"):
        yield TOPIC.good(LOG, "the daemon reads the kernel's log")
    else:
        text = f"errors that only the kernel's log tells go unseen: {shown(str(row.get('problem')))}"
        # The daemon's unit wants it: nobody enables it.
        is_startable = is_enabled(context, UNIT) and not context.host.exists(SOCKET)
        start = Remedy(argv=("systemctl", "start", SOCKET_UNIT), why="let the daemon hear the kernel's log")
        yield TOPIC.warning(LOG, text, (start,) if is_startable else ())


def _links(context: Context) -> Iterator[CheckResult]:
    """Report links on the way to a device that have fewer lanes than both of their ends can."""
    narrow: dict[str, str] = {}
    for inventory in context.inventories.values():
        for gpu in inventory.accelerators:
            for text in _narrow_links(context, gpu.address):
                narrow.setdefault(text, f"{gpu.device_class} {gpu.index} ({gpu.address})")
    for text, device in narrow.items():
        advice = "seat the card anew, look at its riser, and at the slot's lanes in the firmware's set-up"
        yield TOPIC.warning(LINK, f"{device} has less than it could: {text}; {advice}")
    if not narrow:
        yield TOPIC.good(LINK, "no link to a device has fewer lanes than both of its ends can")


def _narrow_links(context: Context, address: str) -> Iterator[str]:
    """Yield the links above the device at ADDRESS that are narrower than they could be.

    From the device up, every other step is a link; those in between are within a switch.
    """
    path = _path(context, address)
    if any(sleeps(context.host, one) for one in path):
        return
    for below, above in zip(path[::2], path[1::2], strict=False):
        ends = (f"{PCI_DEVICES}/{below}", f"{PCI_DEVICES}/{above}")
        now = lanes(context.host, ends[0])
        can = min(lanes(context.host, end, "max_link_width") for end in ends)
        if 0 < now < can and not changes_lanes(context.host, ends[0]):
            yield f"{now} of {can} lanes between {above} and {below}"


def _path(context: Context, address: str) -> list[str]:
    """Return the PCI device at ADDRESS and those above it, up to the root port."""
    try:
        folder = context.host.resolve(f"{PCI_DEVICES}/{address}") if address else ""
    except OSError:
        return []
    found = []
    while context.host.exists(f"{folder}/max_link_width"):
        found.append(posixpath.basename(folder))
        folder = posixpath.dirname(folder)
    return found


CHECKS = (_health, _kernel_log, _links)
