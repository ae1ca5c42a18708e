"""Read the bytes of any spec file: ``parse_document`` returns the document and findings, and never raises.

A ``.json`` file has to be JSON (one pass of the standard library), and has to be what the YAML parsers in
the runtimes take it for: docs/cdi.md, "Encoding" lists the traps as seen with the real loaders. What
cdigen writes holds nothing that could be one, so only other texts are read a second time, by
``text.events``. What a runtime would do with the same bytes is a question for ``loaders``.
"""

from __future__ import annotations

import json
import re
from math import isfinite

from cdigen.cdi.rules.fields import MAX_DEPTH, type_name
from cdigen.cdi.rules.rulebook import finding, finding_at
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.cdi.text.events import YamlText
    from cdigen.model.findings import Finding

# Far above any real file (eight GPUs take 20 kB) and far below what would hurt a daemon.
MAX_SIZE = 16 * 1024 * 1024

# Above what 100,000 devices take; each value costs time, and 100 bytes and more.
MAX_COMMAS = 600_000

BYTE_ORDER_MARK = "\ufeff"

_SPACE = " \t\r\n"
# All that a YAML parser may take for something else, and what reads like it.
_ODD = re.compile('[\\\\\t\x7f-\x9f\u2028\u2029\ufffe\uffff]|"\\s+:')
# A key of 1,024 characters as written may be as short as this when read: six characters per \\uXXXX.
_LONG_KEY = 160
# 64-bit integers have at most 20 characters with their sign; Python refuses to read 4,300 digits.
_MAX_INTEGER_TEXT = 20


@frozen
class ParsedDocument:
    """What was read: the document, None where there is none, and every finding.

    ``yaml`` is what its parser read, where DATA was taken for YAML: the loaders' view of it.
    """

    document: dict[str, object] | None
    findings: tuple[Finding, ...]
    yaml: YamlText | None = None


def parse_document(data: bytes, *, yaml: bool | None) -> ParsedDocument:
    """Return the document in DATA, and all that is wrong with how it is written.

    YAML says how DATA is read, from the file's extension: True for ``.yaml``, False for ``.json``.
    None, where there is no file name, takes what begins with a brace as JSON. The document is given
    next to findings wherever there is a whole one, so that the rules can check it too.
    """
    if len(data) > MAX_SIZE:
        return _nothing(finding("too-large", "$", f"{len(data)} bytes, more than {MAX_SIZE}"))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        return _nothing(finding_at("not-utf8", before, len(before), ("not UTF-8", f": {error.reason}")))
    mark: tuple[Finding, ...] = ()
    if text.startswith(BYTE_ORDER_MARK):
        text = text[1:]
        mark = (finding("byte-order-mark", "$", "the file begins with a byte order mark"),)
    if yaml is None:
        yaml = not text.lstrip().startswith("{")
    if yaml:
        return _read_yaml(text, mark)
    return _read_json(text, mark)


def _nothing(*problems: Finding) -> ParsedDocument:
    return ParsedDocument(document=None, findings=problems)


def _object(value: object, findings: tuple[Finding, ...], yaml: YamlText | None = None) -> ParsedDocument:
    if isinstance(value, dict):
        return ParsedDocument(document=value, findings=findings, yaml=yaml)
    if not any(found.severity == "error" for found in findings):
        message = f"the document is not an object but {type_name(value)}"
        findings = (*findings, finding("not-an-object", "$", message))
    return ParsedDocument(document=None, findings=findings, yaml=yaml)


def _read_yaml(text: str, mark: tuple[Finding, ...]) -> ParsedDocument:
    from cdigen.cdi.text.events import read_yaml  # noqa: PLC0415 -- most files are JSON

    read = read_yaml(text)
    # Through aliases a small text holds a document of any size: it has its finding, and is not walked.
    is_whole = not any(found.rule in {"yaml-alias", "too-many-values"} for found in read.findings)
    return _object(read.value if is_whole else None, (*mark, *read.findings), read)


def _read_json(text: str, mark: tuple[Finding, ...]) -> ParsedDocument:
    if not text.strip(_SPACE):
        return _nothing(*mark, finding("empty-document", "$", "the file is empty"))
    if text.count(",") > MAX_COMMAS:
        return _nothing(*mark, finding("too-many-values", "$", f"more than {MAX_COMMAS} commas"))
    decoder = _Decoder()
    try:
        value, end = decoder.decode(text)
    except json.JSONDecodeError as error:
        return _nothing(*mark, _syntax_error(text, error))
    except RecursionError:
        value, end = None, 0
    if end == 0 or _is_too_deep(value):
        return _nothing(*mark, finding("too-deep", "$", f"nested deeper than {MAX_DEPTH} levels"))
    findings = list(mark)
    rest = text[end:].lstrip(_SPACE)
    if rest:
        offset = len(text) - len(rest)
        findings.append(finding_at("trailing-data", text, offset, ("text after the document", "")))
        text = text[:end]
    if decoder.is_odd or _ODD.search(text):
        from cdigen.cdi.text.events import json_findings  # noqa: PLC0415 -- most files need it not

        findings += json_findings(text)
    return _object(value, tuple(findings))


class _Decoder:
    """The standard library's decoder; ``is_odd``: YAML parsers may read the text differently."""

    def __init__(self) -> None:
        self.is_odd = False
        self._decode = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=self._integer,
            parse_float=self._real,
            parse_constant=self._constant,
        ).raw_decode

    def decode(self, text: str) -> tuple[object, int]:
        """Return the value that TEXT begins with, and where it ends; JSONDecodeError or RecursionError."""
        return self._decode(text, len(text) - len(text.lstrip(_SPACE)))

    def _object(self, members: list[tuple[str, object]]) -> dict[str, object]:
        value = dict(members)
        if len(value) != len(members) or (value and len(max(value, key=len)) > _LONG_KEY):
            self.is_odd = True
        return value

    def _integer(self, text: str) -> int:
        if len(text) <= _MAX_INTEGER_TEXT and -(2**63) <= (value := int(text)) < 2**64:
            return value
        self.is_odd = True
        return 0

    def _real(self, text: str) -> float:
        value = float(text)
        self.is_odd |= not isfinite(value)
        return value

    def _constant(self, _name: str) -> float:
        self.is_odd = True
        return 0.0


def _is_too_deep(value: object) -> bool:
    """Return whether VALUE nests deeper than MAX_DEPTH; a loop, since recursion is what it guards."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _syntax_error(text: str, error: json.JSONDecodeError) -> Finding:
    what = f": {error.msg[:1].lower()}{error.msg[1:]}"
    return finding_at("json-syntax", text, error.pos, ("not JSON", what))
