"""A cache of parsed and rendered specs, with the findings of the rules.

The daemon processes the same few documents several times in every cycle, and most documents stay unchanged.
The cache contains no results that depend on the host. Callers share the returned documents, so callers must
not change them.
"""

from __future__ import annotations

from cdigen.cdi.render import render
from cdigen.cdi.rules.document_rules import check
from cdigen.model.findings import errors
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.cdi.reader import ParsedDocument
    from cdigen.model.findings import Finding

# The maximum number of bytes of JSON in the cache. The Python objects need about ten times as much memory.
# The spec of 8 GPUs has 30 kB, and the spec of 1,000 GPUs has 1 MB.
BUDGET = 2 << 20
# The maximum number of results in the cache. Each lookup compares the key with the keys of all results.
_MOST = 256


class _LruCache:
    """The most recently used results, within the limits ``_MOST`` and ``BUDGET``.

    The cache is a list, because its keys can be compared, but cannot be hashed.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[object, Any, int]] = []

    def find(self, key: object) -> Any:
        """Return the result for KEY, or None if the cache has no result for KEY."""
        for position, entry in enumerate(self._entries):
            if entry[0] == key:
                self._entries.append(self._entries.pop(position))
                return entry[1]
        return None

    def keep(self, key: object, result: object, size: int) -> None:
        """Store RESULT for KEY; SIZE is the number of bytes of RESULT.

        If the cache exceeds a limit, drop the least recently used results. A result that is larger than
        BUDGET is not stored.
        """
        if size > BUDGET:
            return
        self._entries.append((key, result, size))
        while len(self._entries) > _MOST or sum(entry[2] for entry in self._entries) > BUDGET:
            del self._entries[0]


_checked = _LruCache()
_rendered = _LruCache()


def parse_and_check(data: bytes, *, yaml: bool | None = False) -> ParsedDocument:
    """Return the document in DATA, with the findings about its text and about the rules of CDI.

    YAML has the same meaning as in ``parse_document``. The cache does not keep the result of the YAML parser.
    """
    result: ParsedDocument | None = _checked.find((data, yaml))
    if result is None:
        from cdigen.cdi.reader import parse_document  # noqa: PLC0415 - not every command parses a spec

        parsed = parse_document(data, yaml=yaml)
        findings = parsed.findings if parsed.document is None else (*parsed.findings, *check(parsed.document))
        result = replace(parsed, findings=findings, yaml=None)
        _checked.keep((data, yaml), result, len(data))
    return result


def check_and_render(document: dict[str, Any]) -> tuple[bytes, tuple[Finding, ...]]:
    """Return the bytes of DOCUMENT, with the findings about the rules of CDI.

    The bytes are empty if a finding is an error.

    If two documents differ only in the order of their members, the result for the second document has the
    bytes of the first document.
    """
    result: tuple[bytes, tuple[Finding, ...]] | None = _rendered.find(document)
    if result is None:
        findings = check(document)
        # A document with an error can contain values that ``render`` does not support.
        result = (b"" if errors(findings) else render(document), findings)
        _rendered.keep(document, result, len(result[0]))
    return result
