"""Cycles of the daemon on a host, within the test's process: `Looker`, `looked`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cdigen.cli import run as command
from cdigen.daemon.reconciler import CycleOutcome, Reconciler
from cdigen.watch.triggers import NO_EVENTS

if TYPE_CHECKING:
    from support.daemon.host import Host

    from cdigen.daemon.setup import DaemonSetup


class Looker:
    """The cycles of a daemon, one by one, by a clock that the test moves."""

    def __init__(self, host: Host, *options: str) -> None:
        self.host = host
        self.now_s = 1000.0
        self._options = options
        self._keeper = Reconciler(clock=lambda: self.now_s)

    def setup(self) -> DaemonSetup:
        parser = argparse.ArgumentParser()
        command.add_options(parser)
        return command.setup(parser.parse_args(["--root", str(self.host.root), *self._options]))

    def look(self, after_s: float = 0.0) -> CycleOutcome:
        """Let time pass, and run a cycle."""
        self.now_s += after_s
        return self._keeper.cycle(self.setup(), NO_EVENTS)

    def state(self, after_s: float = 0.0) -> str:
        """Run a cycle and return the state that it found; no look may end in an error."""
        report = self.look(after_s).report
        assert report.error == "", report.error
        (vendor,) = report.vendors
        return vendor.state


def looked(host: Host, *options: str) -> Looker:
    """Return a looker that has written the spec."""
    looker = Looker(host, *options)
    assert looker.state() == "ready"
    assert host.spec.exists()
    return looker
