"""``cdigen health``: which devices can be used, and why others cannot, as the daemon knows it."""

from __future__ import annotations

import sys
import time

from cdigen.cli import health_marks, options, report
from cdigen.cli.daemon_files import daemon_inventory, device_row, devices_of, running_status
from cdigen.host.root import shown
from cdigen.model.ages import ago
from cdigen.model.errors import HostError, StoreError
from cdigen.runtimes.daemon_service import service_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.pipeline.device_names import KnownDevice

EXAMPLES = """\
  cdigen health                        each device, and what is wrong with it
  cdigen health --json                 the same for programs; exit 3 where no daemon runs
  cdigen health --mark nvidia.com/gpu=3 --reason "fails our burn-in, ticket 4711"
                                       keep work from a device until somebody clears it
  cdigen health --clear nvidia.com/gpu=3
                                       take that back, and say that what happened to it is over: a
                                       reset with NVIDIA's drivers before 530 is seen by nothing
"""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    group = parser.add_argument_group("a person's word")
    group.add_argument(
        "--mark",
        metavar="DEVICE",
        type=options.not_empty,
        help="mark a device as unhealthy, until --clear: by its CDI name, number, UUID or PCI address",
    )
    group.add_argument(
        "--reason", metavar="TEXT", help="with --mark: why, in one line of 200 characters at most"
    )
    group.add_argument(
        "--clear",
        metavar="DEVICE",
        type=options.not_empty,
        help="remove the mark from a device, and end the causes that events are (Xids, resets, PCIe errors);"
        " one that the daemon still sees stays",
    )
    options.add_root_options(parser)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    health_marks.require_sense(arguments)
    host, settings, wrong = options.host_and_usable_settings(arguments)
    report.print_findings(wrong, arguments)
    is_running = True
    try:
        devices = known(host, settings, arguments)
    except HostError:
        # What is cleared now counts when a daemon runs again.
        is_running, devices = False, _last_known(host, settings)
        if arguments.clear is None or not devices:
            raise
    if arguments.mark is not None or arguments.clear is not None:
        return health_marks.change(arguments, host, settings, devices, is_running=is_running)
    if arguments.json:
        report.print_json([device_row(device) for device in devices])
    elif devices:
        report.write(sys.stdout, table(devices, time.time()))
    if not devices:
        report.print_note("no device is known whose health could be: see 'cdigen status'", arguments)
    return 0


def known(host: Root, settings: Settings, arguments: Namespace) -> tuple[KnownDevice, ...]:
    """Return the devices that the daemon of HOST knows. HostError: none runs; StoreError: unreadable."""
    running_status(options.outer_directory(host, settings.daemon.run_dir), service_of(host))
    inventory = daemon_inventory(host, settings)
    if inventory.problem:
        raise StoreError(inventory.problem, hint="'cdigen status' says how the daemon stands")
    for vendor, problem in inventory.stale.items():
        report.print_note(f"{shown(vendor)}: {problem}", arguments)
    return devices_of(inventory, settings)


def _last_known(host: Root, settings: Settings) -> tuple[KnownDevice, ...]:
    return devices_of(daemon_inventory(host, settings, needs_daemon=False), settings)


def table(devices: Iterable[KnownDevice], now_s: float) -> str:
    """Return DEVICES as text, a row for each cause, as of NOW_S."""
    header = ("DEVICE", "MODEL", "HEALTH", "CAUSE", "FOR", "WHAT WAS SEEN", "WHAT ENDS IT")
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
