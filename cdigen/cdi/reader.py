"""Bytes of a spec file in, a JSON document and findings out; nothing is ever raised.

``parse_document`` is the way in for files written by anybody. What a runtime would do with the same
bytes is another question, which ``cdigen.cdi.loaders.emulation`` answers.
"""

from __future__ import annotations

from cdigen.cdi.json_text import place_of, read_json
from cdigen.cdi.rules.fields import type_name
from cdigen.cdi.rules.rulebook import finding
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.cdi.yaml_text import YamlText
    from cdigen.model.findings import Finding

# Far above any real file (eight GPUs take 20 kB) and far below what would hurt a daemon.
MAX_SIZE = 16 * 1024 * 1024

BYTE_ORDER_MARK = "\ufeff"


@frozen
class ParsedDocument:
    """What was read: the document, None where there is none to judge, and every finding on the way.

    ``yaml`` is what its parser read, where DATA was taken for YAML: the loaders' view of it.
    """

    document: dict[str, object] | None
    findings: tuple[Finding, ...]
    yaml: YamlText | None = None


def parse_document(data: bytes, *, yaml: bool | None) -> ParsedDocument:
    """Return the document in DATA, and all that is wrong with how it is written.

    YAML says how DATA is read, from the file's extension: True for ``.yaml``, False for ``.json``.
    None, where there is no file name, takes what begins with a brace as JSON. The document is given
    next to findings wherever there is a whole one, so that the rules can judge it too.
    """
    if len(data) > MAX_SIZE:
        return _nothing(finding("too-large", "$", f"{len(data)} bytes, more than {MAX_SIZE}"))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        place = place_of(before, len(before))
        message = f"not UTF-8 at line {place[0]}, column {place[1]}: {error.reason}"
        return _nothing(finding("not-utf8", "$", message, place=place))
    mark: tuple[Finding, ...] = ()
    if text.startswith(BYTE_ORDER_MARK):
        text = text[1:]
        mark = (finding("byte-order-mark", "$", "the file begins with a byte order mark"),)
    if yaml is None:
        yaml = not text.lstrip().startswith("{")
    if yaml:
        return _read_yaml(text, mark)
    value, findings = read_json(text)
    return _object(value, (*mark, *findings))


def _nothing(problem: Finding) -> ParsedDocument:
    return ParsedDocument(document=None, findings=(problem,))


def _object(value: object, findings: tuple[Finding, ...], yaml: YamlText | None = None) -> ParsedDocument:
    if isinstance(value, dict):
        return ParsedDocument(document=value, findings=findings, yaml=yaml)
    if not any(found.severity == "error" for found in findings):
        message = f"the document is no object but {type_name(value)}"
        findings = (*findings, finding("not-an-object", "$", message))
    return ParsedDocument(document=None, findings=findings, yaml=yaml)


def _read_yaml(text: str, mark: tuple[Finding, ...]) -> ParsedDocument:
    from cdigen.cdi.yaml_text import read_yaml  # noqa: PLC0415 -- most files are JSON

    read = read_yaml(text)
    # Through aliases a small text holds a document of any size: it has its finding, and is not walked.
    is_whole = not any(found.rule in {"yaml-alias", "too-many-values"} for found in read.findings)
    return _object(read.value if is_whole else None, (*mark, *read.findings), read)
