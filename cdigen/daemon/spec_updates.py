"""``SpecUpdates``: write, keep or withdraw the specs on the disk in one cycle, and report each."""

from __future__ import annotations

import os

from cdigen.cdi.compare import compare
from cdigen.cdi.rules.hostcheck import check_host
from cdigen.cdi.schema import check_in_child
from cdigen.daemon.report import SpecReport
from cdigen.daemon.states import WITHDRAWALS
from cdigen.host.root import Root
from cdigen.model.findings import Finding
from cdigen.model.names import spec_file_name
from cdigen.pipeline import generate, publish, withdraw
from cdigen.store import specs
from cdigen.store.views.pruning import prune_after_boot
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.daemon.observation import Observation
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.daemon.states import SpecCondition
    from cdigen.model.errors import CdigenError, HostError
    from cdigen.model.inventory import Inventory
    from cdigen.runtimes.spec_cache import SpecCache
    from cdigen.store.state import OwnedSpec


class SpecUpdates:
    """What one cycle does to our specs: ``reports`` of each, ``findings``, and ``errors``, one line each."""

    def __init__(self, setup: DaemonSetup, host: Root, observed: Observation, cache: SpecCache) -> None:
        self._setup = setup
        self._host = host
        self._observed = observed
        self._cache = cache
        self._recorded, findings = specs.recorded(setup.directories[-1], state_dir=setup.state_dir)
        self.reports: list[SpecReport] = []
        self.findings: list[Finding] = [*findings]
        self.errors: list[str] = []

    def condition(self, vendor: str) -> SpecCondition:
        """Return the condition of VENDOR's specs on the disk; ``none``: there are none.

        ``whole``: they name only what exists, and are for the running driver, if one runs.
        """
        present = [owned for owned in self._owned(vendor) if os.path.lexists(self._file(owned.name))]
        if not present:
            return "none"
        failure: HostError | None = self._observed.failures.get(vendor)
        running = failure.driver if failure is not None else ""
        for owned in present:
            document = publish.read_spec(self._file(owned.name))
            if document is None or check_host(document, self._host):
                return "broken"
            if running and owned.driver and owned.driver != running:
                return "broken"
        return "whole"

    def write(self, inventories: dict[str, Inventory]) -> None:
        """Write the specs of INVENTORIES, and withdraw those of kinds that these do not offer any more."""
        setup = self._setup
        if not inventories:
            return
        # A fresh reading of the host, not the one from before the specs: see ``Root``.
        host = Root(setup.outer)
        products, broken = generate.generate_specs(
            inventories, host=host, options=setup.options, delivery=setup.delivery
        )
        products = publish.with_mount_conflicts(products, setup.directories, host, self._cache)
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
            self._report(outcome, before, None if outcome.result == "withdrawn" else product.document)
        for kind, error in broken.items():
            self._report(publish.refused_outcome(kind, self._file(spec_file_name(kind)), error), None, None)
        offered = {product.kind for product in products} | set(broken)
        defective = generate.defective_vendors(broken, inventories)
        for vendor in inventories:
            if vendor in defective:
                self.keep(vendor, defective[vendor].message)
                continue
            not_offered = [owned for owned in self._owned(vendor) if owned.kind not in offered]
            self._withdraw(not_offered, withdraw.NOT_OFFERED)

    def keep(self, vendor: str, why: str) -> None:
        """Leave the specs of VENDOR as they are, for the reason WHY."""
        for owned in self._owned(vendor):
            self._report_kept(owned.kind, self._file(owned.name), why)

    def withdraw(self, vendor: str, why: str) -> None:
        """Remove our specs of VENDOR, for the reason WHY."""
        self._withdraw(self._owned(vendor), why)

    def _withdraw(self, stale: Iterable[OwnedSpec], why: str) -> None:
        """Remove the specs STALE, unless a foreign one of the same kind would then take effect."""
        for owned in stale:
            kind, file = owned.kind, self._file(owned.name)
            if not os.path.lexists(file):
                continue
            # The file in a directory of lower priority that would serve the kind without ours.
            foreign = publish.serving_file(kind, self._setup.directories[:-1], self._cache)
            keeps_stale = self._setup.daemon.stale_specs == "keep"
            if WITHDRAWALS[keeps_stale, bool(foreign)] == "keep":
                if foreign and not keeps_stale:
                    self.findings.append(withdraw.unmasking_finding(kind, file, foreign))
                    self.errors.append(self.findings[-1].line())
                self._report_kept(kind, file, why)
                continue
            stale_spec = withdraw.StaleSpec(name=owned.name, kind=kind, reason=why)
            before = publish.read_spec(file)
            outcome = withdraw.withdraw_spec(stale_spec, self._setup.directories[-1], self._setup.state_dir)
            self._report(outcome, before, None)

    def _owned(self, vendor: str) -> list[OwnedSpec]:
        """Return our specs of VENDOR, as far as this daemon was asked for their kinds."""
        begins, kinds = registry.prefixes((vendor,)), self._setup.options.kinds
        return [
            owned
            for owned in self._recorded
            if owned.kind.startswith(begins) and (not kinds or owned.kind in kinds)
        ]

    def _file(self, name: str) -> str:
        return os.path.join(self._setup.directories[-1], name)

    def _left_out(self, kind: str) -> int:
        return self._observed.left_out(registry.vendor_of(kind, self._setup.vendors))

    def _report_kept(self, kind: str, file: str, why: str) -> None:
        document = publish.read_spec(file)
        if document is not None:
            report = SpecReport(
                kind=kind,
                file=file,
                result="kept",
                reason=why,
                served=len(document["devices"]),
                left_out=self._left_out(kind),
                written_s=_modified(file),
            )
            self.reports.append(report)

    def _report(self, outcome: publish.PublishOutcome, before: object, after: object) -> None:
        error = outcome.error
        if error is not None:
            self.errors.append(error_line(error))
            self.findings.append(
                Finding(
                    severity="error",
                    rule=error.kind,
                    path=outcome.file,
                    message=error.message,
                    hint=error.hint,
                )
            )
        self.findings.extend(outcome.findings)
        changed = outcome.result in {"written", "withdrawn"}
        report = SpecReport(
            kind=outcome.kind,
            file=outcome.file,
            result=outcome.result,
            reason=error.message if error is not None else outcome.reason,
            served=outcome.devices,
            left_out=self._left_out(outcome.kind),
            written_s=_modified(outcome.file),
            changes=compare(before, after) if changed else None,
        )
        self.reports.append(report)


def error_line(error: CdigenError) -> str:
    """Return ERROR and its hint in one line."""
    return f"{error.message}; {error.hint}" if error.hint else error.message


def _modified(file: str) -> float | None:
    try:
        return os.stat(file).st_mtime
    except OSError:
        return None
