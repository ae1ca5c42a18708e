"""Check one spec file in every way that needs no runtime: ``validate_content`` returns all findings.

``validate_content`` is the whole of ``cdigen validate`` for one file: reading, rules, schema, host. What the
runtimes' libraries do with the same bytes is a question for ``cdigen.cdi.loaders.emulation``.
"""

from __future__ import annotations

from cdigen.cdi.reader import BYTE_ORDER_MARK, parse_document
from cdigen.cdi.rules.document_rules import check
from cdigen.cdi.rules.hostcheck import check_host
from cdigen.cdi.schema import MAX_NODES_AND_MOUNTS, check_schema, nodes_and_mounts
from cdigen.model.findings import Finding, errors
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.cdi.reader import ParsedDocument
    from cdigen.cdi.rules.mount_conflicts import MountConflicts
    from cdigen.host.root import Root

# So many findings about the document get a line and a column.
MAX_PLACED = 1000


@frozen
class ValidationResult:
    """What was read, and every finding on it."""

    parsed: ParsedDocument
    findings: tuple[Finding, ...]

    @property
    def is_yaml(self) -> bool:
        """Whether the content was taken for YAML."""
        return self.parsed.yaml is not None


def validate_content(
    data: bytes,
    *,
    yaml: bool | None,
    host: Root | None = None,
    mount_conflicts: MountConflicts | None = None,
    always_schema: bool = False,
) -> ValidationResult:
    """Return all findings on the file content DATA, also against HOST and MOUNT_CONFLICTS if given.

    YAML is as in ``parse_document``. Findings have the line and the column where that is known. The schema
    checks documents of ordinary size, with ALWAYS_SCHEMA all.
    """
    parsed = parse_document(data, yaml=yaml)
    document = parsed.document
    if document is None:
        return ValidationResult(parsed=parsed, findings=parsed.findings)
    findings = check(document)
    if not errors((*parsed.findings, *findings)):
        # The rules are at least as strict; where they differ, the schema has the last word.
        findings = (*findings, *_check_schema(document, always=always_schema))
        if host is not None and not errors(findings):
            findings = (*findings, *check_host(document, host))
        if mount_conflicts is not None and not errors(findings):
            findings = (*findings, *mount_conflicts.add(document))
    return ValidationResult(
        parsed=parsed, findings=(*parsed.findings, *_with_positions(findings, data, parsed))
    )


def _check_schema(document: dict[str, object], *, always: bool) -> tuple[Finding, ...]:
    count = nodes_and_mounts(document)
    if always or count <= MAX_NODES_AND_MOUNTS:
        return check_schema(document)
    message = (
        f"{count} device nodes and mounts: the schema checks so many with --schema only; the rules passed"
    )
    return (Finding(severity="info", rule="schema-skipped", path="$", message=message),)


def _with_positions(
    findings: tuple[Finding, ...], data: bytes, parsed: ParsedDocument
) -> tuple[Finding, ...]:
    if not findings:
        return ()
    from cdigen.cdi.text.events import positions  # noqa: PLC0415 -- only where something is wrong

    text = data.decode().removeprefix(BYTE_ORDER_MARK)
    known = positions(text, {found.path for found in findings[:MAX_PLACED]}, is_yaml=parsed.yaml is not None)
    return tuple(
        replace(found, place=known[found.path]) if found.path in known else found for found in findings
    )
