"""The conversion of a configuration file to YAML nodes with line and column: ``compose``."""

from __future__ import annotations

from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    import yaml

RULE = "configuration"
MAX_DEPTH = 20  # valid files have 4 levels: stream, document, mapping, list
_MERGE = "tag:yaml.org,2002:merge"
_MAX_MERGES = 100
NO_CONFIGURATION = "is it a configuration of cdigen?"
_FIX = "fix the YAML"


class NoTreeError(ValueError):
    """A text that is not YAML; ``finding`` has the reason."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def fault(file: str, message: str, place: tuple[int, int] | None, *, hint: str) -> Finding:
    """Return the finding MESSAGE for a PLACE (line and column) of FILE."""
    return Finding(severity="error", rule=RULE, path=file, message=message, hint=hint, place=place)


def compose(data: bytes, file: str) -> yaml.Node | None:
    """Return the root node of the YAML document DATA, or None if DATA is empty; raise NoTreeError."""
    import yaml  # noqa: PLC0415 - takes 19 ms, and most commands read no configuration file

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        place = _after(before)
        raise NoTreeError(fault(file, "not UTF-8", place, hint="save the file as UTF-8")) from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_depth(yaml.parse(text, Loader=loader), file)
        root: yaml.Node | None = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        from cdigen.cdi.rules.fields import YAML_TOO_DEEP  # noqa: PLC0415 - only for a file that is not YAML

        where = place_of(error.problem_mark or error.context_mark)
        if error.problem == YAML_TOO_DEEP:
            raise _nested(file, where) from None
        raise NoTreeError(fault(file, _format_error(error, text, where), where, hint=_FIX)) from None
    except yaml.reader.ReaderError as error:
        odd = yaml.reader.Reader.NON_PRINTABLE.search(text)
        where = _after(text[: odd.start()]) if odd else None
        raise NoTreeError(fault(file, error.reason, where, hint=_FIX)) from None
    return root


def place_of(mark: Any) -> tuple[int, int] | None:
    """Return the line and the column of a PyYAML mark, both counted from 1."""
    return (mark.line + 1, mark.column + 1) if mark else None


def text_of(node: yaml.Node) -> str:
    """Return the text of NODE, or "" for a mapping or a list, which can contain itself by an alias."""
    return node.value if isinstance(node.value, str) else ""


def pairs_of(node: yaml.Node, visited: set[int] | None = None) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return the key-value pairs of the mapping NODE, then merged pairs (``<<: *other``) with new keys."""
    pairs = [pair for pair in node.value if pair[0].tag != _MERGE]
    named = {text_of(key) for key, _ in pairs}
    # Each node is read only once, because a node with an anchor can contain itself or have many aliases.
    visited = set() if visited is None else visited
    visited.add(id(node))
    merged = [value for key, value in node.value if key.tag == _MERGE]
    others = [each for value in merged for each in (value.value if value.id == "sequence" else (value,))]
    for other in others:
        if other.id == "mapping" and id(other) not in visited and len(visited) < _MAX_MERGES:
            fresh = [pair for pair in pairs_of(other, visited) if text_of(pair[0]) not in named]
            pairs += fresh
            named |= {text_of(key) for key, _ in fresh}
    return pairs


def _format_error(error: yaml.MarkedYAMLError, text: str, place: tuple[int, int] | None) -> str:
    """Return the parser's message for TEXT, or a message about the tab at PLACE, if there is a tab."""
    line, column = place or (1, 1)
    # str.splitlines also splits at characters that are not line breaks in YAML.
    here = "".join(text.split("\n")[line - 1 : line])
    if here[column - 1 :].startswith("\t"):
        return "a tab; YAML permits only spaces as indentation"
    return ", ".join(filter(None, (error.context, error.problem))) or "not YAML"


def _after(text: str) -> tuple[int, int]:
    return text.count("\n") + 1, len(text) - text.rfind("\n")


def _refuse_depth(events: Iterable[yaml.Event], file: str) -> None:
    """Raise NoTreeError for deeply nested documents, because yaml.compose would overflow the C stack."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if depth > MAX_DEPTH:
            raise _nested(file, place_of(event.start_mark))


def _nested(file: str, place: tuple[int, int] | None) -> NoTreeError:
    return NoTreeError(fault(file, "nested too deeply", place, hint=NO_CONFIGURATION))
