"""Cycles of the daemon on a host, within the test's process: `CycleRunner`, `after_first_cycle`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdigen.cli.main import command_parser
from cdigen.cli.services import run as command
from cdigen.daemon.cycle.reconciler import CycleOutcome, Reconciler
from cdigen.watch.triggers import Batch

if TYPE_CHECKING:
    from support.daemon.host import Host

    from cdigen.daemon.setup import DaemonSetup


class CycleRunner:
    """Runs the cycles of a daemon one by one, with a clock that the test sets."""

    def __init__(self, host: Host, *options: str) -> None:
        self.host = host
        self.now_s = 1000.0
        self._options = options
        self._reconciler = Reconciler(clock=lambda: self.now_s)

    def setup(self) -> DaemonSetup:
        return command.setup(
            command_parser("run").parse_args(["--root", str(self.host.root), *self._options])
        )

    def run_cycle(self, after_s: float = 0.0) -> CycleOutcome:
        """Advance the clock, and run a cycle."""
        self.now_s += after_s
        return self._reconciler.cycle(self.setup(), Batch())

    def state(self, after_s: float = 0.0) -> str:
        """Run a cycle, and return the vendor's state; the cycle must not end with an error."""
        report = self.run_cycle(after_s).report
        assert report.error == "", report.error
        (vendor,) = report.vendors
        return vendor.state


def after_first_cycle(host: Host, *options: str) -> CycleRunner:
    """Return a runner whose first cycle has written the spec."""
    cycles = CycleRunner(host, *options)
    assert cycles.state() == "ready"
    assert host.spec.exists()
    return cycles
