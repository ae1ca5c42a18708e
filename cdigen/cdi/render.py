"""Write JSON as cdigen writes it: spec files, inventories, the output of --json.

JSON, because YAML reads unquoted ``0`` and ``0666`` as numbers; UTF-8 unescaped, because the
runtimes read JSON with a YAML parser, which refuses the surrogate pairs of escaped characters
beyond U+FFFF. Every node and mount stands on a line of its own, so that a difference between two
specs reads as one.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_INDENT = "  "
_encode = json.JSONEncoder(ensure_ascii=False).encode
_WIDTH = 110


def render(value: Any, *, stray_bytes: bool = False) -> bytes:
    """Return VALUE as JSON text ending in a newline; key order is kept.

    With STRAY_BYTES, bytes of file names that are not UTF-8 become what Python makes of them, escaped
    (os.fsencode makes bytes of it again); UnicodeEncodeError without: a spec cannot hold them.
    """
    # UTF-8 lacks nothing but surrogates, and what Python's codec then writes is JSON's own escape for them.
    return (_text(value, "") + "\n").encode("utf-8", "backslashreplace" if stray_bytes else "strict")


def _text(value: Any, pad: str) -> str:
    """Return VALUE, on one line if that is short or nothing in it deserves a line of its own."""
    if not _has_entries(value):
        return _encode(value)
    inner = pad + _INDENT
    if isinstance(value, dict):
        entries = [f"{_encode(key)}: {_text(item, inner)}" for key, item in value.items()]
        opening, closing = "{}"
    else:
        entries = [_text(item, inner) for item in value]
        opening, closing = "[]"
    line = f"{opening}{', '.join(entries)}{closing}"
    if len(pad) + len(line) <= _WIDTH:
        return line
    lines = ",\n".join([inner + entry for entry in entries])
    return f"{opening}\n{lines}\n{pad}{closing}"


def _has_entries(value: Any) -> bool:
    """Return whether VALUE holds objects, directly or below: a list of nodes, a device, a document."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(item, dict) or (isinstance(item, list) and _has_entries(item)) for item in items)
