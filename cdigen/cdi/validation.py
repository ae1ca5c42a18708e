"""``validate_content``: runs all checks of one spec file that need no runtime.

For each file, ``cdigen validate`` parses the text, and checks the rules, the schema and the host.
``cdigen.cdi.loaders.emulation`` predicts the behaviour of the runtimes' libraries for the same bytes.
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

# The maximum number of findings with a line and a column.
MAX_PLACED = 1000


@frozen
class ValidationResult:
    """The parsed content and all findings."""

    parsed: ParsedDocument
    findings: tuple[Finding, ...]

    @property
    def is_yaml(self) -> bool:
        """Whether the content was parsed as YAML."""
        return self.parsed.yaml is not None


def validate_content(
    data: bytes,
    *,
    yaml: bool | None,
    host: Root | None = None,
    mount_conflicts: MountConflicts | None = None,
    always_schema: bool = False,
) -> ValidationResult:
    """Return all findings about the file content DATA.

    YAML has the same meaning as in ``parse_document``. If HOST is not None, the document is compared with the
    host. If MOUNT_CONFLICTS is not None, the document is compared with the documents that MOUNT_CONFLICTS
    contains. The schema is checked if the document has at most MAX_NODES_AND_MOUNTS device nodes and mounts,
    or if ALWAYS_SCHEMA is true. A finding has a line and a column if these are known.
    """
    parsed = parse_document(data, yaml=yaml)
    document = parsed.document
    if document is None:
        return ValidationResult(parsed=parsed, findings=parsed.findings)
    findings = check(document)
    if not errors((*parsed.findings, *findings)):
        # The rules are at least as strict as the schema. The schema is a second, independent check.
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
        f"JSON Schema skipped for {count} device nodes and mounts (use --schema); the rules were checked"
    )
    return (Finding(severity="info", rule="schema-skipped", path="$", message=message),)


def _with_positions(
    findings: tuple[Finding, ...], data: bytes, parsed: ParsedDocument
) -> tuple[Finding, ...]:
    if not findings:
        return ()
    from cdigen.cdi.text.events import positions  # noqa: PLC0415 - a valid file needs no positions

    text = data.decode().removeprefix(BYTE_ORDER_MARK)
    known = positions(text, {found.path for found in findings[:MAX_PLACED]}, is_yaml=parsed.yaml is not None)
    return tuple(
        replace(found, place=known[found.path]) if found.path in known else found for found in findings
    )
