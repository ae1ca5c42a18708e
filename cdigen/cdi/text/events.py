"""The parser of JSON and YAML texts, with the same results as the parser of the runtimes.

All CDI libraries read spec files with go-yaml, which is a translation of libyaml. So the libraries refuse a
text if libyaml refuses the text. This module reads the events of libyaml in a loop, without recursion. The
results are a value, findings, lines and columns. An alias is counted, but not expanded. As in go-yaml, the
parser stops at the end of the first document. The import of PyYAML takes 19 ms, and happens at the first use.
"""

from __future__ import annotations

import re

from cdigen.cdi.rules.fields import MAX_DEPTH, YAML_TOO_DEEP
from cdigen.cdi.rules.rulebook import finding
from cdigen.cdi.text.event_reader import EventReader, StopReadingError, start_of
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    import yaml

    from cdigen.model.findings import Finding

# Characters that a YAML parser refuses and a JSON string can contain: DEL, most of C1, non-characters.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_LINE_SEPARATOR = re.compile("[\x85\u2028\u2029]")
_CHARACTERS = (
    (_CONTROL, "control-character", " is refused by every loader"),
    (_LINE_SEPARATOR, "line-separator", " is read as a line break by every loader"),
)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]..", re.DOTALL)


@frozen
class YamlText:
    """The content of a YAML text, with the value of the first document and the findings.

    ``is_refused`` is true if all loaders refuse the text. Then ``reason`` is set. ``is_unsure`` is true if
    the result of the loaders is unknown. In both cases, callers do not use ``value``. Because of aliases,
    ``value`` can contain the same list or object several times.
    """

    value: object
    findings: tuple[Finding, ...]
    is_refused: bool
    is_unsure: bool
    reason: str


def read_yaml(text: str, *, loader: type[yaml.SafeLoader] | None = None) -> YamlText:
    """Return the first document in TEXT and all findings.

    TEXT must not have a byte order mark. Text after the first document is a finding, but loaders accept it.
    LOADER is a loader class of PyYAML. The default is the loader class with libyaml if PyYAML has libyaml.
    The class with libyaml is 20 times faster than the Python class, and accepts TABs at the same places as
    go-yaml. The function raises no errors.
    """
    reader = EventReader(text)
    if match := _CONTROL.search(text):
        reader.report("control-character", match.start(), f"U+{ord(match[0]):04X}", refused=True)
    elif problem := _feed(reader, text, loader):
        _report_problem(reader, problem, text)
        # The Python scanner of PyYAML refuses some TABs that libyaml and go-yaml accept.
        reader.is_unsure |= problem.is_of_python and not problem.is_after and "\t" in text
    # go-yaml 2 skips a byte order mark at the start of a line only if its buffer starts at this line.
    reader.is_unsure |= not reader.is_refused and "\n\ufeff" in text
    if reader.root is None and not reader.findings:
        reader.is_refused, reader.reason = True, "the file has no document"
        reader.findings.append(finding("empty-document", "$", reader.reason))
    return YamlText(
        value=reader.root,
        findings=tuple(reader.findings),
        is_refused=reader.is_refused,
        is_unsure=reader.is_unsure,
        reason=reader.reason,
    )


def _report_problem(reader: EventReader, problem: _Problem, text: str) -> None:
    if problem.is_after:
        reader.report("trailing-data", problem.offset, f"not YAML: {problem.words}")
    elif YAML_TOO_DEEP in problem.words:
        reader.report("too-deep", problem.offset, f"nesting beyond {MAX_DEPTH} levels", refused=True)
    else:
        # go-yaml accepts the escape \\' for '. libyaml refuses this escape.
        is_quote = "\\'" in text[max(0, problem.offset - 1) :][:3]
        reader.is_unsure |= "unknown escape" in problem.words and is_quote
        reader.report("yaml-syntax", problem.offset, f"not YAML: {problem.words}", refused=True)


def json_findings(text: str) -> tuple[Finding, ...]:
    """Return the findings for TEXT, a JSON text that Python accepts.

    The findings report texts that loaders refuse or read differently from JSON parsers, and extensions of
    JSON. Characters that stop libyaml are replaced, so that libyaml continues.
    """
    reader = EventReader(text, is_json=True)
    problem = _feed(reader, _readable_json(text, tabs=True))
    if problem and text[problem.offset :].startswith("\t"):
        reader = EventReader(text, is_json=True)
        if not problem.is_of_python:
            reader.report("leading-tab", problem.offset, "TAB outside of the document")
        problem = _feed(reader, _readable_json(text))
    for pattern, rule, after in _CHARACTERS:
        if match := pattern.search(text):
            reader.report(rule, match.start(), f"U+{ord(match[0]):04X}", after)
    if problem:
        _report_key(reader, text, problem.offset)
    return tuple(reader.findings)


def positions(text: str, paths: Iterable[str], *, is_yaml: bool) -> dict[str, tuple[int, int]]:
    """Return the line and the column of each of the JSON PATHS that occur in TEXT.

    Lines and columns start at 1. TEXT is JSON or YAML without a byte order mark. The first document in TEXT
    must be valid.
    """
    reader = EventReader(text, wanted=frozenset(paths))
    _feed(reader, text if is_yaml else _readable_json(text))
    return reader.places


def _readable_json(text: str, *, tabs: bool = False) -> str:
    """Return the JSON text TEXT, with replacements for the characters that stop libyaml.

    If TABS is true, TABs are not replaced. All positions in TEXT stay the same.
    """
    plain = _SURROGATE.sub(r"\\u0041", _LINE_SEPARATOR.sub("?", _CONTROL.sub("?", text)))
    return plain if tabs else plain.replace("\t", " ")


def _report_key(reader: EventReader, text: str, colon: int) -> None:
    """Report that the last key is too far from its colon, whose offset is COLON.

    JSON permits such a key, but YAML does not.
    """
    start = reader.last_key
    if "\n" not in text[start:colon] and "\r" not in text[start:colon]:
        reader.report("key-too-long", start, f"key of {colon - start} characters")
    else:
        reader.report("key-split", start, "line break between key and colon")


@frozen
class _Problem:
    """The position where a parser stopped, and the reason.

    ``is_after`` is true if the position is after the first document. ``is_of_python`` is true if the parser
    is the Python parser of PyYAML, and not libyaml.
    """

    offset: int
    words: str
    is_after: bool
    is_of_python: bool


def _feed(reader: EventReader, text: str, loader: type[yaml.SafeLoader] | None = None) -> _Problem | None:
    """Pass the events of the first document in TEXT to READER.

    Return the problem that stopped the parser, or None.
    """
    import yaml  # noqa: PLC0415 - the import takes 19 ms, and most files are JSON

    if loader is None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    handlers: dict[type, Callable[[Any], None]] = {
        yaml.MappingStartEvent: lambda event: reader.begin({}, event),
        yaml.SequenceStartEvent: lambda event: reader.begin([], event),
        yaml.MappingEndEvent: reader.end,
        yaml.SequenceEndEvent: reader.end,
        yaml.ScalarEvent: reader.scalar,
        yaml.AliasEvent: reader.alias,
    }
    is_after = False
    try:
        for event in yaml.parse(text, Loader=loader):
            if is_after:
                if isinstance(event, yaml.DocumentStartEvent):
                    reader.report("several-documents", start_of(event), "a second document")
                return None
            if handle := handlers.get(type(event)):
                handle(event)
            elif isinstance(event, yaml.DocumentStartEvent) and event.version not in (None, (1, 1)):
                # go-yaml v2 accepts only YAML 1.1: "found incompatible YAML document" (parserc.go).
                reader.report("yaml-syntax", start_of(event), "YAML version other than 1.1", refused=True)
            is_after = isinstance(event, yaml.DocumentEndEvent)
    except StopReadingError:
        return None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        return _Problem(
            offset=mark.index if mark else getattr(error, "position", 0),
            words=getattr(error, "problem", None) or str(error),
            is_after=is_after,
            is_of_python=loader is yaml.SafeLoader,
        )
    return None
