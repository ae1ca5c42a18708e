"""Read a TOML or JSON file of a runtime, and set keys in the file.

tomlkit keeps the comments and the layout of TOML. tomllib checks the result
(docs/decisions/0013-plain-edits.md). daemon.json has no comments, so cdigen loads daemon.json, and writes the
result with the indentation of the file.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy

from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The limit for the parts of a key. The time of tomllib grows faster than the square of the number of parts.
# 40,000 parts take 20 s. Real keys have five or six parts.
MAX_PARTS = 32
_NO_KEYS = re.compile(r"""\"[^"\n]*"|'[^'\n]*'|\#[^\n]*|[ \t]+""")
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]*+\.){{{MAX_PARTS},}}")

Value = bool | int | str | tuple[str, ...]


@frozen
class DesiredKey:
    """A key and its desired value."""

    path: tuple[str, ...]
    value: Value

    @property
    def name(self) -> str:
        """The key in its written form, such as ``engine.cdi_spec_dirs``."""
        return ".".join(part if "." not in part else f'"{part}"' for part in self.path)


def lookup(document: Any, path: tuple[str, ...]) -> Any:
    """Return the value in DOCUMENT at PATH; None if PATH does not exist."""
    for part in path:
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    return document


def parse_toml(content: bytes, file: str) -> dict[str, Any]:
    """Return the document in CONTENT; raise ConfigError with the line if FILE is not TOML."""
    import tomllib  # noqa: PLC0415 - only to configure a runtime

    text = _text(content, file)
    if found := _LONG_KEY.search(bare := _NO_KEYS.sub("", text)):
        line = bare.count("\n", 0, found.start()) + 1
        raise broken(file, f"has a key of more than {MAX_PARTS} parts (at line {line})")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib raises ValueError for thousands of digits
        raise broken(file, f"is not TOML: {error}") from None


def set_toml(content: bytes, keys: tuple[DesiredKey, ...], file: str) -> tuple[bytes, tuple[str, ...]]:
    """Return CONTENT with KEYS, and the names of the changed keys.

    Raises ConfigError if FILE is not TOML, or has a form that tomlkit cannot edit.
    """
    before = parse_toml(content, file)
    missing = tuple(key for key in keys if not _is_as_desired(before, key))
    if not missing:
        return content, ()
    expected = deepcopy(before)
    for key in missing:
        _set(expected, key, file)
    after = _edited(_text(content, file), missing)
    try:
        is_right = after is not None and parse_toml(after, file) == expected
    except ConfigError:
        is_right = False
    if after is None or not is_right:
        raise _not_editable(file, missing)
    return after, tuple(key.name for key in missing)


def parse_json(content: bytes, file: str, *, is_edited: bool = False) -> dict[str, Any]:
    """Return the object in CONTENT; an empty object if CONTENT is empty.

    The last of duplicate keys has precedence, as in dockerd. If IS_EDITED is true, a duplicate key is an
    error. Raises ConfigError with the line if CONTENT is not an object.
    """
    text = _text(content, file)
    if not text.strip():
        return {}  # dockerd treats an empty file as a missing file
    try:
        document = json.loads(
            text, object_pairs_hook=_once if is_edited else None, parse_constant=_no_constant
        )
    except json.JSONDecodeError as error:
        raise broken(
            file, f"is not JSON: {error.msg} (at line {error.lineno}, column {error.colno})"
        ) from None
    except (ValueError, RecursionError) as error:
        raise broken(file, f"is not JSON: {error}") from None
    if not isinstance(document, dict | None):
        raise broken(file, "is not a JSON object (at line 1)")
    return document or {}


def set_json(content: bytes, keys: tuple[DesiredKey, ...], file: str) -> tuple[bytes, tuple[str, ...]]:
    """Return CONTENT with KEYS, and the names of the changed keys.

    Raises ConfigError if FILE is not a JSON object, or if a part of a key has a value that is not an object.
    """
    document = parse_json(content, file, is_edited=True)
    missing = tuple(key for key in keys if not _is_as_desired(document, key))
    if not missing:
        return content, ()
    for key in missing:
        _set(document, key, file)
    text = _text(content, file)
    indent = re.search(r'\{\s*?\n([ \t]*)"', text)
    is_one_line = bool(text.strip()) and "\n" not in text.strip()
    try:
        after = json.dumps(
            document,
            indent=None if is_one_line else indent[1] if indent else "  ",
            ensure_ascii=False,
            allow_nan=False,
        ).encode()
    except ValueError as error:  # an infinite number, or half of a surrogate pair
        raise broken(file, f"cannot be written again: {error}") from None
    end = text[len(text.rstrip()) :] if text.strip() else "\n"
    return after + end.encode(), tuple(key.name for key in missing)


def _is_as_desired(document: dict[str, Any], key: DesiredKey) -> bool:
    present, value = lookup(document, key.path), _plain(key.value)
    # In Python, 1 == True. In a configuration, the two values differ.
    return type(present) is type(value) and bool(present == value)


def _set(document: dict[str, Any], key: DesiredKey, file: str) -> None:
    *tables, name = key.path
    for part in tables:
        document = document.setdefault(part, {})
        if not isinstance(document, dict):
            raise broken(file, f"has a value at {part!r}, where a table is needed")
    document[name] = _plain(key.value)


def _edited(text: str, keys: tuple[DesiredKey, ...]) -> bytes | None:
    """Return TEXT with KEYS, written by tomlkit; None if tomlkit fails (for some orders of tables)."""
    import tomlkit  # noqa: PLC0415 - 60 ms, only if a file is changed
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 - likewise

    try:
        document = tomlkit.parse(text)
        for key in keys:
            table: Any = document
            *tables, name = key.path
            for depth, part in enumerate(tables, start=1):
                if part not in table:
                    table[part] = tomlkit.table(is_super_table=depth < len(tables))
                table = table[part]
            table[name] = _plain(key.value)
        return tomlkit.dumps(document).encode()
    except (TOMLKitError, LookupError, TypeError, ValueError, AttributeError, AssertionError, RecursionError):
        return None


def _plain(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8-sig")  # the runtimes ignore a byte order mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise broken(file, f"is not UTF-8 (at line {line})") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"the key {twice!r} occurs twice")
    return dict(pairs)


def _no_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number of JSON")


def broken(file: str, what: str) -> ConfigError:
    """Return the error for a FILE that the runtime cannot read; WHAT is the text after the file name."""
    return ConfigError(
        f"{shown(file)} {what}", hint="fix the file, because the runtime cannot read it", kind="broken-file"
    )


def _not_editable(file: str, keys: tuple[DesiredKey, ...]) -> ConfigError:
    assignments = ", ".join(f"{key.name} = {json.dumps(_plain(key.value))}" for key in keys)
    return ConfigError(
        f"{shown(file)}: {keys[0].path[-1]} cannot be set without a change to other keys",
        hint=f"set manually: {assignments}",
    )
