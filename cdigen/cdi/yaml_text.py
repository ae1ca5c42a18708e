"""YAML as the runtimes' parser reads it: a text becomes JSON types, and every oddity is named.

Built from PyYAML's events in a loop: nothing recurses, an alias is counted and never expanded, and
reading stops at the end of the first document, as go-yaml does. PyYAML (19 ms to import) is loaded
when the first YAML is read. The findings are for people; ``is_refused`` is what a loader would do.
"""

from __future__ import annotations

import re

from cdigen.cdi.json_text import MAX_DEPTH, found_at, place_of
from cdigen.cdi.rules.fields import member_path
from cdigen.cdi.rules.rulebook import finding
from cdigen.cdi.yaml_scalars import as_key, resolve, tagged
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import yaml

    from cdigen.model.findings import Finding

# go-yaml refuses a document once 1,000 nodes are decoded and 99 % of them come from aliases; below
# this number it never does, above it we do not follow (go-yaml v2, decode.go, allowedAliasRatio).
MAX_ALIASED = 900

# A tag may be as long as the file.
_MAX_WORDS = 200

# Each takes a reading of its own.
_MAX_APOSTROPHES = 20
_MAX_WITH_APOSTROPHES = 1 << 20

# A node takes microseconds, and a real file has thousands.
MAX_NODES = 300_000

_MERGE = "tag:yaml.org,2002:merge"
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U0000([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")


@frozen
class YamlText:
    """What a YAML text says: its first document's value, the findings, and a loader's view of it.

    ``is_refused``: every loader refuses the text, for ``reason``. ``is_unsure``: what a loader does is
    not known. ``value`` is meant to be used in neither case; containers may occur in it more than once.
    """

    value: object
    findings: tuple[Finding, ...]
    is_refused: bool
    is_unsure: bool
    reason: str


class _Container:
    """A mapping or sequence being read: its value, where it goes, and how many nodes it has."""

    __slots__ = ("anchor", "is_flow", "is_merging", "key", "keys", "size", "value")

    def __init__(self, value: dict[str, object] | list[object], event: yaml.CollectionStartEvent) -> None:
        self.value = value
        self.anchor = event.anchor
        self.is_flow = bool(event.flow_style)
        self.key: str | None = None
        # Keys as they were before they became text: for go-yaml 1, "1" and 1.0 are three.
        self.keys: set[tuple[type, object]] = set()
        self.is_merging = False
        self.size = 1


def _start(event: yaml.Event) -> int:
    """Return where EVENT begins; parsers always say so, only PyYAML's types allow that they do not."""
    return event.start_mark.index if event.start_mark else 0


class _StopError(Exception):
    """Leaves the reading where nothing further can matter."""


class _Builder:
    """The state of one reading; the public methods take one of PyYAML's events each."""

    def __init__(self, text: str) -> None:
        self.root: object = None
        self.findings: dict[str, Finding] = {}
        self.is_refused = False
        self.reason = ""
        self.is_unsure = False
        self.apostrophe: int | None = None
        self._text = text
        self._open: list[_Container] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._aliased = 0
        self._nodes = 0

    def report(self, rule: str, offset: int, what: str, *, refused: bool) -> None:
        """Keep the first finding of each rule; ``refused`` says whether a loader refuses the text for it."""
        if refused and not self.is_refused:
            self.is_refused, self.reason = True, what
        if rule not in self.findings:
            what = what if len(what) <= _MAX_WORDS else f"{what[:_MAX_WORDS]}..."
            message = f"{what.replace('{}', '')} at {{}}"
            self.findings[rule] = found_at(rule, message, place_of(self._text, offset), path=self._path())

    def begin(self, value: dict[str, object] | list[object], event: yaml.CollectionStartEvent) -> None:
        """Begin a mapping or a sequence."""
        offset = _start(event)
        self._oddities(event)
        if self._is_key_next():
            self.report("yaml-key", offset, "a key that is no text", refused=True)
            raise _StopError
        self._count(offset)
        if len(self._open) >= MAX_DEPTH:
            self.report("too-deep", offset, f"nesting beyond {MAX_DEPTH} levels", refused=True)
            raise _StopError
        self._open.append(_Container(value, event))

    def end(self, _event: yaml.CollectionEndEvent) -> None:
        """End the mapping or sequence that was begun last."""
        container = self._open.pop()
        self._keep(container.value, container.anchor, container.size)

    def scalar(self, event: yaml.ScalarEvent) -> None:
        """Take a scalar, which is a key or a value."""
        self._count(_start(event))
        self._oddities(event)
        if event.style == '"':
            self._escapes(event)
        elif not event.style and "?" in event.value and self._open and self._open[-1].is_flow:
            # go-yaml v2, scannerc.go: in flow context a question mark ends a plain scalar.
            self.report("yaml-syntax", _start(event), "? in an unquoted text", refused=True)
        value = self._scalar_value(event)
        if not self._is_key_next():
            self._keep(value, event.anchor, 1)
        elif event.value == "<<" and (event.implicit[0] or event.tag == _MERGE):
            self._open[-1].key, self._open[-1].is_merging = "<<", True
            self.report("yaml-key", _start(event), "a merge key", refused=False)
        else:
            self._key(value, _start(event))

    def alias(self, event: yaml.AliasEvent) -> None:
        """Take the value of an anchor once more, by reference."""
        offset = _start(event)
        self.report("yaml-alias", offset, f"alias *{event.anchor}", refused=False)
        if event.anchor not in self._anchors:
            self.report(
                "yaml-syntax", offset, f"alias *{event.anchor} without an anchor before it", refused=True
            )
            raise _StopError
        value, size = self._anchors[event.anchor]
        self._aliased += size
        if self._aliased > MAX_ALIASED or self._is_key_next():
            self.is_unsure = True
            raise _StopError
        self._keep(value, None, size)

    def _path(self) -> str:
        path = "$"
        for container in self._open:
            if isinstance(container.value, list):
                path = f"{path}[{len(container.value)}]"
            elif container.key is not None:
                path = member_path(path, container.key)
        return path

    def _count(self, offset: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self.report("too-many-values", offset, f"more than {MAX_NODES} values", refused=False)
            self.is_unsure = True
            raise _StopError

    def _is_key_next(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _oddities(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            self.report("yaml-tag", _start(event), f"tag {event.tag}", refused=False)
        if event.anchor is not None:
            self.report("yaml-alias", _start(event), f"anchor &{event.anchor}", refused=False)

    def _escapes(self, event: yaml.ScalarEvent) -> None:
        end = event.end_mark.index if event.end_mark else 0
        for match in _ESCAPE.finditer(self._text, _start(event), end):
            code = match[1] or match[2]
            if match[3] == "/":
                self.report("escaped-slash", match.start(), "\\/", refused=True)
            elif code and 0xD800 <= int(code, 16) <= 0xDFFF:
                self.report("surrogate-escape", match.start(), match[0], refused=True)

    def _scalar_value(self, event: yaml.ScalarEvent) -> object:
        if event.tag is None:
            return resolve(event.value) if event.implicit[0] else event.value
        try:
            return tagged(event.tag, event.value)
        except ValueError as error:
            self.report("yaml-syntax", _start(event), str(error), refused=True)
            return event.value

    def _key(self, value: object, offset: int) -> None:
        container = self._open[-1]
        key = as_key(value)
        if key is None:
            self.report("yaml-key", offset, "a key that is null", refused=True)
            raise _StopError
        container.key = key
        if not isinstance(value, str):
            self.report("yaml-key", offset, f"a key that is no text ({key})", refused=False)
        if isinstance(container.value, dict) and key in container.value:
            is_same = (type(value), value) in container.keys
            self.report("duplicate-key", offset, "repeated key", refused=is_same)
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
        elif parent.is_merging:
            self._merge(parent.value, parent.keys, value)
        elif parent.key is not None:
            parent.value[parent.key] = value
        parent.key, parent.is_merging = None, False

    def _merge(self, into: dict[str, object], keys: set[tuple[type, object]], value: object) -> None:
        """Merge as go-yaml's strict mode does: a key that is there already refuses the document."""
        for members in value if isinstance(value, list) else [value]:
            if not isinstance(members, dict) or not into.keys().isdisjoint(members):
                self.is_refused, self.reason = True, "a merge key"
                return
            into.update(members)
            keys.update((str, key) for key in members)


def read_yaml(text: str, *, loader: type[yaml.SafeLoader] | None = None) -> YamlText:
    """Return the first document of TEXT and all that is wrong with it; nothing is raised.

    TEXT has no byte order mark. Text after the first document is a finding, and no reason for a
    loader to refuse. LOADER is PyYAML's loader class: libyaml's where PyYAML was built with it, which
    is 20 times faster and, being what go-yaml was translated from, takes TABs where go-yaml does.
    """
    builder = _built(text, loader)
    for _ in range(_MAX_APOSTROPHES):
        if builder.apostrophe is None or len(text) > _MAX_WITH_APOSTROPHES:
            break
        # go-yaml takes \' for ', libyaml does not: without the backslash both read the same.
        text = text[: builder.apostrophe] + text[builder.apostrophe + 1 :]
        builder = _built(text, loader)
    # go-yaml 2 takes a byte order mark at the start of a line for one only where its buffer begins.
    builder.is_unsure |= builder.apostrophe is not None or (not builder.is_refused and "\n\ufeff" in text)
    if builder.root is None and not builder.findings:
        builder.is_refused, builder.reason = True, "the file has no document"
        builder.findings["empty-document"] = finding("empty-document", "$", "the file has no document")
    return YamlText(
        value=builder.root,
        findings=tuple(builder.findings.values()),
        is_refused=builder.is_refused,
        is_unsure=builder.is_unsure,
        reason=builder.reason,
    )


def _built(text: str, loader: type[yaml.SafeLoader] | None) -> _Builder:
    builder = _Builder(text)
    if match := _CONTROL.search(text):
        builder.report("control-character", match.start(), f"U+{ord(match[0]):04X}", refused=True)
    else:
        _read(builder, text, loader)
    return builder


def _read(builder: _Builder, text: str, loader: type[yaml.SafeLoader] | None) -> None:
    import yaml  # noqa: PLC0415 -- 19 ms, and most files are JSON

    if loader is None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    takers: dict[type, Callable[[Any], None]] = {
        yaml.DocumentStartEvent: lambda event: _directives(builder, event),
        yaml.MappingStartEvent: lambda event: builder.begin({}, event),
        yaml.SequenceStartEvent: lambda event: builder.begin([], event),
        yaml.MappingEndEvent: builder.end,
        yaml.SequenceEndEvent: builder.end,
        yaml.ScalarEvent: builder.scalar,
        yaml.AliasEvent: builder.alias,
    }
    is_over = False
    try:
        for event in yaml.parse(text, Loader=loader):
            if is_over:
                _after(builder, event)
                return
            if type(event) in takers:
                takers[type(event)](event)
            is_over = isinstance(event, yaml.DocumentEndEvent)
    except _StopError:
        return
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        _broken(builder, error, text, is_over=is_over)
        # PyYAML's own scanner refuses TABs that libyaml and go-yaml take.
        builder.is_unsure |= loader is yaml.SafeLoader and not is_over and "\t" in text


def _directives(builder: _Builder, event: yaml.DocumentStartEvent) -> None:
    # go-yaml v2, parserc.go: "found incompatible YAML document" for all but 1.1.
    if event.version not in (None, (1, 1)):
        builder.report("yaml-syntax", _start(event), "YAML version other than 1.1", refused=True)


def _after(builder: _Builder, event: yaml.Event) -> None:
    if hasattr(event, "explicit"):
        builder.report("several-documents", _start(event), "a second document", refused=False)


def _broken(builder: _Builder, error: Exception, text: str, *, is_over: bool) -> None:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    offset = mark.index if mark else getattr(error, "position", 0)
    problem = getattr(error, "problem", None) or str(error)
    if "unknown escape" in problem and "\\'" in text[max(0, offset - 1) : offset + 2]:
        builder.apostrophe = text.index("\\'", max(0, offset - 1))
    rule = "trailing-data" if is_over else "yaml-syntax"
    builder.report(rule, offset, f"not YAML: {problem}", refused=not is_over)
