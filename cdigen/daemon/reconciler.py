"""One cycle of the daemon: look at every vendor, decide, write or withdraw, and report it all.

``Reconciler`` is the central name; it remembers between cycles only how long a vendor has been between two
states, and what was found last. All else is read anew: a lost event costs time, never truth.
"""

from __future__ import annotations

import os
import time

from cdigen.cdi.compare import compare
from cdigen.cdi.rules.hostcheck import check_host
from cdigen.cdi.schema import check_in_child
from cdigen.daemon.packages import PACKAGE_MANAGERS, package_manager
from cdigen.daemon.report import CycleReport, SpecReport, VendorReport
from cdigen.daemon.states import WITHDRAWALS, assess, decide
from cdigen.host.root import Root
from cdigen.model.errors import CdigenError, ConfigError, HostError
from cdigen.model.findings import Finding
from cdigen.model.names import spec_file_name
from cdigen.pipeline import device_nodes, discovery, generate, publish, withdraw
from cdigen.runtimes.spec_cache import SpecCache
from cdigen.store import specs
from cdigen.store.views.pruning import prune_after_boot
from cdigen.value import frozen
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cdigen.config import DaemonConfig
    from cdigen.daemon.report import CycleResult
    from cdigen.daemon.states import SpecCondition, VendorStatus
    from cdigen.model.inventory import Inventory
    from cdigen.pipeline.delivery import DeliveryOptions
    from cdigen.pipeline.generate import GenerateOptions
    from cdigen.store.state import OwnedSpec
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.watch.triggers import Batch

# A driver's kernel module is built while its package is installed, which takes minutes.
PACKAGE_INSTALLATION_S = 900.0


@frozen
class DaemonSetup:
    """What configuration and command line say; ``outer`` is where the host's root lies on this machine.

    ``roots`` are the driver and dev root, which may come and go;
    ``directories`` are the spec directories, written into the last; ``view_directories`` all in which a
    spec may name a view. Both, and ``state_dir``, are paths of this machine. ``are_named`` says whether
    somebody named the ``vendors``, or all are asked: then of those that are not here nothing is told.
    """

    outer: str
    vendors: tuple[str, ...]
    context: Callable[[Root], DiscoveryContext]
    roots: tuple[str, ...]
    options: GenerateOptions
    delivery: DeliveryOptions
    directories: tuple[str, ...]
    view_directories: tuple[str, ...]
    state_dir: str
    create_nodes: bool
    daemon: DaemonConfig
    are_named: bool = True


@frozen
class CycleOutcome:
    """What came of one cycle: the report, the inventories, and whether another look is due soon."""

    report: CycleReport
    inventories: dict[str, Inventory]
    needs_retry: bool


class Reconciler:
    """Keeps the specs true, cycle by cycle."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._number = 0
        # vendor -> what of it is expected to change (_awaited), and since when, by the clock
        self._since: dict[str, tuple[object, float]] = {}
        # vendor -> what was found at first, or when it was last not between two states; None: nothing
        self._settled: dict[str, Inventory | None] = {}
        self._spec_cache = SpecCache()

    def cycle(self, setup: DaemonSetup, batch: Batch) -> CycleOutcome:
        """Run a cycle for the events of BATCH; never raises a CdigenError: the report has it."""
        self._number += 1
        started_s, begun = self._wall(), self._clock()
        work = _ReconcileRun(setup, self._is_patient, self._settled, self._spec_cache)
        try:
            work.run()
            result, error = work.result(), ""
        except CdigenError as problem:
            result, error = "failed", _line(problem)
        if not error:
            self._note(work.standings, work.inventories)
        report = CycleReport(
            number=self._number,
            reasons=batch.triggers,
            started_s=started_s,
            duration_s=self._clock() - begun,
            result=result,
            events=batch.events,
            vendors=() if error else work.vendor_reports(),
            specs=() if error else tuple(work.specs),
            findings=() if error else work.findings(),
            error=error or work.first_error(),
        )
        return CycleOutcome(
            report=report,
            inventories={} if error else work.inventories,
            needs_retry=report.result in {"failed", "waiting"}
            or any(standing.passing for standing in work.standings.values()),
        )

    def _is_patient(self, vendor: str, awaited: object, patience_s: float) -> bool:
        """Return whether the same has been AWAITED of VENDOR for less than is to be waited."""
        what, since = self._since.get(vendor, (None, 0.0))
        return what != awaited or self._clock() - since < patience_s

    def _note(self, standings: dict[str, VendorStatus], inventories: dict[str, Inventory]) -> None:
        for vendor, standing in standings.items():
            inventory = inventories.get(vendor)
            if not standing.passing or vendor not in self._settled:
                self._settled[vendor] = inventory
            awaited = _awaited(standing.transient, inventory)
            if not standing.transient:
                self._since.pop(vendor, None)
            elif self._since.get(vendor, (None, 0.0))[0] != awaited:
                self._since[vendor] = (awaited, self._clock())


class _ReconcileRun:
    """One cycle as it goes: what was found, decided and done."""

    def __init__(
        self,
        setup: DaemonSetup,
        is_patient: Callable[[str, object, float], bool],
        settled: dict[str, Inventory | None],
        cache: SpecCache,
    ) -> None:
        self._setup = setup
        self._is_patient = is_patient
        self._settled = settled
        self._cache = cache
        self._host = Root(setup.outer)
        self._recorded: tuple[OwnedSpec, ...] = ()
        self.inventories: dict[str, Inventory] = {}
        self.standings: dict[str, VendorStatus] = {}
        self.specs: list[SpecReport] = []
        # Vendors of which there is something to tell.
        self._told: tuple[str, ...] = setup.vendors
        self._said: list[Finding] = []
        # What was asked for and could not be done, as lines.
        self._failed: list[str] = []

    def run(self) -> None:
        setup = self._setup
        failures = self._discover()
        self._recorded, said = specs.recorded(setup.directories[-1], state_dir=setup.state_dir)
        self._said.extend(said)
        writing: dict[str, Inventory] = {}
        for vendor in setup.vendors:
            disk = self._disk(vendor, failures.get(vendor))
            standing = self._judge(vendor, failures.get(vendor))
            self.standings[vendor] = standing
            action = decide(standing, disk)
            if action == "write":
                writing[vendor] = self.inventories[vendor]
            elif action == "keep":
                self._keep(vendor, standing.reason)
            elif action == "withdraw":
                self._withdraw(self._of(vendor), standing.reason)
        self._write(writing)

    # Looking.

    def _discover(self) -> dict[str, HostError]:
        setup = self._setup
        try:
            context = setup.context(self._host)
            if setup.create_nodes:
                self._said.extend(device_nodes.make_nodes(setup.vendors, context))
                context = setup.context(self._host)
        except ConfigError as error:
            # A driver container that is not there yet.
            self._told = setup.vendors if setup.are_named else setup.vendors[:1]
            return dict.fromkeys(
                setup.vendors, HostError(error.message, hint=error.hint, kind="driver-not-found")
            )
        self.inventories, failures = discovery.discover(setup.vendors, context)
        unsaved = discovery.save_partition_names(self.inventories, failures, context, setup.state_dir)
        self._said.extend(() if unsaved is None else (unsaved,))
        if setup.are_named:
            return failures
        told = discovery.relevant_failures(self.inventories, failures, self._host)
        self._told = tuple(name for name in setup.vendors if name in self.inventories or name in told)
        # What is not told is absent: nothing of it is under way that would have to be waited for.
        absent = {
            name: HostError(error.message, hint=error.hint, kind=discovery.NOT_LOADED)
            for name, error in failures.items()
        }
        return {**absent, **told}

    def _judge(self, vendor: str, failure: HostError | None) -> VendorStatus:
        inventory = self.inventories.get(vendor)
        settle_timeout_s = self._setup.daemon.settle_timeout_s
        manager = package_manager(self._host)
        if manager and failure is not None:
            # What an installation has half done is no mismatch, and no reason to withdraw what is whole.
            settle_timeout_s = max(settle_timeout_s, PACKAGE_INSTALLATION_S)
        busy = ""
        if manager and inventory is not None:
            busy = manager if inventory != self._settled.get(vendor, inventory) else ""
        return assess(
            failure,
            inventory.findings if inventory is not None else (),
            patient=lambda transient: self._is_patient(
                vendor, _awaited(transient, inventory), settle_timeout_s
            ),
            busy=busy,
        )

    def _of(self, vendor: str) -> list[OwnedSpec]:
        """Return our specs of VENDOR, as far as this daemon was asked for their kinds."""
        prefix, kinds = f"{registry.cdi_vendor(vendor)}/", self._setup.options.kinds
        return [
            owned
            for owned in self._recorded
            if owned.kind.startswith(prefix) and (not kinds or owned.kind in kinds)
        ]

    def _disk(self, vendor: str, failure: HostError | None) -> SpecCondition:
        """Return in which condition the specs of VENDOR on the disk are; ``none``: there are none.

        ``whole``: they name only what exists, of the driver that runs if one does.
        """
        present = [owned for owned in self._of(vendor) if os.path.lexists(self._file(owned.name))]
        if not present:
            return "none"
        running = failure.driver if failure is not None else ""
        for owned in present:
            document = publish.read_spec(self._file(owned.name))
            if document is None or check_host(document, self._host):
                return "broken"
            if running and owned.driver and owned.driver != running:
                return "broken"
        return "whole"

    # Doing.

    def _write(self, inventories: dict[str, Inventory]) -> None:
        setup = self._setup
        if not inventories:
            return
        products, broken = generate.generate_specs(
            inventories, host=self._host, options=setup.options, delivery=setup.delivery
        )
        products = publish.with_mount_conflicts(products, setup.directories, self._host, self._cache)
        if os.path.isdir(f"{setup.state_dir}/views"):
            prune_after_boot(setup.state_dir, spec_dirs=setup.view_directories)
        for product in products:
            before = publish.read_spec(self._file(spec_file_name(product.kind)))
            outcome = publish.publish_spec(
                product,
                setup.directories,
                setup.state_dir,
                cache=self._cache,
                check_schema=None if before == product.document else check_in_child,
            )
            self._tell(outcome, before, product.document)
        for kind, error in broken.items():
            self._tell(publish.refused_outcome(kind, self._file(spec_file_name(kind)), error), None, None)
        offered = {product.kind for product in products} | set(broken)
        defective = generate.defective_vendors(broken, inventories)
        for vendor in inventories:
            if vendor in defective:
                self._keep(vendor, defective[vendor].message)
                continue
            lost = [owned for owned in self._of(vendor) if owned.kind not in offered]
            self._withdraw(lost, withdraw.NOT_OFFERED)

    def _keep(self, vendor: str, why: str) -> None:
        for owned in self._of(vendor):
            self._report_kept(owned.kind, self._file(owned.name), why)

    def _report_kept(self, kind: str, file: str, why: str) -> None:
        document = publish.read_spec(file)
        if document is not None:
            served = len(document["devices"])
            self.specs.append(
                SpecReport(
                    kind=kind,
                    file=file,
                    result="kept",
                    reason=why,
                    served=served,
                    left_out=self._left_out(kind),
                    written_s=_modified(file),
                )
            )

    def _withdraw(self, specs: Iterable[OwnedSpec], why: str) -> None:
        """Remove our SPECS, unless another's of the same kind would come to light."""
        for owned in specs:
            kind, file = owned.kind, self._file(owned.name)
            if not os.path.lexists(file):
                continue
            wishes_to_keep, foreign = self._setup.daemon.stale_specs == "keep", self._unmasked(kind)
            if WITHDRAWALS[wishes_to_keep, bool(foreign)] == "keep":
                if foreign and not wishes_to_keep:
                    self._said.append(withdraw.unmasking_finding(kind, file, foreign))
                    self._failed.append(self._said[-1].line())
                self._report_kept(kind, file, why)
                continue
            gone = withdraw.StaleSpec(name=owned.name, kind=kind, reason=why)
            before = publish.read_spec(file)
            self._tell(
                withdraw.withdraw_spec(gone, self._setup.directories[-1], self._setup.state_dir), before, None
            )

    def _unmasked(self, kind: str) -> str:
        """Return the file of a lower directory that would serve KIND without ours; empty: there is none."""
        return publish.serving_file(kind, self._setup.directories[:-1], self._cache)

    def _file(self, name: str) -> str:
        return os.path.join(self._setup.directories[-1], name)

    # Telling.

    def _tell(self, outcome: publish.PublishOutcome, before: object, after: object) -> None:
        changed = outcome.result in {"written", "withdrawn"}
        if outcome.error is not None:
            self._failed.append(_line(outcome.error))
            self._said.append(
                Finding(
                    severity="error",
                    rule=outcome.error.kind,
                    path=outcome.file,
                    message=outcome.error.message,
                    hint=outcome.error.hint,
                )
            )
        self._said.extend(outcome.findings)
        self.specs.append(
            SpecReport(
                kind=outcome.kind,
                file=outcome.file,
                result=outcome.result,
                reason=outcome.error.message if outcome.error is not None else outcome.reason,
                served=outcome.devices,
                left_out=self._left_out(outcome.kind),
                written_s=_modified(outcome.file),
                changes=compare(before, after) if changed else None,
            )
        )

    def _left_out(self, kind: str) -> int:
        inventory = self.inventories.get(registry.vendor_of(kind, self._setup.vendors))
        return sum(not gpu.usable for gpu in inventory.accelerators) if inventory is not None else 0

    def vendor_reports(self) -> tuple[VendorReport, ...]:
        return tuple(
            VendorReport(vendor=name, state=one.state, reason=one.reason, hint=one.hint)
            for name, one in self.standings.items()
            if name in self._told
        )

    def findings(self) -> tuple[Finding, ...]:
        hosts = (finding for inventory in self.inventories.values() for finding in inventory.findings)
        return tuple(dict.fromkeys((*hosts, *self._said)))

    def first_error(self) -> str:
        return self._failed[0] if self._failed else ""

    def result(self) -> CycleResult:
        if self._failed:
            return "failed"
        if any(spec.result in {"written", "withdrawn"} for spec in self.specs):
            return "changed"
        return "waiting" if any(one.passing for one in self.standings.values()) else "unchanged"


def _awaited(transient: str, inventory: Inventory | None) -> object:
    """Return what of a vendor is waited for: of a package manager, its end, or that it changes no more."""
    return (transient, inventory if transient in PACKAGE_MANAGERS else None)


def _modified(file: str) -> float | None:
    try:
        return os.stat(file).st_mtime
    except OSError:
        return None


def _line(error: CdigenError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message
