"""``render``: returns the JSON text of spec files, inventories and the output of --json.

cdigen writes JSON, because YAML parsers read unquoted ``0`` and ``0666`` as numbers. The text is UTF-8, and
non-ASCII characters are not escaped. The JSON escape of a character above U+FFFF is a surrogate pair, which
the YAML parsers of the runtimes refuse. Each device node and each mount has its own line, so a text diff of
two specs shows one line for each difference.
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
    """Return VALUE as JSON text that ends in a newline; the keys keep their order.

    File names can contain bytes that are not UTF-8. If STRAY_BYTES is true, such bytes are escaped as
    Python's surrogates, and os.fsencode restores the bytes. If STRAY_BYTES is false, such bytes raise
    UnicodeEncodeError, because a spec cannot contain them.
    """
    # UTF-8 encodes all characters except surrogates. "backslashreplace" writes surrogates as JSON escapes.
    return (_text(value, "") + "\n").encode("utf-8", "backslashreplace" if stray_bytes else "strict")


def _text(value: Any, pad: str) -> str:
    """Return VALUE as JSON; the text has one line if the line is short or VALUE contains no objects."""
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
    """Return whether VALUE, for example a list of nodes or a device, contains objects at any level."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(item, dict) or (isinstance(item, list) and _has_entries(item)) for item in items)
