"""Keys set in and taken out of JSON text, everything else kept byte for byte: ``put`` and ``take_back``.

The text is cut where the wanted member is and nowhere else: the standard library's scanner says where each
member begins and ends. No library for Python edits JSON and keeps its form.
"""

from __future__ import annotations

import json
import re

from cdigen.host.root import shown
from cdigen.model.change import Key
from cdigen.model.errors import ConfigError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.runtimes.edits.tomltext import DesiredKey, Value

_BOM = "\ufeff"
_SPACE = re.compile(r"[ \t\r\n]*")
_MENDED = "fix it: the runtime cannot read it either"
_USUAL_INDENT = "  "
_DECODER = json.JSONDecoder()


@frozen
class _Member:
    """A member of an object: its name, and where in the text that begins, and where the value is."""

    name: str
    start: int
    value: int
    end: int


@frozen
class _Object:
    """An object in the text: where it opens, its members, where its closing brace is."""

    start: int
    members: tuple[_Member, ...]
    end: int

    def member(self, name: str) -> _Member | None:
        return next((member for member in self.members if member.name == name), None)


def parse(content: bytes, file: str) -> dict[str, Any]:
    """Return the object in CONTENT, ``{}`` where it is empty; ConfigError with the line where it is none."""
    return _checked(_text(content, file), file)


def lookup(document: Any, path: tuple[str, ...]) -> Any:
    """Return what DOCUMENT holds at PATH, None where it holds nothing."""
    for part in path:
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    return document


def put(content: bytes, wanted: tuple[DesiredKey, ...], file: str) -> tuple[bytes, tuple[Key, ...]]:
    """Return CONTENT with the WANTED keys, and those that were set; a key that is as wanted stays untouched.

    ConfigError: FILE is no JSON object, has a key twice, or something else where an object is needed.
    """
    keys = []
    text = _text(content, file)
    for want in wanted:
        document = _checked(text, file)
        present, value = lookup(document, want.path), _plain(want.value)
        if type(present) is type(value) and present == value:
            continue
        text, key = _put(text if text.strip(_BOM + " \t\r\n") else text + "{\n}\n", want, file)
        keys.append(key)
    return text.encode(), tuple(keys)


def take_back(content: bytes, keys: tuple[Key, ...], file: str) -> tuple[bytes, tuple[Key, ...]]:
    """Return CONTENT without KEYS, or with what was there before; and those that others have changed since.

    What others have changed is no longer ours and stays. ConfigError as ``put``.
    """
    kept = []
    text = _text(content, file)
    for key in reversed(keys):
        document = _checked(text, file)
        present, value = lookup(document, key.path), json.loads(key.value)
        if type(present) is not type(value) or present != value:
            kept.append(key)
            continue
        text = _take_back(text, key)
    return text.encode(), tuple(reversed(kept))


def says_nothing(content: bytes, file: str) -> bool:
    """Return whether the object in CONTENT is empty."""
    return not parse(content, file)


def _put(text: str, want: DesiredKey, file: str) -> tuple[str, Key]:
    here = _object(text, _after(text, 1 if text.startswith(_BOM) else 0))
    outermost = here
    *tables, name = want.path
    for depth, part in enumerate(tables):
        member = here.member(part)
        if member is None:
            inner = {name: _plain(want.value)}
            for above in reversed(tables[depth + 1 :]):
                inner = {above: inner}
            key = Key(path=want.path, value=_compact(_plain(want.value)), made=len(tables) - depth)
            return _added(text, here, part, inner, outermost), key
        if text[member.value] != "{":
            raise ConfigError(f"{shown(file)}: {part!r} is no object", hint=_MENDED, kind="broken-file")
        here = _object(text, member.value)
    value = _compact(_plain(want.value))
    member = here.member(name)
    if member is None:
        return _added(text, here, name, _plain(want.value), outermost), Key(path=want.path, value=value)
    key = Key(path=want.path, value=value, before=text[member.value : member.end])
    return text[: member.value] + value + text[member.end :], key


def _added(text: str, here: _Object, name: str, value: Any, outermost: _Object) -> str:
    """Return TEXT with a member at the end of the object HERE, in the form of those that are there."""
    colon = ":" if _is_tight(text, outermost) else ": "
    if not here.members:
        gap = text[here.start + 1 : here.end]
        if "\n" not in gap and here != outermost:
            return f"{text[: here.start]}{{{_member(name, value, colon)}}}{text[here.end + 1 :]}"
        outer = re.split(r"\r?\n", text[: here.start])[-1]
        closing = outer[: len(outer) - len(outer.lstrip())]
        end = _line_end(text)
        indent = closing + _USUAL_INDENT
        added = _member(name, value, colon)
        return f"{text[: here.start + 1]}{end}{indent}{added}{end}{closing}{text[here.end :]}"
    last = here.members[-1]
    lead = text[here.start + 1 : here.members[0].start]
    # A blank line after the brace belongs to the first member alone.
    separator = _line_end(text) + lead.rpartition("\n")[2] if "\n" in lead else colon[1:]
    return f"{text[: last.end]},{separator}{_member(name, value, colon)}{text[last.end :]}"


def _take_back(text: str, key: Key) -> str:
    objects = [_object(text, _after(text, 1 if text.startswith(_BOM) else 0))]
    for part in key.path[:-1]:
        member = objects[-1].member(part)
        if member is None:
            return text
        objects.append(_object(text, member.value))
    depth = len(objects) - 1
    if key.before is not None:
        member = objects[depth].member(key.path[-1])
        return text if member is None else text[: member.value] + key.before + text[member.end :]
    # Objects that were made for our keys go with the last of them.
    while depth > len(objects) - 1 - key.made and len(objects[depth].members) == 1:
        depth -= 1
    return _removed(text, objects[depth], key.path[depth])


def _removed(text: str, here: _Object, name: str) -> str:
    index = next(index for index, member in enumerate(here.members) if member.name == name)
    if index > 0:
        return text[: here.members[index - 1].end] + text[here.members[index].end :]
    if len(here.members) > 1:
        return text[: here.members[0].start] + text[here.members[1].start :]
    return text[: here.start + 1] + text[here.end :]


def _object(text: str, start: int) -> _Object:
    """Return the object that opens at START of TEXT, which is known to be JSON."""
    members = []
    position = _after(text, start + 1)
    while text[position] != "}":
        if text[position] == ",":
            position = _after(text, position + 1)
        name, after_name = _DECODER.raw_decode(text, position)
        value = _after(text, _after(text, after_name) + 1)
        end = _DECODER.raw_decode(text, value)[1]
        members.append(_Member(name=name, start=position, value=value, end=end))
        position = _after(text, end)
    return _Object(start=start, members=tuple(members), end=position)


def _after(text: str, position: int) -> int:
    """Return where in TEXT the white space at POSITION ends."""
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _is_tight(text: str, outermost: _Object) -> bool:
    """Return whether the members of the document have no space after their colons."""
    members = outermost.members
    return bool(members) and all(text[member.value - 1] == ":" for member in members)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _member(name: str, value: Any, colon: str) -> str:
    separators = (", ", colon) if colon == ": " else (",", colon)
    return f"{json.dumps(name)}{colon}{json.dumps(value, ensure_ascii=False, separators=separators)}"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _broken(file, f"is not UTF-8 (at line {line})") from None


def _checked(text: str, file: str) -> dict[str, Any]:
    body = text.removeprefix(_BOM)
    if not body.strip(" \t\r\n"):
        return {}  # dockerd takes an empty file for none

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen = dict(pairs)
        if len(seen) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise _broken(file, f"has the key {twice!r} twice{_where(text, twice)}")
        return seen

    try:
        document = json.loads(body, object_pairs_hook=once, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise _broken(
            file, f"is no JSON: {error.msg} (at line {error.lineno}, column {error.colno})"
        ) from None
    except (ValueError, RecursionError) as error:
        raise _broken(file, f"is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise _broken(file, "is no JSON object (at line 1)")
    return document


def _where(text: str, name: str) -> str:
    """Return the line on which the key NAME stands for the second time, as far as its letters tell."""
    places = [found.start() for found in re.finditer(re.escape(json.dumps(name)) + r"\s*:", text)]
    lines = [text.count("\n", 0, place) + 1 for place in places]
    return f" (at line {lines[1]})" if len(lines) == 2 else ""


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


def _broken(file: str, what: str) -> ConfigError:
    return ConfigError(f"{shown(file)} {what}", hint=_MENDED, kind="broken-file")
