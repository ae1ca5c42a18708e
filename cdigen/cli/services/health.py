"""The command ``cdigen health``: the health of devices in the daemon's inventory, and marks on devices."""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from cdigen.cli.services import health_marks
from cdigen.cli.shared import options, report
from cdigen.cli.shared.daemon_files import device_row, devices_of, running_directory, running_status
from cdigen.cli.shared.option_table import add
from cdigen.health.annotate import with_marks
from cdigen.health.marks import read_marks
from cdigen.host.root import shown
from cdigen.model.errors import HostError, StoreError
from cdigen.model.times.ages import ago
from cdigen.service.daemon_inventory import read_daemon_inventory
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.pipeline.device_names import KnownDevice

EXAMPLES = """\
  cdigen health                        show each device and its causes
  cdigen health --json                 the same as JSON; exit code 3 if no daemon runs
  cdigen health --mark nvidia.com/gpu=3 --reason "fails our burn-in, ticket 4711"
                                       mark a device as unhealthy until --clear
  cdigen health --clear nvidia.com/gpu=3
                                       remove the mark and clear past events, for example after a
                                       reset, which NVIDIA's drivers before 530 do not report
"""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    add(parser.add_argument_group("marks"), "--mark", "--reason", "--clear")
    options.add_root_options(parser)
    add(parser, "--run-dir")


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    health_marks.check_options(arguments)
    host, settings, wrong = options.host_and_usable_settings(arguments)
    report.print_findings(wrong, arguments)
    is_running = True
    try:
        devices = read_devices(host, settings, arguments)
    except HostError:
        # The daemon applies --clear at its next start.
        last = read_daemon_inventory(_run_dir(arguments, host, settings), host, needs_daemon=False)
        is_running, devices = False, devices_of(last, settings)
        if arguments.clear is None or not devices:
            raise
    if arguments.mark is not None or arguments.clear is not None:
        return health_marks.change(arguments, host, settings, devices, is_running=is_running)
    if arguments.json:
        report.print_json([device_row(device) for device in devices])
    elif devices:
        report.write(sys.stdout, table(devices, time.time()))
    if not devices:
        report.print_note("health: the daemon has found no device (see 'cdigen status')", arguments)
    return 0


def read_devices(host: Root, settings: Settings, arguments: Namespace) -> tuple[KnownDevice, ...]:
    """Return the devices in the inventory of HOST's daemon.

    The devices have the present marks, also those that the daemon has not read yet. Raises HostError if no
    daemon runs, and StoreError if the inventory cannot be read.
    """
    run_dir = _run_dir(arguments, host, settings)
    running_status(run_dir, host)
    inventory = read_daemon_inventory(run_dir, host)
    if inventory.problem:
        raise StoreError(inventory.problem, hint="run 'cdigen status', which shows the state of the daemon")
    for vendor, problem in inventory.stale.items():
        report.print_note(f"{shown(vendor)}: {problem}", arguments)
    # Without the right to read the marks, the health is that of the daemon's last cycle.
    with suppress(StoreError):
        marks, _ = read_marks(options.outer_directory(host, settings.state_dir))
        inventory = replace(inventory, vendors=with_marks(inventory.vendors, marks))
    return devices_of(inventory, settings)


def _run_dir(arguments: Namespace, host: Root, settings: Settings) -> str:
    run_dir: str | None = arguments.run_dir
    return run_dir or running_directory(host, settings)


def table(devices: Iterable[KnownDevice], now_s: float) -> str:
    """Return DEVICES as a table with one row for each cause; ages are relative to NOW_S."""
    header = ("DEVICE", "MODEL", "HEALTH", "CAUSE", "FOR", "DETAIL", "CLEARS WHEN")
    return report.table(list(_cells(devices, now_s)), header=header)


def _cells(devices: Iterable[KnownDevice], now_s: float) -> Iterator[tuple[str, ...]]:
    for device in devices:
        model = device.partition.profile if device.partition else device.accelerator.model
        first: tuple[str, str, str] = (device.name, model or "-", device.health)
        for cause in device.causes:
            yield (*first, cause.cause, ago(cause.since, now_s), cause.detail, cause.clears_when)
            first = ("", "", "")
        if not device.causes:
            yield (*first, "-", "-", "-", "-")
