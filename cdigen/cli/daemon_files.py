"""What commands read of the daemon that runs: its status (``running_status``), the devices that it knows."""

from __future__ import annotations

from cdigen.cli import options
from cdigen.daemon import status
from cdigen.frontend.daemon_inventory import read_daemon_inventory
from cdigen.frontend.status import reason_not_running
from cdigen.model.errors import HostError
from cdigen.pipeline.device_names import known_devices
from cdigen.vendors.registry import NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cdigen.config import Settings
    from cdigen.frontend.host_state import HostInventory
    from cdigen.host.root import Root
    from cdigen.model.health import Cause
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.runtimes.daemon_service import DaemonService


def running_status(run_dir: str, service: DaemonService) -> dict[str, Any]:
    """Return the status of the daemon in RUN_DIR. HostError: none runs; StoreError: it cannot be read.

    SERVICE is how the host starts the daemon, for the hints.
    """
    found = status.read(run_dir, service)
    if problem := reason_not_running(run_dir, found):
        raise _dead(found, problem, service)
    return found


def _dead(found: Mapping[str, Any], problem: str, service: DaemonService) -> HostError:
    last = found["last_cycle"].get("started")
    did = f", which last looked at {last} and found the host {found['state']}" if last else ""
    return HostError(
        f"the cdigen daemon is not running{did}: {problem}",
        hint=f"the specs stay as they are until it is started again; {service.started()}",
        kind="no-daemon",
    )


def daemon_inventory(host: Root, settings: Settings, *, needs_daemon: bool = True) -> HostInventory:
    """Return what the daemon of HOST knows of its devices; ``problem`` says why that is nothing.

    Without NEEDS_DAEMON, what the last one knew.
    """
    run_dir = options.outer_directory(host, settings.daemon.run_dir)
    return read_daemon_inventory(run_dir, host, needs_daemon=needs_daemon)


def devices_of(inventory: HostInventory, settings: Settings) -> tuple[KnownDevice, ...]:
    """Return the devices of INVENTORY, named as SETTINGS say; none of a vendor that is not known here."""
    reliable = {name: own for name in inventory.vendors if name in NAMES and (own := inventory.of(name)[0])}
    return known_devices(reliable, settings.offered_profiles)


def device_row(device: KnownDevice) -> dict[str, Any]:
    """Return DEVICE as JSON shows it."""
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
        "causes": cause_rows(device.causes),
    }


def cause_rows(causes: Iterable[Cause]) -> list[dict[str, str]]:
    """Return CAUSES as JSON shows them."""
    return [
        {
            "cause": cause.cause,
            "since": cause.since,
            "detail": cause.detail,
            "clears_when": cause.clears_when,
        }
        for cause in causes
    ]
