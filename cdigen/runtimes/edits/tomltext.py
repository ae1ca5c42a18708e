"""Keys set in and taken out of TOML text, everything else kept byte for byte: ``put`` and ``take_back``.

tomlkit edits (docs/decisions/0008-toml-edits.md), and tomllib judges: whatever tomlkit makes of a file, it
must say what the file said before and our keys, and no other line may have changed.
"""

from __future__ import annotations

import re

from cdigen.host.root import shown
from cdigen.model.change import Key
from cdigen.model.errors import ConfigError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

Value = bool | int | str | tuple[str, ...]

# tomlkit takes 3 s for this much in the worst case, and four times as long for twice as much. Whole dumps of
# containerd's configuration have 12 KB.
MAX_BYTES = 64 << 10
# Both parsers take memory by the square of it (tomllib: 40 GB for a key of 100,000 parts).
MAX_PARTS = 64
_PART = re.compile(r"""\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')\s*""")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_MENDED = "fix it: the runtime cannot read it either"


@frozen
class DesiredKey:
    """A key and the value that it shall have."""

    path: tuple[str, ...]
    value: Value


def parse(content: bytes, file: str) -> dict[str, Any]:
    """Return the document in CONTENT; ConfigError with the line where FILE is no TOML."""
    import tomllib  # noqa: PLC0415 - only where a runtime is configured

    text = _text(content, file)
    _refuse_excess(content, text, file)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits is a ValueError
        raise ConfigError(f"{shown(file)} is no TOML: {error}", hint=_MENDED, kind="broken-file") from None


def lookup(document: Any, path: tuple[str, ...]) -> Any:
    """Return what DOCUMENT holds at PATH, None where it holds nothing."""
    for part in path:
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    return document


def put(content: bytes, wanted: tuple[DesiredKey, ...], file: str) -> tuple[bytes, tuple[Key, ...]]:
    """Return CONTENT with the WANTED keys, and those that were set; a key that is as wanted stays untouched.

    ConfigError: FILE is no TOML, or cannot be edited without touching what is not ours.
    """
    keys = []
    for want in wanted:
        document = parse(content, file)
        if _is_same(lookup(document, want.path), _plain(want.value)):
            continue
        content, key = _put(content, document, want, file)
        keys.append(key)
    return content, tuple(keys)


def take_back(content: bytes, keys: tuple[Key, ...], file: str) -> tuple[bytes, tuple[Key, ...]]:
    """Return CONTENT without KEYS, or with what was there before; and those that others have changed since.

    What others have changed is no longer ours and stays. ConfigError as ``put``.
    """
    kept = []
    for key in reversed(keys):
        document = parse(content, file)
        present = lookup(document, key.path)
        if not _is_same(present, _value(key.value)):
            kept.append(key)
            continue
        content = _take_back(content, document, key, file)
    return content, tuple(reversed(kept))


def says_nothing(content: bytes, file: str) -> bool:
    """Return whether the document in CONTENT is empty."""
    return not parse(content, file)


def header(path: tuple[str, ...]) -> str:
    """Return the line that opens the table PATH."""
    return f"[{'.'.join(part if _BARE.fullmatch(part) else _string(part) for part in path)}]\n"


def written(value: Value) -> str:
    """Return VALUE as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _string(value)
    return f"[{', '.join(map(_string, value))}]"


def _put(content: bytes, document: dict[str, Any], want: DesiredKey, file: str) -> tuple[bytes, Key]:
    *tables, name = want.path
    there = _tables_there(document, tables)
    text = written(want.value)
    expected = _with(document, want.path, _plain(want.value))
    if there < len(tables) and lookup(document, tuple(tables[: there + 1])) is not None:
        raise _stubborn(file, want.path, text)
    if there < len(tables):
        # A table at the end of the file is the change that touches least, wherever its parents are.
        added = f"{header(tuple(tables))}{name} = {text}\n"
        ways: list[Callable[[str], str]] = [lambda old: _appended(old, added), lambda old: _set(old, want)]
    else:
        ways = [lambda old: _set(old, want)]
    before, replaced = None, 0
    if lookup(document, want.path) is not None:
        before = _tried(lambda: _raw(_text(content, file), want.path))
        if before is None:
            raise _stubborn(file, want.path, text)
        replaced = before.count("\n") + 1
    key = Key(path=want.path, value=text, before=before, made=len(tables) - there)
    for way in ways:
        after = _edited(content, way, file)
        if after is not None and _is_only(content, after, expected, replaced, file):
            return after, key
    raise _stubborn(file, want.path, text)


def _take_back(content: bytes, document: dict[str, Any], key: Key, file: str) -> bytes:
    expected = _with(document, key.path, _value(key.before) if key.before is not None else None)
    bare = expected
    for depth in range(len(key.path) - 1, len(key.path) - 1 - key.made, -1):
        # Tables that were made for our keys go with the last of them.
        if lookup(bare, key.path[:depth]) == {}:
            bare = _with(bare, key.path[:depth], None)
    after = _edited(content, lambda old: _unset(old, key), file)
    lines = key.value.count("\n") + 1 + key.made
    # A table with a comment of somebody else's stays.
    if after is not None and any(_is_only(content, after, said, lines, file) for said in (bare, expected)):
        return after
    raise ConfigError(
        f"{shown(file)}: {key.name} cannot be taken out without touching what is not ours",
        hint=f"take the line '{key.path[-1]} = {key.value}' out by hand",
    )


def _set(text: str, want: DesiredKey) -> str:
    import tomlkit  # noqa: PLC0415 - 60 ms, only where a file is changed

    document = tomlkit.parse(text)
    table: Any = document
    for part in want.path[:-1]:
        if part not in table:
            table[part] = tomlkit.table()
        table = table[part]
    name = want.path[-1]
    item = tomlkit.value(written(want.value))
    if name in table:
        table[name] = item
        return document.as_string()
    indent = _indent(text, table)
    table[name] = item
    if indent:
        item.trivia.indent = indent
    return document.as_string()


def _unset(text: str, key: Key) -> str:
    import tomlkit  # noqa: PLC0415 - 60 ms, only where a file is changed

    document = tomlkit.parse(text)
    tables: list[Any] = [document]
    for part in key.path[:-1]:
        tables.append(tables[-1][part])
    if key.before is not None:
        tables[-1][key.path[-1]] = tomlkit.value(key.before)
        return document.as_string()
    del tables[-1][key.path[-1]]
    for depth in range(len(key.path) - 2, len(key.path) - 2 - key.made, -1):
        if len(tables[depth + 1]) == 0 and not tables[depth + 1].as_string().strip():
            del tables[depth][key.path[depth]]
    after = document.as_string()
    # The blank line before a table that was appended.
    return after[:-1] if key.made and after.endswith("\n\n") else after


def _indent(text: str, table: Any) -> str:
    """Return the white space before the keys of TABLE, nothing where it has none."""
    for name in table:
        found = re.search(rf"^([ \t]*){re.escape(str(name))}[ \t]*=", text, re.MULTILINE)
        if found and not isinstance(table[name], dict):
            return found[1]
    return ""


def _raw(text: str, path: tuple[str, ...]) -> str:
    import tomlkit  # noqa: PLC0415 - 60 ms, only where a file is changed

    item: Any = tomlkit.parse(text)
    for part in path:
        item = item[part]
    # tomlkit gives a bare bool for a boolean.
    raw: str = written(item) if isinstance(item, bool) else item.as_string()
    return raw


def _edited(content: bytes, edit: Callable[[str], str], file: str) -> bytes | None:
    """Return CONTENT as EDIT makes it, None where that fails; the ends of lines stay as they are."""
    text = _text(content, file)
    crlf = "\r\n" in text and text.count("\n") == text.count("\r\n")
    after = _tried(lambda: edit(text.replace("\r\n", "\n") if crlf else text))
    return None if after is None else (after.replace("\n", "\r\n") if crlf else after).encode()


def _tried(work: Callable[[], str]) -> str | None:
    """Return what WORK gives, None where tomlkit fails, as it does with some tables out of order."""
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 - see _set

    try:
        return work()
    except (TOMLKitError, LookupError, TypeError, ValueError, AttributeError, AssertionError, RecursionError):
        return None


def _is_only(before: bytes, after: bytes, expected: dict[str, Any], lines: int, file: str) -> bool:
    """Return whether AFTER says EXPECTED, and at most LINES of the lines of BEFORE are gone."""
    try:
        document = parse(after, file)
    except ConfigError:
        return False
    return document == expected and _lines_lost(before, after) <= lines


def _lines_lost(before: bytes, after: bytes) -> int:
    old, new = (content.strip(b"\r\n").splitlines() for content in (before, after))
    while old and new and old[0] == new[0]:
        old, new = old[1:], new[1:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    from difflib import SequenceMatcher  # noqa: PLC0415 - only where a file is changed

    old, new = ([line for line in lines if line.strip()] for lines in (old, new))
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return len(old) - sum(block.size for block in blocks)


def _appended(text: str, added: str) -> str:
    if not text.strip():
        return text + added
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}\n{added}"


def _tables_there(document: dict[str, Any], tables: list[str]) -> int:
    count = 0
    here: Any = document
    for part in tables:
        here = here.get(part)
        if not isinstance(here, dict):
            break
        count += 1
    return count


def _with(document: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return a copy of DOCUMENT with VALUE at PATH, None for nothing."""
    copy = dict(document)
    name, *rest = path
    if rest:
        below = copy.get(name)
        copy[name] = _with(below if isinstance(below, dict) else {}, tuple(rest), value)
    elif value is None:
        copy.pop(name, None)
    else:
        copy[name] = value
    return copy


def _value(text: str) -> Any:
    import tomllib  # noqa: PLC0415 - see parse

    return tomllib.loads(f"x = {text}")["x"]


def _is_same(present: Any, wanted: Any) -> bool:
    # 1 == True in Python, and not in TOML.
    return type(present) is type(wanted) and bool(present == wanted)


def _plain(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{shown(file)} is not UTF-8 (at line {line})", hint=_MENDED, kind="broken-file"
        ) from None


def _refuse_excess(content: bytes, text: str, file: str) -> None:
    if len(content) > MAX_BYTES:
        raise ConfigError(
            f"{shown(file)} has {len(content)} bytes, and more than {MAX_BYTES} are not edited",
            hint="set by hand what docs/configure.md lists",
            kind="broken-file",
        )
    for number, line in enumerate(text.splitlines(), start=1):
        run = 0
        for part in line.split(".") if line.count(".") >= MAX_PARTS else ():
            run = run + 1 if _PART.fullmatch(part) else 0
            if run >= MAX_PARTS:
                raise ConfigError(
                    f"{shown(file)} has a key of more than {MAX_PARTS} parts (at line {number})",
                    hint=_MENDED,
                    kind="broken-file",
                )


def _stubborn(file: str, path: tuple[str, ...], text: str) -> ConfigError:
    table = header(path[:-1]).strip()
    return ConfigError(
        f"{shown(file)} is written so that {path[-1]} cannot be set without touching what is not ours",
        hint=f"set it by hand: {path[-1]} = {text} in {table}",
    )
