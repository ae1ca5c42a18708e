"""Withdraw cdigen's specs of kinds that have no devices on this host, and check the specs that stay."""

from __future__ import annotations

import os

from cdigen.cdi.rules.hostcheck import check_host
from cdigen.host.root import shown
from cdigen.model.errors import SpecError, StoreError, WithheldError
from cdigen.model.findings import Finding
from cdigen.model.names import spec_file_name
from cdigen.pipeline.publish import PublishOutcome, read_spec, refused_outcome, remove_volume, serving_file
from cdigen.store import specs
from cdigen.value import frozen
from cdigen.vendors.registry import cdi_vendor, prefixes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.host.root import Root
    from cdigen.model.errors import HostError
    from cdigen.pipeline.publish import Result
    from cdigen.store.records.owned_specs import OwnedSpec

NOT_OFFERED = "this host has no device of that kind now, or no profile has this kind"
LACKS_NODE = "this host lacks a device node that containers need"


@frozen
class StaleSpec:
    """A spec file of cdigen whose kind has no devices on this host, with the reason.

    ``is_recorded``: the state file records that cdigen wrote the file.
    """

    name: str
    kind: str
    reason: str
    is_recorded: bool = True


def stale_specs(
    recorded: tuple[OwnedSpec, ...],
    *,
    vendors: Iterable[str],
    failures: Mapping[str, HostError],
    offered: tuple[str, ...],
    kinds: tuple[str, ...],
) -> tuple[StaleSpec, ...]:
    """Return the spec files in RECORDED whose kind belongs to VENDORS and is not in OFFERED.

    FAILURES are the failures of vendors without devices. If such a vendor has no recorded spec, the result
    has the spec file of the vendor's GPUs. The caller can then report the absence. If KINDS is not empty,
    the result has only files of these kinds.
    """
    found: list[StaleSpec] = []
    for vendor in vendors:
        reason = failures[vendor].message if vendor in failures else NOT_OFFERED
        files = [
            (owned.name, owned.kind)
            for owned in recorded
            if owned.kind.startswith(prefixes((vendor,))) and owned.kind not in offered
        ]
        is_recorded = bool(files)
        if vendor in failures and not files:
            gpus = f"{cdi_vendor(vendor)}/gpu"
            files = [(spec_file_name(gpus), gpus)]
        found += [
            StaleSpec(name=name, kind=kind, reason=reason, is_recorded=is_recorded)
            for name, kind in files
            if not kinds or kind in kinds
        ]
    return tuple(found)


def withheld_specs(
    recorded: tuple[OwnedSpec, ...], broken: Mapping[str, SpecError], directory: str
) -> tuple[StaleSpec, ...]:
    """Return the spec files in RECORDED that exist in DIRECTORY and whose new spec is withheld.

    BROKEN are the errors of the kinds without a new spec, by kind.
    """
    return tuple(
        StaleSpec(name=owned.name, kind=owned.kind, reason=LACKS_NODE)
        for owned in recorded
        if isinstance(broken.get(owned.kind), WithheldError)
        and os.path.lexists(os.path.join(directory, owned.name))
    )


def withdraw_spec(
    spec: StaleSpec, directory: str, state_dir: str, *, dry_run: bool = False
) -> PublishOutcome:
    """Remove SPEC from DIRECTORY. The outcome is ``refused`` if another program changed the file.

    With DRY_RUN, the function returns the outcome of a removal, but removes nothing.
    """
    file = os.path.join(directory, spec.name)
    try:
        removal = specs.withdraw(directory, spec.name, state_dir=state_dir, dry_run=dry_run)
    except StoreError as error:
        return refused_outcome(spec.kind, file, error)
    if removal == "foreign":
        changed = SpecError(
            f"{shown(file)} was changed since cdigen wrote it and stays, although {spec.reason}",
            hint="remove that file if it is not needed",
            kind="foreign-file",
        )
        return refused_outcome(spec.kind, file, changed)
    result: Result = "withdrawn" if removal == "removed" else "absent"
    # The volume of the kind can still exist if another program removed the spec, or if
    # cdigen was killed after it removed the spec.
    found = () if dry_run else remove_volume(spec.kind, state_dir)
    return PublishOutcome(kind=spec.kind, file=file, result=result, findings=found, reason=spec.reason)


def withdraw_or_keep(spec: StaleSpec, directories: tuple[str, ...], state_dir: str) -> PublishOutcome:
    """Remove SPEC from the last of DIRECTORIES.

    The outcome is ``refused`` if runtimes would then read a foreign spec of the same kind.
    """
    file = os.path.join(directories[-1], spec.name)
    foreign = serving_file(spec.kind, directories[:-1]) if os.path.lexists(file) else ""
    if not foreign:
        return withdraw_spec(spec, directories[-1], state_dir)
    finding = unmasking_finding(spec.kind, file, foreign)
    return refused_outcome(spec.kind, file, SpecError(finding.message, hint=finding.hint, kind=finding.rule))


def check_old_specs(stale: Iterable[StaleSpec], directory: str, host: Root) -> tuple[Finding, ...]:
    """Return a finding for each spec file in DIRECTORY that is in the list STALE.

    The finding reports whether HOST still has the paths of the spec.
    """
    found = [_check_old_spec(os.path.join(directory, spec.name), host) for spec in stale if spec.is_recorded]
    return tuple(finding for finding in found if finding is not None)


def _check_old_spec(file: str, host: Root) -> Finding | None:
    document = read_spec(file)
    if document is None:
        return None
    missing = list(dict.fromkeys(finding.message for finding in check_host(document, host)))
    if not missing:
        return Finding(
            severity="info",
            rule="old-spec-kept",
            path=file,
            message=f"{shown(file)} stays: all its paths still exist",
        )
    more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
    return Finding(
        severity="warning",
        rule="old-spec-broken",
        path=file,
        message=f"{shown(file)} stays, but the host lacks paths in this spec ({missing[0]}"
        f"{more}): containers with devices of this spec do not start",
        hint="fix the host, or remove the spec with --withdraw",
    )


def unmasking_finding(kind: str, file: str, foreign: str) -> Finding:
    """Return the finding that the outdated FILE stays. Without FILE, runtimes would use FOREIGN for KIND."""
    return Finding(
        severity="error",
        rule="withdrawal-unmasks",
        path=file,
        message=f"{file} is outdated, but stays: without it runtimes would read {kind} from {foreign}, "
        "which cdigen did not write",
        hint=f"remove {foreign}, or move it out of the spec directory",
    )
