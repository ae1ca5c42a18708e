"""Publish a generated spec into the directory that runtimes read, and return the outcome.

An error of one kind becomes its outcome, so it never affects another kind's spec. The command and the daemon
both publish through here, and each reports outcomes in its own way.
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
from cdigen.pipeline.volume_links import follow, leave
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
    """What became of the spec of one kind; ``error`` is set exactly where the result is ``refused``.

    ``set_aside`` are other programs' specs that were moved away, ``reason`` says why a spec was withdrawn.
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
        """Return its JSON for --json."""
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
    """Return the outcome of the spec of KIND that ERROR kept from being written to FILE."""
    return PublishOutcome(kind=kind, file=file, result="refused", findings=findings, error=error)


def publish_spec(  # noqa: PLR0913  what and where; the rest has defaults
    spec: GeneratedSpec,
    directories: tuple[str, ...],
    state_dir: str,
    *,
    replace_foreign: bool = False,
    cache: SpecCache | None = None,
    check_schema: Callable[[bytes], tuple[Finding, ...]] | None = None,
) -> PublishOutcome:
    """Write SPEC into the last of DIRECTORIES, which are in rising priority.

    Refused if another program's spec in the same directory would make devices unresolvable; REPLACE_FOREIGN
    moves that one aside instead. Also refused if CHECK_SCHEMA finds it invalid. One that yields is withdrawn
    where another program's serves its devices.
    CACHE is that of ``scan``.
    """
    try:
        if not replace_foreign and (foreign := foreign_instead(spec, directories, state_dir, cache)):
            return _left_to(foreign, spec, directories[-1], state_dir)
        if check_schema is not None:
            spec = _checked(spec, check_schema(spec.content))
        outcome = _publish(spec, directories, state_dir, replace_foreign=replace_foreign, cache=cache)
        return replace(outcome, findings=(*outcome.findings, *follow(spec.document, state_dir)))
    except (SpecError, StoreError) as error:
        file = os.path.join(directories[-1], spec_file_name(spec.kind))
        return refused_outcome(spec.kind, file, error, spec.findings)


def foreign_instead(
    spec: GeneratedSpec, directories: tuple[str, ...], state_dir: str, cache: SpecCache | None = None
) -> str:
    """Return the file of another program to which SPEC yields; empty where it does not.

    StoreError: what is ours cannot be read.
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


def _left_to(foreign: str, spec: GeneratedSpec, directory: str, state_dir: str) -> PublishOutcome:
    """Withdraw our own file of SPEC, if there is one: beside FOREIGN it would hide or break its devices."""
    name = spec_file_name(spec.kind)
    file = os.path.join(directory, name)
    removal = specs.withdraw(directory, name, state_dir=state_dir) if os.path.lexists(file) else "absent"
    left = leave(spec.kind, state_dir) if removal == "removed" else ()
    reason = f"{shown(foreign)}, which cdigen did not write, serves {spec.kind}"
    finding = Finding(
        severity="info",
        rule="left-to-foreign",
        path=foreign,
        message=f"{reason}: cdigen writes none of that kind",
        hint="'cdigen generate --write --replace-foreign' takes its place, if nobody writes it any more",
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
    in_the_way = errors(findings)
    if in_the_way and not replace_foreign:
        raise SpecError(in_the_way[0].message, hint=in_the_way[0].hint, kind="foreign-spec")
    published = specs.publish(
        directory,
        name,
        spec.content,
        kind=spec.kind,
        state_dir=state_dir,
        check=check_written,
        driver=spec.driver,
        replace_foreign=replace_foreign,
        also_set_aside=tuple(finding.path.rpartition("/")[2] for finding in in_the_way),
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
    """Return the document in the spec FILE if it breaks no rule, else None."""
    try:
        # Unlike a runtime's open, this does not block on a FIFO in its place.
        reading = parse_and_check(Root().read(file, limit=MAX_SIZE), yaml=is_yaml(file))
    except OSError:
        return None
    return None if errors(reading.findings) else reading.document


def serving_file(kind: str, directories: tuple[str, ...], cache: SpecCache | None = None) -> str:
    """Return the file in DIRECTORIES from which runtimes take devices of KIND, empty where there is none."""
    devices = scan(directories, cache=cache).devices
    return next((file for name, file in devices if name.startswith(f"{kind}=")), "")


def with_mount_conflicts(
    generated: tuple[GeneratedSpec, ...],
    directories: tuple[str, ...],
    host: Root | None,
    cache: SpecCache | None = None,
) -> tuple[GeneratedSpec, ...]:
    """Return GENERATED, each with a finding if its mounts and those of another kind cover each other.

    The other kinds are those of GENERATED, and those that runtimes find in DIRECTORIES.
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
