"""Where in a text the member at a JSON path stands: for findings about a document that was read.

Asked only where something is wrong. What no finding is about is passed over by the standard library's
scanner, so 100,000 devices take no longer than to read them.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    import yaml

# Path segments to what lies below them: a key, or an index.
Tree = dict["str | int", "Tree"]

# Every event of YAML costs microseconds, and there is no passing over.
MAX_YAML = 1 << 20

# The parts of the standard library's decoder, which its types do not name.
_DECODER: Any = json.decoder
_SEGMENT = re.compile(r'\.([^.\[]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')


def positions(text: str, paths: Iterable[str], *, is_yaml: bool) -> dict[str, tuple[int, int]]:
    """Return line and column of each of PATHS that TEXT has, both from one.

    A member stands where its key begins, one that is there twice where it does first. TEXT, without a
    byte order mark, is JSON or YAML whose first document was read, to ``MAX_DEPTH`` at most; in YAML
    above ``MAX_YAML`` nothing is looked up.
    """
    wanted = {path: tuple(_segments(path)) for path in paths}
    tree: Tree = {}
    for segments in wanted.values():
        node = tree
        for segment in segments:
            node = node.setdefault(segment, {})
    if is_yaml and len(text) > MAX_YAML:
        return {}
    found = _in_yaml(text, tree) if is_yaml else _in_json(text, tree)
    known = _lines_and_columns(text, sorted(set(found.values())))
    return {path: known[found[segments]] for path, segments in wanted.items() if segments in found}


def _lines_and_columns(text: str, offsets: list[int]) -> dict[int, tuple[int, int]]:
    """Return the places of OFFSETS, which rise: their lines are counted in one pass."""
    known: dict[int, tuple[int, int]] = {}
    line, before = 1, 0
    for offset in offsets:
        line += text.count("\n", before, offset)
        known[offset] = (line, offset - text.rfind("\n", 0, offset))
        before = offset
    return known


def _segments(path: str) -> Iterable[str | int]:
    for name, index, quoted in _SEGMENT.findall(path):
        yield int(index) if index else json.loads(quoted) if quoted else name


Found = dict["tuple[str | int, ...]", int]


class _AllFoundError(Exception):
    """Ends the walk where nothing more is wanted."""


class _JsonWalk:
    """One walk over JSON along the branches of a tree."""

    def __init__(self, text: str, wanted: int) -> None:
        self.found: Found = {}
        self._wanted = wanted
        self._text = text
        # Numbers stay text: one of 5,000 digits is no reason to stop here.
        decoder: Any = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
        self._scan = decoder.scan_once

    def value(self, offset: int, tree: Tree, path: tuple[str | int, ...]) -> int:
        """Return the end of the value at OFFSET, having walked through what TREE asks for."""
        if tree and self._text[offset] == "{":
            return self._object(offset, tree, path)
        if tree and self._text[offset] == "[":
            return self._list(offset, tree, path)
        end: int = self._scan(self._text, offset)[1]
        return end

    def skip(self, offset: int) -> int:
        """Return where the white space at OFFSET ends."""
        end: int = _DECODER.WHITESPACE.match(self._text, offset).end()
        return end

    def _object(self, offset: int, tree: Tree, path: tuple[str | int, ...]) -> int:
        offset = self.skip(offset + 1)
        while self._text[offset] != "}":
            key, end = _DECODER.scanstring(self._text, offset + 1)
            value = self.skip(self.skip(end) + 1)
            if key in tree:
                self._find((*path, key), offset)
            offset = self._next(self.value(value, tree.get(key, {}), (*path, key)))
        return offset + 1

    def _list(self, offset: int, tree: Tree, path: tuple[str | int, ...]) -> int:
        offset = self.skip(offset + 1)
        index = 0
        while self._text[offset] != "]":
            if index in tree:
                self._find((*path, index), offset)
            offset = self._next(self.value(offset, tree.get(index, {}), (*path, index)))
            index += 1
        return offset + 1

    def _find(self, path: tuple[str | int, ...], offset: int) -> None:
        self.found.setdefault(path, offset)
        if len(self.found) == self._wanted:
            raise _AllFoundError

    def _next(self, offset: int) -> int:
        offset = self.skip(offset)
        return self.skip(offset + 1) if self._text[offset] == "," else offset


def _in_json(text: str, tree: Tree) -> Found:
    walk = _JsonWalk(text, 1 + _size(tree))
    start = walk.skip(0)
    walk.found[()] = start
    with suppress(_AllFoundError):
        walk.value(start, tree, ())
    return walk.found


def _size(tree: Tree) -> int:
    return len(tree) + sum(map(_size, tree.values()))


class _Frame:
    """A mapping or sequence that is open: its branch of the tree, and what comes next in it."""

    __slots__ = ("index", "is_mapping", "key", "path", "tree")

    def __init__(self, tree: Tree | None, path: tuple[str | int, ...], *, is_mapping: bool) -> None:
        self.tree = tree
        self.path = path
        self.is_mapping = is_mapping
        self.key: str | None = None
        self.index = 0


def _in_yaml(text: str, tree: Tree) -> Found:
    import yaml  # noqa: PLC0415 -- 19 ms, and most files are JSON

    found: Found = {}
    stack: list[_Frame] = []
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
            elif isinstance(event, yaml.NodeEvent):
                _node(event, stack, tree, found, is_mapping=isinstance(event, yaml.MappingStartEvent))
            elif isinstance(event, yaml.DocumentEndEvent):
                break
    except yaml.YAMLError:
        # After the document that was read there may be anything.
        return found
    return found


def _node(event: Any, stack: list[_Frame], tree: Tree, found: Found, *, is_mapping: bool) -> None:
    """Take a node: a key, or a value, which opens a frame where it is no scalar."""
    offset: int = event.start_mark.index
    below: Tree | None = tree
    path: tuple[str | int, ...] = ()
    if not stack:
        found[()] = offset
    else:
        top = stack[-1]
        if top.is_mapping and top.key is None:
            top.key = _key(event)
            if top.tree and top.key in top.tree:
                found.setdefault((*top.path, top.key), offset)
            return
        step: str | int = top.index if top.key is None else top.key
        path = (*top.path, step)
        below = (top.tree or {}).get(step)
        if not top.is_mapping and top.tree and step in top.tree:
            found[path] = offset
        top.key, top.index = None, top.index + 1
    if hasattr(event, "flow_style"):
        stack.append(_Frame(below, path, is_mapping=is_mapping))


def _key(event: yaml.ScalarEvent) -> str:
    from cdigen.cdi.yaml_scalars import as_key, resolve  # noqa: PLC0415 -- as yaml itself

    key = as_key(resolve(event.value)) if event.implicit[0] and event.tag is None else event.value
    return str(event.value) if key is None else key
