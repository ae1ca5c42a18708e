"""``Reconciler``: runs a cycle, which observes the host, updates the specs and reports.

Each cycle reads the host again, so a lost event only delays an update. Between cycles, ``SettleTimer`` keeps
the reasons to wait for a changing host.
"""

from __future__ import annotations

import time

from cdigen.daemon.cycle.observation import observe
from cdigen.daemon.cycle.report import CycleReport, VendorReport
from cdigen.daemon.cycle.settle import SettleTimer
from cdigen.daemon.cycle.spec_updates import SpecUpdates, error_line
from cdigen.daemon.cycle.states import decide
from cdigen.health.annotate import without_unhealthy
from cdigen.health.tracker import HealthTracker, TrackerOptions
from cdigen.host.procfs import boot_id
from cdigen.host.root import Root
from cdigen.model.errors import CdigenError
from cdigen.model.findings import errors
from cdigen.pipeline import discovery
from cdigen.pipeline.device_names import known_devices
from cdigen.pipeline.driver import links
from cdigen.pipeline.driver.cuda import CudaVersions
from cdigen.runtimes.scan import scan, unresolved
from cdigen.runtimes.spec_cache import SpecCache
from cdigen.runtimes.unread_specs import UnreadSpecs
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.daemon.cycle.observation import Observation
    from cdigen.daemon.cycle.report import CycleResult
    from cdigen.daemon.cycle.states import VendorStatus
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.model.inventory import Inventory
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.watch.triggers import Batch


@frozen
class CycleOutcome:
    """The result of one cycle: the report, the inventories, and whether another cycle is due soon."""

    report: CycleReport
    inventories: dict[str, Inventory]
    needs_retry: bool


class Reconciler:
    """Keeps the specs of a host up to date; ``cycle`` runs one cycle."""

    def __init__(
        self, tracker: HealthTracker | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._tracker = tracker or HealthTracker()
        self._number = 0
        self._settle_timer = SettleTimer(clock)
        self._spec_cache = SpecCache()
        self._cuda = CudaVersions(clock)
        self._unread_specs = UnreadSpecs(clock)

    def cycle(self, setup: DaemonSetup, batch: Batch) -> CycleOutcome:
        """Run a cycle for the events of BATCH. A CdigenError is reported, never raised."""
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
        """Run a cycle; return its outcome, with BLANK as the base of the report."""
        host = Root(setup.outer)
        found = observe(setup, host)
        found = replace(found, inventories=self._cuda.known(found.inventories))
        observed = self._with_health(found, setup, host)
        # The daemon waits for a changing host to settle. It does not wait for a device to become healthy.
        assessed = found if setup.health.unhealthy_in_spec else observed
        updates = SpecUpdates(setup, host, observed, self._spec_cache)
        statuses: dict[str, VendorStatus] = {}
        writing: dict[str, Inventory] = {}
        for vendor in setup.vendors:
            condition = updates.condition(vendor)
            status = statuses[vendor] = self._settle_timer.assess(
                assessed, host, vendor, settle_timeout_s=setup.daemon.settle_timeout_s
            )
            match decide(status, condition):
                case "write":
                    writing[vendor] = observed.inventories[vendor]
                case "keep":
                    updates.keep(vendor, status.reason)
                case "withdraw":
                    updates.withdraw(vendor, status.reason)
        updates.write(writing)
        # The releases of runtimes, the links between GPUs and the CUDA version are read after the specs are
        # written. The specs do not need these facts, and reading the facts may take seconds.
        unread = self._unread_specs.findings(host, updates.versions, setup.targets)
        scanned = scan(setup.directories, cache=self._spec_cache)
        obstacles = (*unresolved(scanned, updates.names), *errors(unread))
        found_before = (*obstacles, *observed.all_findings(), *updates.findings, *unread)
        linked, unread_links = links.refresh_links(
            found.inventories, lambda: setup.context(host), setup.state_dir
        )
        with_cuda, failures = self._cuda.refreshed(linked, lambda: setup.context(host))
        inventories = self._tracker.with_links(with_cuda)
        self._settle_timer.remember(statuses, assessed.inventories)
        awaits_change = any(status.awaits_change for status in statuses.values())
        result = _result(updates, awaits_change=awaits_change)
        healths = [device.health for device in _spec_devices(inventories, setup)]
        report = replace(
            blank,
            result=result,
            vendors=tuple(
                VendorReport(vendor=name, state=status.state, reason=status.reason, hint=status.hint)
                for name, status in statuses.items()
                if name in observed.reported
            ),
            specs=tuple(updates.reports),
            devices=len(healths),
            unhealthy=healths.count("unhealthy"),
            is_bare=discovery.is_bare(found.inventories, found.failures, host),
            findings=tuple(dict.fromkeys((*found_before, *unread_links, *failures))),
            obstacles=obstacles,
            error=updates.errors[0] if updates.errors else "",
        )
        return CycleOutcome(
            report=report,
            inventories=inventories_for_spec(inventories, unhealthy_in_spec=setup.health.unhealthy_in_spec),
            needs_retry=awaits_change or result == "failed",
        )

    def _with_health(self, found: Observation, setup: DaemonSetup, host: Root) -> Observation:
        options = TrackerOptions(
            state_dir=setup.state_dir,
            boot=boot_id(host),
            clear_after_s=setup.health.clear_after_minutes * 60,
            ignored=setup.health.ignore,
            vendors=setup.vendors,
        )
        inventories = self._tracker.observe(
            found.inventories, lambda: setup.context(Root(setup.outer)), options
        )
        return replace(
            found,
            inventories=inventories_for_spec(inventories, unhealthy_in_spec=setup.health.unhealthy_in_spec),
            findings=(*found.findings, *self._tracker.findings()),
        )


def inventories_for_spec(
    inventories: dict[str, Inventory], *, unhealthy_in_spec: bool
) -> dict[str, Inventory]:
    """Return INVENTORIES. If UNHEALTHY_IN_SPEC is false, the result has no unhealthy devices."""
    return inventories if unhealthy_in_spec else without_unhealthy(inventories)


def _spec_devices(inventories: dict[str, Inventory], setup: DaemonSetup) -> Iterator[KnownDevice]:
    """Yield the devices of INVENTORIES for specs, healthy or not. A split GPU yields its partitions."""
    kinds = setup.options.kinds
    for device in known_devices(inventories, setup.options.profiles):
        if device.is_offered and (not kinds or device.name.partition("=")[0] in kinds):
            yield device


def _result(updates: SpecUpdates, *, awaits_change: bool) -> CycleResult:
    if updates.errors:
        return "failed"
    if any(spec.result in {"written", "withdrawn"} for spec in updates.reports):
        return "changed"
    return "waiting" if awaits_change else "unchanged"
