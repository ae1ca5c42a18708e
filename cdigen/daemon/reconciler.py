"""``Reconciler``: in each cycle observe the host, decide by two tables, write or withdraw specs, report.

Everything except ``Patience`` is read anew in each cycle: a lost event only delays an update.
"""

from __future__ import annotations

import time

from cdigen.daemon.observation import observe
from cdigen.daemon.patience import Patience
from cdigen.daemon.report import CycleReport, VendorReport
from cdigen.daemon.spec_updates import SpecUpdates, error_line
from cdigen.daemon.states import decide
from cdigen.health.annotate import without_unhealthy
from cdigen.health.keeper import Keeper, KeeperOptions
from cdigen.host.procfs import boot_id
from cdigen.host.root import Root
from cdigen.model.errors import CdigenError
from cdigen.pipeline import discovery, links
from cdigen.pipeline.cuda import CudaVersions
from cdigen.runtimes.spec_cache import SpecCache
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.daemon.observation import Observation
    from cdigen.daemon.report import CycleResult
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.daemon.states import VendorStatus
    from cdigen.model.inventory import Inventory
    from cdigen.watch.triggers import Batch


@frozen
class CycleOutcome:
    """The result of one cycle: the report, the inventories, and whether another cycle is due soon."""

    report: CycleReport
    inventories: dict[str, Inventory]
    needs_retry: bool


class Reconciler:
    """Keeps the specs of a host up to date, cycle by cycle."""

    def __init__(self, keeper: Keeper | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._keeper = keeper or Keeper()
        self._number = 0
        self._patience = Patience(clock)
        self._spec_cache = SpecCache()
        self._cuda = CudaVersions(clock)

    def cycle(self, setup: DaemonSetup, batch: Batch) -> CycleOutcome:
        """Run a cycle for the events of BATCH; never raises a CdigenError, but reports it."""
        self._number += 1
        began_s = self._clock()
        blank = CycleReport(
            number=self._number,
            reasons=batch.triggers,
            started_s=time.time(),
            duration_s=0.0,
            result="failed",
            events=batch.events,
        )
        try:
            outcome = self._reconcile(setup, blank)
        except CdigenError as error:
            report = replace(blank, error=error_line(error))
            outcome = CycleOutcome(report=report, inventories={}, needs_retry=True)
        return replace(outcome, report=replace(outcome.report, duration_s=self._clock() - began_s))

    def _reconcile(self, setup: DaemonSetup, blank: CycleReport) -> CycleOutcome:
        """Run a cycle, and return BLANK filled with its results."""
        host = Root(setup.outer)
        found = observe(setup, host)
        found = replace(found, inventories=self._cuda.known(found.inventories))
        observed = self._with_health(found, setup, host)
        # What the host is waited for is not that a device gets well again.
        judged = found if setup.health.in_spec else observed
        updates = SpecUpdates(setup, host, observed, self._spec_cache)
        statuses: dict[str, VendorStatus] = {}
        writing: dict[str, Inventory] = {}
        for vendor in setup.vendors:
            condition = updates.condition(vendor)
            status = statuses[vendor] = self._patience.assess(
                judged, host, vendor, settle_timeout_s=setup.daemon.settle_timeout_s
            )
            match decide(status, condition):
                case "write":
                    writing[vendor] = observed.inventories[vendor]
                case "keep":
                    updates.keep(vendor, status.reason)
                case "withdraw":
                    updates.withdraw(vendor, status.reason)
        updates.write(writing)
        # After the specs, which need neither links nor CUDA: to ask for them may take seconds.
        linked = links.refreshed(found.inventories, lambda: setup.context(host), setup.state_dir)
        whole = self._cuda.refreshed(linked.inventories, lambda: setup.context(host))
        inventories = self._keeper.with_links(whole)
        self._patience.remember(statuses, judged.inventories)
        awaits_change = any(status.awaits_change for status in statuses.values())
        result = _result(updates, awaits_change=awaits_change)
        report = replace(
            blank,
            result=result,
            vendors=_vendor_reports(statuses, observed),
            specs=tuple(updates.reports),
            is_bare=discovery.is_bare(found.inventories, found.failures, host),
            findings=tuple(dict.fromkeys((*observed.all_findings(), *updates.findings, *linked.findings))),
            error=updates.errors[0] if updates.errors else "",
        )
        return CycleOutcome(
            report=report,
            inventories=as_offered(inventories, in_spec=setup.health.in_spec),
            needs_retry=awaits_change or result == "failed",
        )

    def _with_health(self, found: Observation, setup: DaemonSetup, host: Root) -> Observation:
        options = KeeperOptions(
            state_dir=setup.state_dir,
            boot=boot_id(host),
            quiet_s=setup.health.quiet_minutes * 60,
            ignored=setup.health.ignore,
        )
        inventories = self._keeper.observe(
            found.inventories, lambda: setup.context(Root(setup.outer)), options
        )
        return replace(
            found,
            inventories=as_offered(inventories, in_spec=setup.health.in_spec),
            findings=(*found.findings, *self._keeper.findings()),
        )


def as_offered(inventories: dict[str, Inventory], *, in_spec: bool) -> dict[str, Inventory]:
    """Return INVENTORIES as specs offer them: without unhealthy devices, unless these stay IN_SPEC."""
    return inventories if in_spec else without_unhealthy(inventories)


def _vendor_reports(statuses: dict[str, VendorStatus], observed: Observation) -> tuple[VendorReport, ...]:
    return tuple(
        VendorReport(vendor=name, state=status.state, reason=status.reason, hint=status.hint)
        for name, status in statuses.items()
        if name in observed.reported
    )


def _result(updates: SpecUpdates, *, awaits_change: bool) -> CycleResult:
    if updates.errors:
        return "failed"
    if any(spec.result in {"written", "withdrawn"} for spec in updates.reports):
        return "changed"
    return "waiting" if awaits_change else "unchanged"
