"""Write a generated spec into the directory that runtimes read, and return the outcome.

An error of a kind becomes the outcome of this kind. Therefore, an error never affects the spec of another
kind. The commands and the daemon use this module, and report the outcomes in different ways.
"""

from __future__ import annotations

import os

from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.reader import MAX_SIZE
from cdigen.cdi.rules.mount_conflicts import MountConflicts
from cdigen.host.root import Root, shown
from cdigen.model.errors import SpecError, StoreError
from cdigen.model.findings import Finding, errors, finding_of
from cdigen.model.names import is_yaml, spec_file_name
from cdigen.pipeline.check import check_written
from cdigen.pipeline.volume_links import remove_volume, update_volume
from cdigen.runtimes.clashes import clashes
from cdigen.runtimes.scan import scan
from cdigen.runtimes.spec_cache import LOADED
from cdigen.store import specs
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from cdigen.model.errors import CdigenError
    from cdigen.pipeline.generate import GeneratedSpec
    from cdigen.runtimes.spec_cache import SpecCache

    Result = Literal["written", "unchanged", "withdrawn", "absent", "refused"]


@frozen
class PublishOutcome:
    """The result for the spec of a kind. ``error`` is set if the result is ``refused``, and only then.

    ``set_aside`` are the new paths of other programs' specs that were renamed. ``reason`` is the reason for a
    withdrawal.
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
        """Return the outcome as a JSON object for --json."""
        findings = [finding.row() for finding in self.findings]
        if self.error is not None:
            findings.append(finding_of(self.error, self.file).row())
        return {
            "kind": self.kind,
            "file": self.file,
            "result": self.result,
            "changed": self.result in {"written", "withdrawn"},
            "findings": findings,
        }


def refused_outcome(
    kind: str, file: str, error: CdigenError, findings: tuple[Finding, ...] = ()
) -> PublishOutcome:
    """Return the outcome for the spec of KIND if ERROR prevented writing FILE."""
    return PublishOutcome(kind=kind, file=file, result="refused", findings=findings, error=error)


def publish_spec(  # noqa: PLR0913  all parameters after state_dir have defaults
    spec: GeneratedSpec,
    directories: tuple[str, ...],
    state_dir: str,
    *,
    replace_foreign: bool = False,
    cache: SpecCache | None = None,
    check_schema: Callable[[bytes], tuple[Finding, ...]] | None = None,
) -> PublishOutcome:
    """Write SPEC into the last of DIRECTORIES, and return the outcome. DIRECTORIES have rising priority.

    The outcome is ``refused`` if runtimes could not resolve devices because of another program's spec in the
    same directory. With REPLACE_FOREIGN, the other spec is renamed instead. The outcome is also ``refused``
    if CHECK_SCHEMA finds an error in SPEC. If SPEC yields and another program's spec serves its devices, SPEC
    is withdrawn. CACHE is the cache for ``scan``.
    """
    try:
        if not replace_foreign and (foreign := overriding_file(spec, directories, state_dir, cache)):
            return _keep_foreign(foreign, spec, directories[-1], state_dir)
        if check_schema is not None:
            spec = _checked(spec, check_schema(spec.content))
        outcome = _publish(spec, directories, state_dir, replace_foreign=replace_foreign, cache=cache)
        return replace(outcome, findings=(*outcome.findings, *update_volume(spec.document, state_dir)))
    except (SpecError, StoreError) as error:
        file = os.path.join(directories[-1], spec_file_name(spec.kind))
        return refused_outcome(spec.kind, file, error, spec.findings)


def overriding_file(
    spec: GeneratedSpec, directories: tuple[str, ...], state_dir: str, cache: SpecCache | None = None
) -> str:
    """Return the file of another program to which SPEC yields, or "".

    StoreError: the record of cdigen's files cannot be read.
    """
    if not spec.yields:
        return ""
    names = {device["name"] for device in spec.document["devices"]}
    for file in scan(directories, cache=cache).defining:
        if file.kind != spec.kind or file.state != LOADED or names.isdisjoint(file.devices):
            continue
        directory, _, name = file.path.rpartition("/")
        ours, _ = specs.recorded(directory, state_dir=state_dir)
        if name not in {owned.name for owned in ours}:
            return file.path
    return ""


def _keep_foreign(foreign: str, spec: GeneratedSpec, directory: str, state_dir: str) -> PublishOutcome:
    """Withdraw cdigen's file of SPEC, because this file would hide or break the devices of FOREIGN."""
    name = spec_file_name(spec.kind)
    file = os.path.join(directory, name)
    removal = specs.withdraw(directory, name, state_dir=state_dir) if os.path.lexists(file) else "absent"
    left = remove_volume(spec.kind, state_dir) if removal == "removed" else ()
    reason = f"{shown(foreign)}, which cdigen did not write, serves {spec.kind}"
    finding = Finding(
        severity="info",
        rule="foreign-spec-kept",
        path=foreign,
        message=f"{reason}: cdigen writes no spec of that kind",
        hint=f"remove {shown(foreign)} if no program writes it any more: cdigen then writes its own spec",
    )
    return PublishOutcome(
        kind=spec.kind,
        file=file,
        result="withdrawn" if removal == "removed" else "absent",
        findings=(*spec.findings, finding, *left),
        reason=reason,
    )


def _checked(spec: GeneratedSpec, findings: tuple[Finding, ...]) -> GeneratedSpec:
    if wrong := errors(findings):
        raise SpecError(
            f"the spec of {spec.kind} is not valid under its schema and was not written: {wrong[0].line()}",
            hint="this is a defect of cdigen: report it with the output of 'cdigen inspect --json'",
        )
    return _with_findings(spec, findings)


def _publish(
    spec: GeneratedSpec,
    directories: tuple[str, ...],
    state_dir: str,
    *,
    replace_foreign: bool,
    cache: SpecCache | None,
) -> PublishOutcome:
    directory, name = directories[-1], spec_file_name(spec.kind)
    devices = [device["name"] for device in spec.document["devices"]]
    findings = clashes(
        scan(directories, cache=cache),
        directory=directory,
        file_name=name,
        kind=spec.kind,
        device_names=devices,
    )
    blocking = errors(findings)
    if blocking and not replace_foreign:
        raise SpecError(blocking[0].message, hint=blocking[0].hint, kind="foreign-spec")
    published = specs.publish(
        directory,
        name,
        spec.content,
        kind=spec.kind,
        state_dir=state_dir,
        check=check_written,
        driver=spec.driver,
        replace_foreign=replace_foreign,
        also_set_aside=tuple(finding.path.rpartition("/")[2] for finding in blocking),
    )
    found = (finding for finding in (*findings, *published.findings) if finding.severity != "error")
    return PublishOutcome(
        kind=spec.kind,
        file=published.path,
        result=published.result,
        findings=(*spec.findings, *found),
        devices=len(devices),
        set_aside=published.set_aside,
    )


def read_spec(file: str) -> dict[str, Any] | None:
    """Return the document in the spec FILE, or None if the document breaks a rule or FILE cannot be read."""
    try:
        # This call does not block on a FIFO. A runtime's open call would block.
        reading = parse_and_check(Root().read(file, limit=MAX_SIZE), yaml=is_yaml(file))
    except OSError:
        return None
    return None if errors(reading.findings) else reading.document


def serving_file(kind: str, directories: tuple[str, ...], cache: SpecCache | None = None) -> str:
    """Return the file in DIRECTORIES from which runtimes read devices of KIND, or ""."""
    devices = scan(directories, cache=cache).devices
    return next((file for name, file in devices if name.startswith(f"{kind}=")), "")


def with_mount_conflicts(
    generated: tuple[GeneratedSpec, ...],
    directories: tuple[str, ...],
    host: Root | None,
    cache: SpecCache | None = None,
) -> tuple[GeneratedSpec, ...]:
    """Return GENERATED. A spec gets a finding if its mounts and the mounts of another kind cover each other.

    The other kinds are the kinds of GENERATED and the kinds of the specs in DIRECTORIES.
    """
    if not any(_has_mounts(spec.document) for spec in generated):
        return generated
    kinds = {spec.kind for spec in generated}
    conflicts = MountConflicts(host)
    for other in scan(directories, cache=cache).defining:
        document = None if other.kind in kinds else read_spec(other.path)
        if document is not None:
            conflicts.add(document)
    return tuple(_with_findings(spec, conflicts.add(spec.document)) for spec in generated)


def _with_findings(spec: GeneratedSpec, findings: tuple[Finding, ...]) -> GeneratedSpec:
    more = (replace(finding, path=spec.kind) for finding in findings)
    return replace(spec, findings=(*spec.findings, *more))


def _has_mounts(document: dict[str, Any]) -> bool:
    edits = (
        document.get("containerEdits", {}),
        *(device["containerEdits"] for device in document["devices"]),
    )
    return any("mounts" in each for each in edits)
