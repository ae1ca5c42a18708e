"""``SpecUpdates``: writes, keeps or withdraws the specs on the disk in one cycle, and reports each spec."""

from __future__ import annotations

import os

from cdigen.cdi.compare import compare
from cdigen.cdi.rules.hostcheck import check_host
from cdigen.cdi.schema import check_in_child
from cdigen.daemon.cycle.report import SpecReport
from cdigen.host.root import Root
from cdigen.model.errors import WithheldError
from cdigen.model.findings import finding_of
from cdigen.model.names import spec_file_name
from cdigen.pipeline import generate, publish, withdraw
from cdigen.store import specs
from cdigen.store.views.pruning import prune_after_boot
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cdigen.daemon.cycle.observation import Observation
    from cdigen.daemon.cycle.states import SpecCondition
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.model.errors import CdigenError, HostError
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory
    from cdigen.runtimes.spec_cache import SpecCache
    from cdigen.store.records.owned_specs import OwnedSpec


class SpecUpdates:
    """The updates of cdigen's specs in one cycle.

    The results are ``reports``, ``findings`` and ``errors``. Each error is a single line. ``versions`` maps
    each spec file on the disk to its cdiVersion, or to "" if its kind has a separate target. ``names`` are
    the names of all devices in these files.
    """

    def __init__(self, setup: DaemonSetup, host: Root, observed: Observation, cache: SpecCache) -> None:
        self._setup = setup
        self._host = host
        self._observed = observed
        self._cache = cache
        self._recorded, findings = specs.recorded(setup.directories[-1], state_dir=setup.state_dir)
        self.reports: list[SpecReport] = []
        self.findings: list[Finding] = [*findings]
        self.errors: list[str] = []
        self.versions: dict[str, str] = {}
        self.names: list[str] = []

    def condition(self, vendor: str) -> SpecCondition:
        """Return the condition of VENDOR's specs on the disk.

        ``none`` means that no spec exists. ``whole`` means that the specs name only existing files and
        devices, and belong to the running driver if a driver runs. Otherwise the condition is ``broken``.
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
        """Write the specs of INVENTORIES; withdraw kinds that are not offered or lack a device node."""
        setup = self._setup
        if not inventories:
            return
        # Root caches folders and links. A new Root reads the present state of the host.
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
            if outcome.result in {"written", "unchanged"}:
                self._count(product.kind, outcome.file, product.document)
        for kind, error in broken.items():
            self._report(publish.refused_outcome(kind, self._file(spec_file_name(kind)), error), None, None)
        withheld = {kind for kind, error in broken.items() if isinstance(error, WithheldError)}
        offered = {product.kind for product in products} | set(broken)
        defective = generate.defective_vendors(broken, inventories)
        for vendor in inventories:
            if vendor in defective:
                self.keep(vendor, defective[vendor].message)
                continue
            not_offered = [owned for owned in self._owned(vendor) if owned.kind not in offered]
            self._withdraw(not_offered, withdraw.NOT_OFFERED)
            lacking = [owned for owned in self._owned(vendor) if owned.kind in withheld]
            self._withdraw(lacking, withdraw.LACKS_NODE)

    def keep(self, vendor: str, why: str) -> None:
        """Keep the specs of VENDOR unchanged; WHY is the reported reason."""
        for owned in self._owned(vendor):
            self._report_kept(owned.kind, self._file(owned.name), why)

    def withdraw(self, vendor: str, why: str) -> None:
        """Remove cdigen's specs of VENDOR; WHY is the reported reason."""
        self._withdraw(self._owned(vendor), why)

    def _withdraw(self, stale: Iterable[OwnedSpec], why: str) -> None:
        """Remove each of the specs STALE, unless the configuration keeps stale specs.

        A spec also stays if runtimes would then use a foreign spec of the same kind in a directory of lower
        priority, which may be outdated as well. An error reports this reason.
        """
        for owned in stale:
            kind, file = owned.kind, self._file(owned.name)
            if not os.path.lexists(file):
                continue
            # The file in a directory of lower priority that would serve the kind after the removal.
            foreign = publish.serving_file(kind, self._setup.directories[:-1], self._cache)
            keeps_stale = self._setup.daemon.stale_specs == "keep"
            if keeps_stale or foreign:
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
        """Return cdigen's specs of VENDOR whose kinds this daemon maintains."""
        begins, kinds = registry.prefixes((vendor,)), self._setup.options.kinds
        return [
            owned
            for owned in self._recorded
            if owned.kind.startswith(begins) and (not kinds or owned.kind in kinds)
        ]

    def _file(self, name: str) -> str:
        return os.path.join(self._setup.directories[-1], name)

    def _left_out(self, kind: str) -> int:
        vendor = registry.vendor_of(kind, self._setup.vendors)
        return self._observed.left_out(vendor, kind.partition("/")[2])

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
            self._count(kind, file, document)

    def _count(self, kind: str, file: str, document: Mapping[str, Any]) -> None:
        self.names.extend(f"{kind}={device['name']}" for device in document["devices"])
        own = (device_class for device_class, _ in self._setup.options.class_targets)
        self.versions[file] = "" if kind.partition("/")[2] in own else document["cdiVersion"]

    def _report(self, outcome: publish.PublishOutcome, before: object, after: object) -> None:
        error = outcome.error
        if error is not None:
            # The status of the vendor already contains the reason of a withheld spec.
            if not isinstance(error, WithheldError):
                self.errors.append(error_line(error))
            self.findings.append(finding_of(error, outcome.file))
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
    """Return ERROR and its hint in a single line."""
    return f"{error.message}; {error.hint}" if error.hint else error.message


def _modified(file: str) -> float | None:
    try:
        return os.stat(file).st_mtime
    except OSError:
        return None
