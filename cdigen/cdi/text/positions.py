"""Find the line and column of a JSON path in a text, JSON or YAML: ``positions``."""

from __future__ import annotations

from cdigen.cdi.rules.fields import member_path
from cdigen.cdi.text.events import readable_json
from cdigen.cdi.text.scalars import as_key, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    import yaml


def positions(text: str, paths: Iterable[str], *, is_yaml: bool) -> dict[str, tuple[int, int]]:
    """Return line and column of each of the JSON PATHS that TEXT has, both from one.

    A member stands where its key begins, one that is there twice where it does first. TEXT, without a
    byte order mark, is JSON or YAML whose first document was read.
    """
    import yaml  # noqa: PLC0415 -- 19 ms, and most files have no finding

    wanted = set(paths)
    found: dict[str, tuple[int, int]] = {}
    # The path of each open mapping or sequence, with the path of its next value, or its index.
    stack: list[_Frame] = []
    try:
        for event in yaml.parse(
            text if is_yaml else readable_json(text), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        ):
            if isinstance(event, yaml.NodeEvent):
                path = _path_of(event, stack)
                if path in wanted and event.start_mark:
                    found.setdefault(path, (event.start_mark.line + 1, event.start_mark.column + 1))
                    if len(found) == len(wanted):
                        break
            elif isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
            elif isinstance(event, yaml.DocumentEndEvent):
                break
    except (yaml.YAMLError, _ComplexKeyError):
        # What follows a JSON document may be anything, and may even make the document a key.
        return found
    return found


class _ComplexKeyError(Exception):
    """Ends the search at a key that is not a scalar: no document that was read has one."""


class _Frame:
    """An open mapping or sequence: its path, and what comes next in it."""

    __slots__ = ("index", "path", "value_path")

    def __init__(self, path: str, *, is_mapping: bool) -> None:
        self.path = path
        self.index = -1 if is_mapping else 0
        self.value_path = ""


def _path_of(event: yaml.NodeEvent, stack: list[_Frame]) -> str:
    """Return the path that the node EVENT is found at: a key's, an item's, or none for what has a key."""
    path = "$"
    is_new = True
    if stack:
        top = stack[-1]
        if top.index >= 0:
            path = f"{top.path}[{top.index}]"
            top.index += 1
        elif top.value_path:
            path, top.value_path, is_new = top.value_path, "", False
        else:
            top.value_path = member_path(top.path, _key_text(event))
            return top.value_path
    if hasattr(event, "flow_style"):
        stack.append(_Frame(path, is_mapping=type(event).__name__ == "MappingStartEvent"))
    return path if is_new else ""


def _key_text(event: Any) -> str:
    if not hasattr(event, "value"):
        raise _ComplexKeyError
    key = as_key(resolve(event.value)) if event.implicit[0] and event.tag is None else event.value
    return str(event.value) if key is None else key
