"""``parse_document``: returns the document in the bytes of a spec file, and the findings about the text.

A ``.json`` file must be JSON, and the YAML parsers of the runtimes must read the same document from the file.
docs/reference/cdi-loaders.md, "Encoding", lists the observed differences between JSON and the real loaders.
Files that cdigen writes contain none of these differences, so one pass of the standard library's parser is
sufficient. If a text can contain a difference, ``text.events`` parses the text again. ``loaders`` predicts
the behaviour of a runtime for the same bytes.
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
    from typing import Any

    from cdigen.cdi.text.events import YamlText
    from cdigen.model.findings import Finding

# The maximum number of bytes. Real files are much smaller (the spec of 8 GPUs has 20 kB). The limit is small
# enough for the memory of the daemon.
MAX_SIZE = 16 * 1024 * 1024

# The maximum number of commas in a JSON text. A spec of 100,000 devices has fewer commas. Each value takes
# time, and 100 bytes of memory or more.
MAX_COMMAS = 600_000

BYTE_ORDER_MARK = "\ufeff"

_SPACE = " \t\r\n"
# Characters and texts that a YAML parser can read differently from a JSON parser. A match is not always read
# differently.
_ODD = re.compile('[\\\\\t\x7f-\x9f\u2028\u2029\ufffe\uffff]|"\\s+:')
# YAML limits a key to 1,024 characters in the file. A key with at most 160 decoded characters is below this
# limit, because the longest escape (\\uXXXX) has 6 characters.
_LONG_KEY = 160
# A 64-bit integer has at most 20 characters, including the sign. Python refuses more than 4,300 digits.
_MAX_INTEGER_TEXT = 20


@frozen
class ParsedDocument:
    """The document in a text, and all findings about the text.

    ``document`` is None if the text contains no valid document. ``yaml`` is the result of the YAML parser, or
    None if the text was parsed as JSON.
    """

    document: dict[str, Any] | None
    findings: tuple[Finding, ...]
    yaml: YamlText | None = None


def parse_document(data: bytes, *, yaml: bool | None) -> ParsedDocument:
    """Return the document in DATA, and the findings about the text.

    YAML is true for a file ``.yaml`` and false for a file ``.json``. YAML is None if there is no file name.
    Then a text that starts with a brace is parsed as JSON. A complete document is returned even if there are
    findings, so that the rules can check the document. The function raises no errors.
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
    from cdigen.cdi.text.events import read_yaml  # noqa: PLC0415 - most files are JSON

    read = read_yaml(text)
    # With aliases, a small text can describe a document of any size. Such a document is not checked further.
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
        from cdigen.cdi.text.events import json_findings  # noqa: PLC0415 - most files do not need this module

        findings += json_findings(text)
    return _object(value, tuple(findings))


class _Decoder:
    """The standard library's JSON decoder.

    ``is_odd`` is true if YAML parsers can read the decoded text differently.
    """

    def __init__(self) -> None:
        self.is_odd = False
        self._decode = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=self._integer,
            parse_float=self._real,
            parse_constant=self._constant,
        ).raw_decode

    def decode(self, text: str) -> tuple[object, int]:
        """Return the value at the start of TEXT, and the offset of the end of the value.

        Raise JSONDecodeError for invalid JSON, or RecursionError for deeply nested values.
        """
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
    """Return whether VALUE is nested deeper than MAX_DEPTH.

    The function uses a loop, because recursion could fail for such a value.
    """
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
