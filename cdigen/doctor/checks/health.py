"""Checks of health: unhealthy devices, access to the kernel log, and PCIe links with lost lanes.

A read of the sysfs files of a runtime-suspended device resumes the device. Therefore the checks skip these
devices.
"""

from __future__ import annotations

import posixpath

from cdigen import page_url
from cdigen.doctor.commands import run_cdigen
from cdigen.doctor.result import Remedy, Topic
from cdigen.health.annotate import MARKED
from cdigen.host.root import shown
from cdigen.host.sysfs import PCI_DEVICES
from cdigen.pipeline.device_names import known_devices
from cdigen.runtimes.daemon_service import UNIT
from cdigen.runtimes.units import is_enabled
from cdigen.vendors.kernel.pci.health import PCI_CAUSES, is_suspended
from cdigen.vendors.kernel.pci.health import check as check_pci
from cdigen.vendors.kernel.pci.place import changes_lanes, lanes
from cdigen.vendors.registry import NAMES
from cdigen.watch.kernel_log import SOCKET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.model.health import Cause
    from cdigen.pipeline.device_names import KnownDevice

_PAGE = page_url("how-to/device-health")
TOPIC = Topic(name="health")
HEALTH, LOG, LINK = "device-health", "kernel-log", "pci-link"
SOURCE = "kernel-log"
SOCKET_UNIT = "cdigen-kernel-log.socket"


def devices_of_daemon(context: Context) -> tuple[tuple[KnownDevice, ...], str]:
    """Return the devices in the daemon's inventory with their health; on failure, no devices and a reason."""
    known = context.request.inventory()
    if problem := known.problem or ", ".join(known.stale.values()):
        return (), problem
    reliable = {name: own for name, own in known.vendors.items() if name in NAMES}
    return known_devices(reliable, context.configuration.effective_profiles), ""


def _health(context: Context) -> Iterator[CheckResult]:
    """Report each device that is unhealthy in the daemon's inventory, or off the bus without the daemon."""
    devices, problem = devices_of_daemon(context)
    if problem:
        lost = tuple(_off_bus(context))
        yield from lost or (TOPIC.skipped(HEALTH, shown(problem)),)
        return
    unhealthy = [(device, causes) for device in devices if (causes := device.own_causes)]
    for device, causes in unhealthy:
        named = not set(context.request.devices).isdisjoint({device.name, *device.names})
        gpu = device.accelerator
        place = ", ".join(filter(None, (gpu.address, str((device.partition or gpu).uuid or ""))))
        text = f"{device.name} ({place}): unhealthy: {'; '.join(map(_described, causes))} ({_PAGE})"
        yield TOPIC.failed(HEALTH, shown(text), _remedies(context, device, causes), is_error=named)
    if not unhealthy:
        yield TOPIC.passed(HEALTH, _summary(devices))


def _off_bus(context: Context) -> Iterator[CheckResult]:
    """Report each device that does not answer on the PCI bus, by the files of the host."""
    steps = {rule.cause: rule.next_step for rule in PCI_CAUSES}
    for inventory in context.inventories.values():
        symptoms = {
            one.address: one for one in check_pci(context.request.discovery_context, inventory).symptoms
        }
        for gpu in inventory.accelerators:
            symptom = symptoms.get(gpu.address)
            if symptom is None or not context.concerns(inventory.vendor):
                continue
            names = (str(gpu.index), gpu.uuid, "all")
            named = any(name.partition("=")[2] in names for name in context.request.devices)
            text = (
                f"{gpu.device_class} {gpu.index} ({gpu.address}): {symptom.cause} ({symptom.detail}): its "
                "programs fail, or hang and cannot be killed; other devices are not affected; "
                f"{steps[symptom.cause]} ({_PAGE})"
            )
            yield TOPIC.failed(HEALTH, shown(text), is_error=named)


def _remedies(context: Context, device: KnownDevice, causes: tuple[Cause, ...]) -> tuple[Remedy, ...]:
    """Return the command that clears the mark of DEVICE; empty if DEVICE has other causes."""
    if [cause.cause for cause in causes] != [MARKED]:
        return ()
    why = "clear the mark after the reason of the mark is fixed"
    return (run_cdigen(context, "health", "--clear", device.name, why=why),)


def _described(cause: Cause) -> str:
    detail = f" ({cause.detail})" if cause.detail else ""
    return f"{cause.cause} since {cause.since}{detail}, until {cause.clears_when}"


def _summary(devices: tuple[KnownDevice, ...]) -> str:
    healthy = sum(device.health == "healthy" for device in devices)
    unknown = len(devices) - healthy
    return f"{healthy} devices are healthy" + (f", the health of {unknown} is unknown" if unknown else "")


def _kernel_log(context: Context) -> Iterator[CheckResult]:
    """Report whether the daemon reads the kernel log."""
    status, problem = context.request.daemon()
    if status is None or problem:
        yield TOPIC.skipped(LOG, "cdigen.service is not running")
        return
    row = (status.get("sources") or {}).get(SOURCE)
    if row is None:
        yield TOPIC.passed(LOG, "the kernel log is not read (health: {kernel_log: false})")
    elif row.get("healthy"):
        yield TOPIC.passed(LOG, "the daemon reads the kernel log")
    else:
        text = f"the daemon does not detect errors in the kernel log: {shown(str(row.get('problem')))}"
        # cdigen.service starts the socket. The socket itself is never enabled.
        is_startable = is_enabled(context.host, UNIT) and not context.host.exists(SOCKET)
        start = Remedy(argv=("systemctl", "start", SOCKET_UNIT), why="let the daemon read the kernel log")
        yield TOPIC.warning(LOG, text, (start,) if is_startable else ())


def _links(context: Context) -> Iterator[CheckResult]:
    """Report links above a device that have fewer lanes than both ends support."""
    narrow: dict[str, str] = {}
    for inventory in context.inventories.values():
        for gpu in inventory.accelerators:
            for text in _narrow_links(context, gpu.address):
                narrow.setdefault(text, f"{gpu.device_class} {gpu.index} ({gpu.address})")
    for text, device in narrow.items():
        advice = "reseat the card, and check its riser and the lanes of the slot in the firmware setup"
        yield TOPIC.warning(LINK, f"{device}: PCIe link with fewer lanes than supported: {text}; {advice}")
    if not narrow:
        yield TOPIC.passed(LINK, "all links to devices have the lanes that both ends support")


def _narrow_links(context: Context, address: str) -> Iterator[str]:
    """Yield the links above the device at ADDRESS that have fewer lanes than both ends support.

    In the path upwards from the device, every second step is a link. The other steps are inside a switch.
    """
    path = _path(context, address)
    if any(is_suspended(context.host, one) for one in path):
        return
    for below, above in zip(path[::2], path[1::2], strict=False):
        ends = (f"{PCI_DEVICES}/{below}", f"{PCI_DEVICES}/{above}")
        now = lanes(context.host, ends[0])
        can = min(lanes(context.host, end, "max_link_width") for end in ends)
        if 0 < now < can and not changes_lanes(context.host, ends[0]):
            yield f"{now} of {can} lanes between {above} and {below}"


def _path(context: Context, address: str) -> list[str]:
    """Return the PCI device at ADDRESS and the PCI devices above it, up to the root port."""
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
