"""Check a document against CDI's rules, the version of the target, and the paths of the host."""

from __future__ import annotations

from cdigen.cdi.parse_cache import check_and_render, parse_and_check
from cdigen.cdi.rules.hostcheck import check_host
from cdigen.model.errors import SpecError
from cdigen.model.findings import errors
from cdigen.pipeline.fit import REPORTED_BY_FIT, refuse_newer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.runtimes.targets import Target


def check_document(
    document: dict[str, Any], *, host: Root | None, target: Target | None
) -> tuple[bytes, tuple[Finding, ...]]:
    """Return the bytes of DOCUMENT, and the findings that do not prevent writing the spec.

    SpecError: DOCUMENT breaks a rule of CDI, TARGET does not support the version of DOCUMENT, or HOST lacks a
    path of DOCUMENT. If HOST is None, the paths are not checked.
    """
    if target is not None:
        refuse_newer(document, target)
    content, found = check_and_render(document)
    findings = tuple(finding for finding in found if finding.rule not in REPORTED_BY_FIT)
    if host is not None and not errors(findings):
        findings = (*findings, *check_host(document, host))
    if broken := errors(findings):
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        raise SpecError(
            f"the spec of {document['kind']} breaks a rule and was not written: {broken[0].line()}{more}",
            hint="run the command again after a change of the driver, else report the defect with the output "
            "of 'cdigen inspect --json'",
        )
    return content, findings


def check_written(content: bytes) -> None:
    """Raise SpecError if CONTENT, which the store read back from the disk, is not a valid spec."""
    if broken := errors(parse_and_check(content).findings):
        raise SpecError(
            f"the written spec file on the disk is not valid: {broken[0].line()}", hint="check the disk"
        )
