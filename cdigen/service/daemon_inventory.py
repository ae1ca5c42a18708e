"""Read the daemon's inventory once, for commands: ``read_daemon_inventory``.

Long-running processes use ``host_state``, which keeps the inventory up to date.
"""

from __future__ import annotations

import os

from cdigen.host.root import shown
from cdigen.model.errors import CdigenError
from cdigen.service.host_state import MAX_INVENTORY, HostInventory, parse_inventory, running_drivers
from cdigen.service.rundir import INVENTORY_FILE
from cdigen.service.status import foreign_owner, read_status, reason_not_running
from cdigen.store.directory import RUN_DIRECTORY, open_existing
from cdigen.store.snapshot import NO_FILE, take_snapshot
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.model.inventory import Accelerator, Inventory, Partition

_NO_DAEMON = "no cdigen daemon runs"


def read_daemon_inventory(run_dir: str, host: Root, *, needs_daemon: bool = True) -> HostInventory:
    """Return the inventories of HOST, with the health of each device, from the daemon's RUN_DIR.

    If no daemon runs or the inventory file is unreadable, the result has no inventories, and ``problem`` is
    the reason. The function does not raise and does not wait. If NEEDS_DAEMON is false, the result may have
    the inventories of the last daemon of this boot.
    """
    try:
        if problem := _reason_not_running(run_dir) if needs_daemon else _reason_foreign(run_dir):
            return HostInventory(problem=problem)
        with open_existing(os.path.abspath(run_dir), what=RUN_DIRECTORY) as folder:
            present = (
                NO_FILE if folder is None else take_snapshot(folder, INVENTORY_FILE, limit=MAX_INVENTORY)
            )
    except CdigenError as error:
        return HostInventory(problem=error.message)
    if present.content is None and present != NO_FILE:
        return HostInventory(problem=f"{shown(run_dir)}/{INVENTORY_FILE} is {present.description}")
    return parse_inventory(present.content, running_drivers=running_drivers(host.outer))


def _reason_not_running(run_dir: str) -> str:
    """Return the reason why no daemon of root or this user runs with RUN_DIR, or "" if a daemon runs."""
    if problem := _reason_foreign(run_dir):
        return problem
    try:
        found = read_status(run_dir, {})
    except ValueError as error:
        return f"the daemon's status cannot be read: {error}"
    if found is None:
        return _NO_DAEMON
    problem = reason_not_running(run_dir, found)
    return f"{_NO_DAEMON}: {problem}" if problem else ""


def _reason_foreign(run_dir: str) -> str:
    owner = foreign_owner(run_dir)
    if owner is None:
        return ""
    return f"{shown(run_dir)}: status ignored, because it belongs to uid {owner}, not to root"


def with_health(inventories: Mapping[str, Inventory], known: HostInventory) -> dict[str, Inventory]:
    """Return INVENTORIES. Devices that are also in KNOWN have the health and causes from KNOWN."""
    return {name: _annotated(inventory, known.of(name)[0]) for name, inventory in inventories.items()}


def _annotated(inventory: Inventory, known: Inventory | None) -> Inventory:
    if known is None:
        return inventory
    before = {gpu.address: gpu for gpu in known.accelerators if gpu.address}
    accelerators = tuple(_gpu_with_health(gpu, before.get(gpu.address)) for gpu in inventory.accelerators)
    return replace(inventory, accelerators=accelerators)


def _gpu_with_health(gpu: Accelerator, known: Accelerator | None) -> Accelerator:
    # An unknown UUID matches any device. A different UUID or model means a different device.
    if known is None or not _agree(gpu.uuid, known.uuid) or gpu.device_id != known.device_id:
        return gpu
    before = {part.instance: part for part in known.partitions}
    partitions = tuple(_part_with_health(part, before.get(part.instance)) for part in gpu.partitions)
    return replace(gpu, health=known.health, causes=known.causes, partitions=partitions)


def _part_with_health(part: Partition, known: Partition | None) -> Partition:
    if known is None or not _agree(part.uuid, known.uuid):
        return part
    return replace(part, health=known.health, causes=known.causes)


def _agree(uuid: str | None, other: str | None) -> bool:
    return uuid is None or other is None or uuid == other
