"""Write specs where the runtimes look, or remove them: a ``PublishOutcome`` for each kind.

One kind's trouble never costs another's: an error becomes part of the outcome. The command and the
daemon both publish through here; what is said of an outcome is theirs.
"""

from __future__ import annotations

import os

from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.reader import MAX_SIZE
from cdigen.cdi.rules.hostcheck import check_host
from cdigen.cdi.rules.mount_conflicts import MountConflicts
from cdigen.host.root import Root, shown
from cdigen.model.errors import SpecError, StoreError
from cdigen.model.findings import Finding, errors
from cdigen.model.names import spec_file_name
from cdigen.model.partition_names import remembered
from cdigen.pipeline import naming
from cdigen.pipeline.generate import NO_GPU, NOT_LOADED
from cdigen.runtimes import lookup
from cdigen.store import specs
from cdigen.value import frozen, replace
from cdigen.vendors.registry import cdi_vendor, prefixes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Literal

    from cdigen.model.errors import CdigenError, HostError
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile
    from cdigen.pipeline.generate import GeneratedSpec
    from cdigen.store.state import OwnedSpec
    from cdigen.vendors.base import DiscoveryContext

    Result = Literal["written", "unchanged", "withdrawn", "absent", "refused"]

NOT_OFFERED = "this host has no device of that kind now"


@frozen
class PublishOutcome:
    """What became of one kind; ``error`` is set exactly where the result is ``refused_outcome``.

    ``set_aside`` are others' specs that were moved away, ``reason`` says why a spec was withdrawn.
    """

    kind: str
    file: str
    result: Result
    findings: tuple[Finding, ...] = ()
    error: CdigenError | None = None
    devices: int = 0
    set_aside: tuple[str, ...] = ()
    reason: str = ""

    def row(self) -> dict[str, Any]:
        """Return what --json prints of it."""
        findings = [finding.row() for finding in self.findings]
        if self.error is not None:
            findings.append(_finding(self.error, self.file).row())
        return {"kind": self.kind, "file": self.file, "result": self.result, "findings": findings}


@frozen
class StaleSpec:
    """A spec file of ours whose kind this host does not offer now, and why that is so."""

    name: str
    kind: str
    reason: str


def save_partition_names(
    inventories: Mapping[str, Inventory],
    failures: Mapping[str, HostError],
    context: DiscoveryContext,
    state_dir: str,
) -> Finding | None:
    """Keep the names of partitions for when the vendor's library is silent; returns why that failed."""
    before = context.partition_names()
    absent = [name for name, error in failures.items() if error.kind in {NOT_LOADED, NO_GPU}]
    names = remembered(before, inventories, absent)
    if names == before:
        return None
    from cdigen.store import partition_names  # noqa: PLC0415 - few hosts have partitions

    try:
        partition_names.save(state_dir, context.host, names)
    except StoreError as error:
        return _finding(error, f"{state_dir}/{partition_names.FILE}")
    return None


def with_covered_mounts(
    products: tuple[GeneratedSpec, ...], directories: tuple[str, ...], host: Root | None
) -> tuple[GeneratedSpec, ...]:
    """Return PRODUCTS, each with a finding where its mounts and those of another kind cover each other.

    The other kinds are those of PRODUCTS, and what else runtimes find in DIRECTORIES.
    """
    if not any(_has_mounts(product.document) for product in products):
        return products
    produced = {product.kind for product in products}
    found = lookup.scan(directories).specs if directories else ()
    mount_conflicts = MountConflicts(host)
    for spec in found:
        if spec.document is not None and spec.kind not in produced and not errors(spec.findings):
            mount_conflicts.add(spec.document)
    said = [mount_conflicts.add(product.document) for product in products]
    return tuple(
        replace(product, findings=(*product.findings, *(replace(one, path=product.kind) for one in met)))
        for product, met in zip(products, said, strict=True)
    )


def _has_mounts(document: dict[str, Any]) -> bool:
    edits = (
        document.get("containerEdits", {}),
        *(device["containerEdits"] for device in document["devices"]),
    )
    return any("mounts" in each for each in edits)


def publish_spec(
    product: GeneratedSpec, directories: tuple[str, ...], state_dir: str, *, replace_foreign: bool = False
) -> PublishOutcome:
    """Write PRODUCT into the last of DIRECTORIES.

    It is refused where another's spec in the same directory would make devices unresolvable, unless
    REPLACE_FOREIGN moves that one aside.
    """
    try:
        return _publish(product, directories, state_dir, replace_foreign=replace_foreign)
    except (SpecError, StoreError) as error:
        file = os.path.join(directories[-1], spec_file_name(product.kind))
        return refused_outcome(product.kind, file, error, product.findings)


def _publish(
    product: GeneratedSpec, directories: tuple[str, ...], state_dir: str, *, replace_foreign: bool
) -> PublishOutcome:
    directory, name = directories[-1], spec_file_name(product.kind)
    found = lookup.scan(directories)
    devices = [device["name"] for device in product.document["devices"]]
    findings = lookup.clashes(
        found, directory=directory, file_name=name, kind=product.kind, device_names=devices
    )
    in_the_way = errors(findings)
    if in_the_way and not replace_foreign:
        raise SpecError(in_the_way[0].message, hint=in_the_way[0].hint, kind="foreign-spec")
    published = specs.publish(
        directory,
        name,
        product.content,
        kind=product.kind,
        state_dir=state_dir,
        check=_check_bytes,
        driver=product.driver,
        replace_foreign=replace_foreign,
        also_set_aside=tuple(finding.path.rpartition("/")[2] for finding in in_the_way),
    )
    met = (finding for finding in (*findings, *published.findings) if finding.severity != "error")
    return PublishOutcome(
        kind=product.kind,
        file=published.path,
        result=published.result,
        findings=(*product.findings, *met),
        devices=len(devices),
        set_aside=published.set_aside,
    )


def refused_outcome(
    kind: str, file: str, error: CdigenError, findings: tuple[Finding, ...] = ()
) -> PublishOutcome:
    """Return the outcome of a KIND that ERROR kept from FILE."""
    return PublishOutcome(kind=kind, file=file, result="refused", findings=findings, error=error)


def offered_kinds(inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...]) -> tuple[str, ...]:
    """Return the kinds of which INVENTORIES have devices, in the order in which they are produced."""
    return tuple(
        draft.kind
        for name, inventory in inventories.items()
        for draft in naming.named_drafts(name, inventory, profiles)[0]
    )


def stale_specs(
    recorded: tuple[OwnedSpec, ...],
    *,
    vendors: Iterable[str],
    failures: Mapping[str, HostError],
    offered: tuple[str, ...],
    wanted: tuple[str, ...],
) -> tuple[StaleSpec, ...]:
    """Return which spec files of VENDORS have lost their devices.

    ``recorded`` are the files that are ours, ``failures`` say which vendors are gone
    as a whole, ``wanted``, where not empty, limits the kinds. A vendor that is gone and left nothing
    recorded still gives its GPUs' file, so that its absence is said.
    """
    found: list[StaleSpec] = []
    for vendor in vendors:
        prefix = cdi_vendor(vendor)
        reason = failures[vendor].message if vendor in failures else NOT_OFFERED
        files = [
            (owned.name, owned.kind)
            for owned in recorded
            if owned.kind.startswith(f"{prefix}/") and owned.kind not in offered
        ]
        if vendor in failures and not files:
            files = [(spec_file_name(f"{prefix}/gpu"), f"{prefix}/gpu")]
        found += [
            StaleSpec(name=name, kind=kind, reason=reason)
            for name, kind in files
            if not wanted or kind in wanted
        ]
    return tuple(found)


def withdraw_spec(
    spec: StaleSpec, directory: str, state_dir: str, *, dry_run: bool = False
) -> PublishOutcome:
    """Remove our spec file of a kind that is gone from DIRECTORY; one that was changed since is refused.

    With DRY_RUN the outcome is what it would be.
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
    return PublishOutcome(kind=spec.kind, file=file, result=result, reason=spec.reason)


def check_old_specs(
    directory: str, state_dir: str, host: Root, *, vendors: Iterable[str]
) -> tuple[Finding, ...]:
    """Return of each spec of VENDORS that we wrote into DIRECTORY whether what it names still exists."""
    recorded, findings = specs.recorded(directory, state_dir=state_dir)
    begins = prefixes(vendors)
    judged = [
        _judge(os.path.join(directory, owned.name), host)
        for owned in recorded
        if owned.kind.startswith(begins)
    ]
    return (*findings, *(finding for finding in judged if finding is not None))


def read_spec(file: str) -> dict[str, Any] | None:
    """Return the document in the spec FILE if it is one that breaks no rule, else None."""
    try:
        # Not as a runtime opens it: a FIFO in its place would hang us.
        reading = parse_and_check(Root().read(file, limit=MAX_SIZE))
    except OSError:
        return None
    return None if errors(reading.findings) else reading.document


def _judge(file: str, host: Root) -> Finding | None:
    document = read_spec(file)
    if document is None:
        return None
    missing = check_host(document, host)
    if not missing:
        return Finding(
            severity="info",
            rule="old-spec-holds",
            path=file,
            message=f"{shown(file)} stays: all that it names still exists",
        )
    return Finding(
        severity="warning",
        rule="old-spec-broken",
        path=file,
        message=f"{shown(file)} stays, but {len(missing)} of the things that it names are gone "
        f"({missing[0].message}): containers that ask for it will not start",
        hint="fix the host, or remove the spec with --withdraw",
    )


def _check_bytes(content: bytes) -> None:
    """Refuse bytes that do not read back as a good spec; the store calls it before the rename."""
    if wrong := errors(parse_and_check(content).findings):
        raise SpecError(
            f"the spec read back from the disk is wrong: {wrong[0].line()}", hint="check the disk"
        )


def _finding(error: CdigenError, file: str) -> Finding:
    return Finding(severity="error", rule=error.kind, path=file, message=error.message, hint=error.hint)


def unmasking_finding(kind: str, file: str, foreign: str) -> Finding:
    """Return why FILE, which does not hold any more, stays: without it, FOREIGN would serve KIND."""
    return Finding(
        severity="error",
        rule="withdrawal-unmasks",
        path=file,
        message=f"{file} does not hold any more, but without it runtimes would take {kind} from {foreign}, "
        "which cdigen did not write; it stays",
        hint=f"remove {foreign}, or move it out of the spec directory",
    )
