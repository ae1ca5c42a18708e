"""Write a document as the bytes of a spec file.

JSON, because YAML reads unquoted ``0`` and ``0666`` as numbers; UTF-8 unescaped, because the
runtimes read JSON with a YAML parser, which refuses the surrogate pairs of escaped characters
beyond U+FFFF. Every device, node and mount stands on a line of its own, so that a difference
between two specs reads as one.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_INDENT = "  "


def render(document: dict[str, Any]) -> bytes:
    """Return DOCUMENT as JSON text ending in a newline; key order is kept."""
    return (_object(document, depth=0) + "\n").encode("utf-8")


def _object(value: dict[str, Any], *, depth: int) -> str:
    pad = _INDENT * (depth + 1)
    lines = [f"{pad}{_one_line(key)}: {_value(item, depth=depth + 1)}" for key, item in value.items()]
    return "{\n" + ",\n".join(lines) + "\n" + _INDENT * depth + "}"


def _value(value: Any, *, depth: int) -> str:
    if isinstance(value, dict) and value:
        return _object(value, depth=depth)
    if isinstance(value, list) and value:
        pad = _INDENT * (depth + 1)
        return "[\n" + ",\n".join(pad + _one_line(item) for item in value) + "\n" + _INDENT * depth + "]"
    return _one_line(value)


def _one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
