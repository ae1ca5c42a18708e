"""Withdraw specs of ours whose devices are gone, and judge those that stay."""

from __future__ import annotations

import os

from cdigen.cdi.rules.hostcheck import check_host
from cdigen.host.root import shown
from cdigen.model.errors import SpecError, StoreError
from cdigen.model.findings import Finding
from cdigen.model.names import spec_file_name
from cdigen.pipeline.publish import PublishOutcome, read_spec, refused_outcome
from cdigen.pipeline.volume_links import leave
from cdigen.store import specs
from cdigen.value import frozen
from cdigen.vendors.registry import cdi_vendor, prefixes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.host.root import Root
    from cdigen.model.errors import HostError
    from cdigen.pipeline.publish import Result
    from cdigen.store.state import OwnedSpec

NOT_OFFERED = "this host has no device of that kind now, or the configuration offers none"


@frozen
class StaleSpec:
    """A spec file of ours whose kind this host does not offer now, and the reason."""

    name: str
    kind: str
    reason: str


def stale_specs(
    recorded: tuple[OwnedSpec, ...],
    *,
    vendors: Iterable[str],
    failures: Mapping[str, HostError],
    offered: tuple[str, ...],
    wanted: tuple[str, ...],
) -> tuple[StaleSpec, ...]:
    """Return which of our spec files in RECORDED are of VENDORS and of no OFFERED kind.

    FAILURES say which vendors have nothing at all; for such a vendor without a recorded spec the file of its
    GPUs is returned, so that its absence is reported. WANTED, if not empty, limits the kinds.
    """
    found: list[StaleSpec] = []
    for vendor in vendors:
        reason = failures[vendor].message if vendor in failures else NOT_OFFERED
        files = [
            (owned.name, owned.kind)
            for owned in recorded
            if owned.kind.startswith(prefixes((vendor,))) and owned.kind not in offered
        ]
        if vendor in failures and not files:
            gpus = f"{cdi_vendor(vendor)}/gpu"
            files = [(spec_file_name(gpus), gpus)]
        found += [
            StaleSpec(name=name, kind=kind, reason=reason)
            for name, kind in files
            if not wanted or kind in wanted
        ]
    return tuple(found)


def withdraw_spec(
    spec: StaleSpec, directory: str, state_dir: str, *, dry_run: bool = False
) -> PublishOutcome:
    """Remove SPEC from DIRECTORY; refused if its file was changed since cdigen wrote it.

    With DRY_RUN the outcome says what would happen.
    """
    file = os.path.join(directory, spec.name)
    try:
        removal = specs.withdraw(directory, spec.name, state_dir=state_dir, dry_run=dry_run)
    except StoreError as error:
        return refused_outcome(spec.kind, file, error)
    if removal == "foreign":
        changed = SpecError(
            f"{shown(file)} is not as cdigen wrote it, so it stays, although {spec.reason}",
            hint="see whether it is still needed, and remove it",
            kind="foreign-file",
        )
        return refused_outcome(spec.kind, file, changed)
    result: Result = "withdrawn" if removal == "removed" else "absent"
    # Whoever removed the spec, or was killed after it, has left the volume.
    found = () if dry_run else leave(spec.kind, state_dir)
    return PublishOutcome(kind=spec.kind, file=file, result=result, findings=found, reason=spec.reason)


def check_old_specs(
    directory: str, state_dir: str, host: Root, *, vendors: Iterable[str]
) -> tuple[Finding, ...]:
    """Return for each of our specs of VENDORS in DIRECTORY whether HOST still has the paths it names."""
    recorded, findings = specs.recorded(directory, state_dir=state_dir)
    begins = prefixes(vendors)
    judged = [
        _check_old_spec(os.path.join(directory, owned.name), host)
        for owned in recorded
        if owned.kind.startswith(begins)
    ]
    return (*findings, *(finding for finding in judged if finding is not None))


def _check_old_spec(file: str, host: Root) -> Finding | None:
    document = read_spec(file)
    if document is None:
        return None
    missing = check_host(document, host)
    if not missing:
        return Finding(
            severity="info",
            rule="old-spec-holds",
            path=file,
            message=f"{shown(file)} stays: everything that it names still exists",
        )
    return Finding(
        severity="warning",
        rule="old-spec-broken",
        path=file,
        message=f"{shown(file)} stays, but {len(missing)} of the things that it names are gone "
        f"({missing[0].message}): containers that ask for it will not start",
        hint="fix the host, or remove the spec with --withdraw",
    )


def unmasking_finding(kind: str, file: str, foreign: str) -> Finding:
    """Return why the outdated FILE stays: without it, FOREIGN would serve KIND."""
    return Finding(
        severity="error",
        rule="withdrawal-unmasks",
        path=file,
        message=f"{file} is outdated, but without it runtimes would take {kind} from {foreign}, "
        "which cdigen did not write; it stays",
        hint=f"remove {foreign}, or move it out of the spec directory",
    )
