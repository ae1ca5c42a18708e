"""Read or render a spec and check its rules, once for equal content: the results are remembered.

The daemon meets the same few documents several times in every cycle, and mostly nothing has changed in
them. What depends on the host is never remembered. Returned documents are shared: callers must not change
them.
"""

from __future__ import annotations

from cdigen.cdi.render import render
from cdigen.cdi.rules.document_rules import check
from cdigen.model.findings import errors
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.model.findings import Finding

# Bytes of JSON that are remembered; as objects they take some ten times as much. The spec of eight GPUs has
# 30 kB, that of 1,000 one MB.
BUDGET = 2 << 20
# Answers that are remembered: each lookup compares with all of them.
_MOST = 256


@frozen
class CheckedDocument:
    """A document as it was read, None where there is none, and all findings."""

    document: dict[str, Any] | None
    findings: tuple[Finding, ...]


@frozen
class RenderedDocument:
    """The bytes of a document as cdigen writes it, and all findings on it; no bytes where one is an error."""

    content: bytes
    findings: tuple[Finding, ...]


class _RecentAnswers:
    """The latest answers to questions that can be compared, not hashed: ``_MOST``, and a BUDGET of bytes."""

    def __init__(self) -> None:
        self._known: list[tuple[object, Any, int]] = []

    def find(self, question: object) -> Any:
        """Return the answer to QUESTION, None where it is not known."""
        for position, known in enumerate(self._known):
            if known[0] == question:
                self._known.append(self._known.pop(position))
                return known[1]
        return None

    def keep(self, question: object, answer: object, size: int) -> None:
        """Remember ANSWER, which takes SIZE, instead of the least recently used."""
        if size > BUDGET:
            return
        self._known.append((question, answer, size))
        while len(self._known) > _MOST or sum(known[2] for known in self._known) > BUDGET:
            del self._known[0]


_readings = _RecentAnswers()
_writings = _RecentAnswers()


def parse_and_check(data: bytes, *, yaml: bool | None = False) -> CheckedDocument:
    """Return the document in DATA, and what is wrong with how it is written and by the rules of CDI.

    YAML is as in ``parse_document``.
    """
    reading: CheckedDocument | None = _readings.find((data, yaml))
    if reading is None:
        from cdigen.cdi.reader import parse_document  # noqa: PLC0415 - a spec that is printed is not read

        parsed = parse_document(data, yaml=yaml)
        findings = parsed.findings if parsed.document is None else (*parsed.findings, *check(parsed.document))
        reading = CheckedDocument(document=parsed.document, findings=findings)
        _readings.keep((data, yaml), reading, len(data))
    return reading


def check_and_render(document: dict[str, Any]) -> RenderedDocument:
    """Return the bytes of DOCUMENT, and what the rules of CDI find in it.

    Documents that differ in the order of their members alone have the bytes of the first.
    """
    writing: RenderedDocument | None = _writings.find(document)
    if writing is None:
        findings = check(document)
        # What breaks a rule may not even be text.
        writing = RenderedDocument(content=b"" if errors(findings) else render(document), findings=findings)
        _writings.keep(document, writing, len(writing.content))
    return writing
