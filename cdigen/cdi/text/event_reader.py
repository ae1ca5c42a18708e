"""``EventReader`` makes the value and the findings of a text from the events of a YAML parser."""

from __future__ import annotations

import re

from cdigen.cdi.rules.fields import MAX_DEPTH, member_path
from cdigen.cdi.rules.rulebook import finding_at
from cdigen.cdi.text.scalars import as_key, is_of_64_bits, resolve, tagged
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    import yaml

    from cdigen.model.findings import Finding

    _Value = dict[str, object] | list[object]

MAX_NODES = 300_000  # a node takes some microseconds, and a real file has thousands of nodes
# For each finding, the lines of the text are counted, which takes time.
MAX_FINDINGS = 100
# go-yaml refuses a document if it has more than 1,000 decoded nodes and 99 % of the nodes come from aliases
# (go-yaml v2, decode.go, allowedAliasRatio). With up to MAX_ALIASED nodes from aliases, go-yaml accepts the
# document. With more such nodes, the result is unknown.
MAX_ALIASED = 900

_MAX_WORDS = 200  # characters of a message; a tag can be as long as the file
_ONCE = frozenset(("yaml-alias", "yaml-key", "yaml-tag"))  # reported once; a text can contain thousands
_MERGE = "tag:yaml.org,2002:merge"
# The pattern matches all escapes from left to right, because a backslash can belong to the previous escape.
_ESCAPE = re.compile(
    r"(?P<pair>\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|(?P<lone>\\u[dD][89a-fA-F]..)|(?P<slash>\\/)|\\.",
    re.DOTALL,
)
_RULES_OF_ESCAPES = {"pair": "surrogate-escape", "lone": "lone-surrogate", "slash": "escaped-slash"}


class _Container:
    """An open mapping or sequence.

    ``keys`` contains the keys before their conversion to text. ``path`` is used only for positions.
    """

    def __init__(self, value: _Value, event: yaml.CollectionStartEvent, path: str) -> None:
        self.value = value
        self.path = path
        self.anchor = event.anchor
        self.is_flow = bool(event.flow_style)
        self.key: str | None = None
        self.keys: set[tuple[type, object]] = set()
        self.size = 1


def start_of(event: yaml.Event) -> int:
    """Return the offset of the start of EVENT.

    Parsers always set the start, although PyYAML's types permit None.
    """
    return event.start_mark.index if event.start_mark else 0


class StopReadingError(Exception):
    """The error that stops the parser, because the text after this position cannot change the result."""


class EventReader:
    """The state of the parser for TEXT.

    IS_JSON is true if TEXT is JSON that Python accepts. ``places`` contains the line and the column of each
    JSON path in WANTED that occurs in TEXT.
    """

    def __init__(self, text: str, *, is_json: bool = False, wanted: frozenset[str] = frozenset()) -> None:
        self.root: object = None
        self.findings: list[Finding] = []
        self.is_refused = False
        self.is_unsure = False
        self.reason = ""
        self.last_key = 0
        self.places: dict[str, tuple[int, int]] = {}
        self._wanted = wanted
        self._text = text
        self._is_json = is_json
        self._open: list[_Container] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._aliased = 0
        self._nodes = 0

    def report(self, rule: str, offset: int, what: str, after: str = "", *, refused: bool = False) -> None:
        """Add a finding of RULE; REFUSED is true if all loaders refuse the text for this reason."""
        if refused and not self.is_refused:
            self.is_refused, self.reason = True, what
        is_repeated = rule in _ONCE and any(found.rule == rule for found in self.findings)
        if len(self.findings) < MAX_FINDINGS and not is_repeated:
            what = what if len(what) <= _MAX_WORDS else f"{what[:_MAX_WORDS]}..."
            found = finding_at(rule, self._text, offset, (what, after))
            self.findings.append(replace(found, path=self._path()))

    def scalar(self, event: yaml.ScalarEvent) -> None:
        """Process a scalar, which is a key or a value."""
        offset = start_of(event)
        self._count(offset)
        self._note_oddities(event, offset)
        if event.style == '"':
            self._check_escapes(offset, event.end_mark.index if event.end_mark else offset)
        elif not event.style and "?" in event.value and self._open and self._open[-1].is_flow:
            # In a flow context of go-yaml v2, a question mark ends a plain scalar (scannerc.go).
            self.report("yaml-syntax", offset, "? in an unquoted text", refused=True)
        value = self._scalar_value(event, offset)
        if self._is_key_next():
            self._key(event, value, offset)
            return
        self._note_place(event)
        if self._is_json and event.value and not event.style:
            self._check_number(event.value, offset)
        self._keep(value, event.anchor, 1)

    def _scalar_value(self, event: yaml.ScalarEvent, offset: int) -> object:
        if event.tag is None:
            return resolve(event.value) if event.implicit[0] else event.value
        try:
            return tagged(event.tag, event.value)
        except ValueError as error:
            self.report("yaml-syntax", offset, str(error), refused=True)
            return event.value

    def begin(self, value: _Value, event: yaml.CollectionStartEvent) -> None:
        """Process the start of a mapping or a sequence."""
        offset = start_of(event)
        self._count(offset)
        self._note_oddities(event, offset)
        if self._is_key_next():
            self._stop("yaml-key", offset, "a key that is not text", refused=True)
        if len(self._open) >= MAX_DEPTH:
            self._stop("too-deep", offset, f"nesting beyond {MAX_DEPTH} levels", refused=True)
        self._note_place(event)
        # A path can be as long as the text. If WANTED is empty, only findings need paths.
        self._open.append(_Container(value, event, self._path() if self._wanted else "$"))

    def end(self, _event: yaml.CollectionEndEvent) -> None:
        """Process the end of the innermost open mapping or sequence."""
        container = self._open.pop()
        self._keep(container.value, container.anchor, container.size)

    def alias(self, event: yaml.AliasEvent) -> None:
        """Process an alias; the value of the anchor is not copied."""
        offset = start_of(event)
        self.report("yaml-alias", offset, f"alias *{event.anchor}")
        if event.anchor not in self._anchors:
            self._stop("yaml-syntax", offset, f"no anchor for alias *{event.anchor}", refused=True)
        self._note_place(event)
        value, size = self._anchors[event.anchor]
        self._aliased += size
        if self._aliased > MAX_ALIASED or self._is_key_next():
            self.is_unsure = True
            raise StopReadingError
        self._keep(value, None, size)

    def _is_key_next(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _count(self, offset: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES and not self._wanted:
            self.is_unsure = True
            self._stop("too-many-values", offset, f"more than {MAX_NODES} values")

    def _note_oddities(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, offset: int) -> None:
        if event.tag is not None:
            self.report("yaml-tag", offset, f"tag {event.tag}")
        if event.anchor is not None:
            self.report("yaml-alias", offset, f"anchor &{event.anchor}")

    def _stop(self, rule: str, offset: int, what: str, *, refused: bool = False) -> NoReturn:
        self.report(rule, offset, what, refused=refused)
        raise StopReadingError

    def _key(self, event: yaml.ScalarEvent, value: object, offset: int) -> None:
        if event.value == "<<" and (event.implicit[0] or event.tag == _MERGE):
            self.is_unsure = True
            self._stop("yaml-key", offset, "a merge key")
        container = self._open[-1]
        if (key := as_key(value)) is None:
            self._stop("yaml-key", offset, "a key that is null", refused=True)
        container.key = key
        self.last_key = offset
        self._note_place(event, is_key=True)
        if not isinstance(value, str):
            self.report("yaml-key", offset, f"a key that is not text ({key})")
        if isinstance(container.value, dict) and key in container.value:
            # In go-yaml, the number 1, the text "1" and the number 1.0 are three different keys.
            is_one = (type(value), value) in container.keys
            self.report("duplicate-key", offset, "repeated key", refused=is_one)
        container.keys.add((type(value), value))

    def _keep(self, value: object, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        if not self._open:
            self.root = value
            return
        parent = self._open[-1]
        parent.size += size
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is not None:
            parent.value[parent.key] = value
        parent.key = None

    def _path(self) -> str:
        opened = self._open[-1:] if self._wanted else self._open
        path = "$" if not opened else opened[0].path
        for container in opened:
            if isinstance(container.value, list):
                path = f"{path}[{len(container.value)}]"
            elif container.key is not None:
                path = member_path(path, container.key)
        return path

    def _note_place(self, event: yaml.NodeEvent, *, is_key: bool = False) -> None:
        """Record the position of EVENT if its JSON path is in WANTED.

        The position of a member is the position of its key. If a member is repeated, the first position is
        recorded.
        """
        is_due = (bool(self._open) and self._open[-1].key is not None) == is_key
        if is_due and self._wanted and event.start_mark and (path := self._path()) in self._wanted:
            self.places.setdefault(path, (event.start_mark.line + 1, event.start_mark.column + 1))
            if len(self.places) == len(self._wanted):
                raise StopReadingError

    def _check_escapes(self, start: int, end: int) -> None:
        if self._text.find("\\", start, end) < 0:
            return
        reported = set()
        for match in _ESCAPE.finditer(self._text, start, end):
            if (kind := match.lastgroup) and kind not in reported:
                reported.add(kind)
                after = " is refused by every loader"
                self.report(_RULES_OF_ESCAPES[kind], match.start(), match[0], after, refused=True)

    def _check_number(self, word: str, offset: int) -> None:
        if word in ("NaN", "Infinity", "-Infinity"):
            self.report("number-not-finite", offset, word, " is not JSON")
        elif word not in ("true", "false", "null") and not is_of_64_bits(word):
            what = f"number of {len(word)} characters"
            self.report("number-out-of-range", offset, what, " needs more than 64 bits")
