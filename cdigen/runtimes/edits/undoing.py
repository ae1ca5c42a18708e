"""Our keys taken out of a file that others have changed since: ``without``."""

from __future__ import annotations

from cdigen.model.change import Change
from cdigen.runtimes.edits import jsontext, tomltext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.change import Key


def without(
    path: str, present: bytes, keys: tuple[Key, ...], *, made: bool
) -> tuple[Change, tuple[Key, ...]]:
    """Return the change that takes KEYS out of the file, and those that others have set anew, which stay.

    A file that we MADE and that says nothing any more goes. ConfigError: it is broken, or cannot be edited.
    """
    text = jsontext if path.endswith(".json") else tomltext
    after, kept = text.take_back(present, keys, path)
    is_empty = made and text.says_nothing(after, path) and _holds_only_our_comment(after)
    return Change(path=path, before=present, after=None if is_empty else after), kept


def _holds_only_our_comment(content: bytes) -> bool:
    lines = [line for line in content.splitlines() if line.strip() not in {b"", b"{", b"}", b"{}"}]
    return all(line.startswith(b"# Written by 'cdigen configure ") for line in lines)
