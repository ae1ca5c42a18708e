"""The files of the daemon that commands read: the status and the inventory."""

from __future__ import annotations

from contextlib import suppress

from cdigen.cli.shared import options
from cdigen.daemon import status
from cdigen.host.containers import hint_without_host
from cdigen.model.errors import CdigenError, HostError
from cdigen.model.strict import as_json
from cdigen.pipeline.device_names import known_devices
from cdigen.pipeline.discovery import NO_HOST
from cdigen.runtimes.daemon_service import NONE, service_of
from cdigen.service.daemon_inventory import read_daemon_inventory
from cdigen.service.status import foreign_owner, reason_not_running
from cdigen.store.records import run_dir
from cdigen.vendors.exclusion import exclusion_problem
from cdigen.vendors.registry import NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.runtimes.daemon_service import DaemonService
    from cdigen.service.host_state import HostInventory


def running_status(folder: str, host: Root) -> dict[str, Any]:
    """Return the status of the daemon of HOST in the run directory FOLDER.

    Raises HostError if no daemon runs, and StoreError if the status cannot be read.
    """
    service = service_of(host)
    try:
        found = status.read(folder, service)
        if problem := reason_not_running(folder, found):
            raise _not_running(found, problem, service)
    except HostError as error:
        # In a container, the daemon would find no devices, and no runtime would read its specs.
        if service is NONE and (hint := hint_without_host(host)):
            raise HostError(f"{NO_HOST}: {error.message}", hint=hint, kind=error.kind) from None
        raise
    return found


def _not_running(found: Mapping[str, Any], problem: str, service: DaemonService) -> HostError:
    last = found["last_cycle"].get("started")
    cycle = f" (last cycle: {last}, state of the host: {found['state']})" if last else ""
    return HostError(
        f"the cdigen daemon is not running{cycle}: {problem}",
        hint=f"the specs do not change until the daemon is started; {service.started()}",
        kind="no-daemon",
    )


def run_directories(host: Root, settings: Settings) -> tuple[str, ...]:
    """Return the configured run directory, and that of the last daemon of HOST with --run-dir, if any."""
    configured = options.outer_directory(host, settings.daemon.run_dir)
    recorded = run_dir.read(options.outer_directory(host, settings.state_dir))
    return tuple(dict.fromkeys(filter(None, (configured, recorded))))


def running_directory(host: Root, settings: Settings) -> str:
    """Return the run directory of HOST's running daemon; the configured one if no daemon runs."""
    configured, *others = run_directories(host, settings)
    for folder in (configured, *others) if others else ():
        with suppress(CdigenError):
            if foreign_owner(folder) is None and running_status(folder, host):
                return folder
    return configured


def daemon_inventory(host: Root, settings: Settings) -> HostInventory:
    """Return the inventory of the daemon of HOST.

    If the inventory has no devices, the field ``problem`` of the result is the reason.
    """
    return read_daemon_inventory(running_directory(host, settings), host)


def devices_of(inventory: HostInventory, settings: Settings) -> tuple[KnownDevice, ...]:
    """Return the devices of INVENTORY, named by the profiles in SETTINGS. Unknown vendors are omitted."""
    reliable = {name: own for name in inventory.vendors if name in NAMES and (own := inventory.of(name)[0])}
    return known_devices(reliable, settings.effective_profiles)


def excluded_lines(devices: Iterable[KnownDevice]) -> Iterator[str]:
    """Yield a line for each row of the configuration that excludes some of DEVICES."""
    by_row: dict[str, list[str]] = {}
    for device in devices:
        is_part_of_excluded = device.partition is not None and bool(device.accelerator.excluded)
        if device.excluded and not is_part_of_excluded:
            by_row.setdefault(device.excluded, []).append(device.name)
    for row, names in by_row.items():
        yield f"{', '.join(names)}: {exclusion_problem(row)}"


def device_row(device: KnownDevice) -> dict[str, Any]:
    """Return DEVICE as a JSON object."""
    gpu = device.accelerator
    return {
        "device": device.name,
        "vendor": device.vendor,
        "address": gpu.address,
        "index": gpu.index,
        "instance": device.instance,
        "uuid": device.uuid,
        "model": gpu.model,
        "usable": device.usable,
        "health": device.health,
        "causes": as_json(device.causes),
    }
