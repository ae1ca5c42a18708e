"""Write a generated spec into the directory that runtimes read, and return the outcome.

An error of a kind becomes the outcome of this kind. Therefore, an error never affects the spec of another
kind. The commands and the daemon use this module, and report the outcomes in different ways.

After a spec was written, ``update_volume`` links the volume of its kind. After a withdrawal,
``remove_volume`` removes the volume. A volume (``store.views.volumes``) is for engines without CDI. Such an
engine mounts only the whole view. A view is incomplete if the spec mounts more files in the view's folder. An
incomplete view has no volume.
"""

from __future__ import annotations

import os
import re

from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.reader import MAX_SIZE
from cdigen.cdi.rules.mount_conflicts import MountConflicts
from cdigen.host.root import Root, shown
from cdigen.model.errors import SpecError, StoreError
from cdigen.model.findings import Finding, errors, finding_of
from cdigen.model.names import is_yaml, spec_file_name
from cdigen.model.view import volume_name
from cdigen.pipeline.check import check_written
from cdigen.runtimes.clashes import clashes
from cdigen.runtimes.scan import scan
from cdigen.runtimes.spec_cache import LOADED
from cdigen.store import specs
from cdigen.store.views import volumes
from cdigen.store.views.folder import VIEW_NAME, VIEWS
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Literal

    from cdigen.model.errors import CdigenError
    from cdigen.pipeline.generate import GeneratedSpec
    from cdigen.runtimes.spec_cache import SpecCache

    Result = Literal["written", "unchanged", "withdrawn", "absent", "refused"]

_IN_VIEW = re.compile(rf"/{VIEWS}/({VIEW_NAME.pattern})(?:/|$)")


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
    if not any(any(_mounts(spec.document)) for spec in generated):
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


def update_volume(document: dict[str, Any], state_dir: str) -> tuple[Finding, ...]:
    """Link the volume of the spec DOCUMENT to its view, and return a finding if an error occurred.

    If DOCUMENT mounts no complete view, the function removes the volume.
    """
    return _linked(document["kind"], whole_view(document), state_dir)


def remove_volume(kind: str, state_dir: str) -> tuple[Finding, ...]:
    """Remove the volume of KIND, and return a finding if an error occurred."""
    return _linked(kind, "", state_dir)


def _linked(kind: str, view: str, state_dir: str) -> tuple[Finding, ...]:
    """Link the volume of KIND to VIEW, or remove the volume if VIEW is ""."""
    name = volume_name(kind)
    try:
        if view:
            volumes.point_link(state_dir, name, view)
        else:
            volumes.remove_link(state_dir, name)
    except StoreError as error:
        finding = Finding(
            severity="warning",
            rule="volume-not-updated",
            path=f"{state_dir}/{volumes.VOLUMES}/{name}",
            message=f"the volume {name} does not lead to the files of the present driver: {error.message}",
            hint=error.hint,
        )
        return (finding,)
    return ()


def whole_view(document: dict[str, Any]) -> str:
    """Return the name of the complete view that DOCUMENT mounts, or ""."""
    mounts = list(_mounts(document))
    inside = {mount["containerPath"]: found for mount in mounts if (found := _view_of(mount))}
    outside = [mount["containerPath"] for mount in mounts if mount["containerPath"] not in inside]
    if any(path.startswith(f"{target}/") for path in outside for target in inside):
        return ""
    names = set(inside.values())
    return names.pop() if len(names) == 1 else ""


def _mounts(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for owner in (document, *document["devices"]):
        yield from owner.get("containerEdits", {}).get("mounts", ())


def _view_of(mount: dict[str, Any]) -> str:
    found = _IN_VIEW.search(mount["hostPath"])
    return found.group(1) if found else ""
