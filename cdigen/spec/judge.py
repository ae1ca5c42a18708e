"""All that can be said of one spec file without a runtime: findings of every judge, in one place each.

``judge`` is the whole of ``cdigen validate`` for one file: reading, rules, schema, host. What the
runtimes' libraries do with the same bytes is ``cdigen.spec.loaders``' question.
"""

from __future__ import annotations

from cdigen.model.findings import errors
from cdigen.spec.hostcheck import check_host
from cdigen.spec.parse import BYTE_ORDER_MARK, parse_document
from cdigen.spec.places import places
from cdigen.spec.rules import check
from cdigen.spec.schema import check_schema
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.spec.coverings import Coverings
    from cdigen.spec.parse import Parsed

# So many findings about the document get a line and a column.
MAX_PLACED = 1000


# The rules say all that the schema says, and tests prove it; a second judge need not see the monsters too.
MAX_FOR_SCHEMA = 1 << 20


@frozen
class Judged:
    """What was read, and every finding on it."""

    parsed: Parsed
    findings: tuple[Finding, ...]

    @property
    def is_yaml(self) -> bool:
        """Whether the content was taken for YAML."""
        return self.parsed.yaml is not None


def judge(
    data: bytes, *, yaml: bool | None, host: Root | None = None, coverings: Coverings | None = None
) -> Judged:
    """Return all findings on the file content DATA, also against HOST and COVERINGS where they are given.

    YAML is as in ``parse_document``. Findings have the line and the column where that is known.
    """
    parsed = parse_document(data, yaml=yaml)
    document = parsed.document
    if document is None:
        return Judged(parsed=parsed, findings=parsed.findings)
    findings = check(document)
    if not errors((*parsed.findings, *findings)):
        # The rules are at least as strict; where they differ, the schema has the last word.
        if len(data) <= MAX_FOR_SCHEMA:
            findings = (*findings, *check_schema(document))
        if host is not None and not errors(findings):
            findings = (*findings, *check_host(document, host))
        if coverings is not None and not errors(findings):
            findings = (*findings, *coverings.add(document))
    return Judged(parsed=parsed, findings=(*parsed.findings, *_placed(findings, data, parsed)))


def _placed(findings: tuple[Finding, ...], data: bytes, parsed: Parsed) -> tuple[Finding, ...]:
    if not findings:
        return ()
    text = data.decode().removeprefix(BYTE_ORDER_MARK)
    known = places(text, {found.path for found in findings[:MAX_PLACED]}, is_yaml=parsed.yaml is not None)
    return tuple(
        replace(found, place=known[found.path]) if found.path in known else found for found in findings
    )
