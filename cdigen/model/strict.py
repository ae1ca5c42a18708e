"""Strict readers for JSON values, which check each value and convert it.

Readers are nested like the document: ``record(cls, name=text, sizes=many(number))``. A reader raises
``InvalidValue`` at the first invalid value. The caller converts ``InvalidValue`` to another error.
``as_json`` is the inverse of ``record``.
"""

from __future__ import annotations

from cdigen.model.findings import Finding
from cdigen.value import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Reader = Callable[[object, str], Any]

MAX_NUMBER = (1 << 32) - 1
# The maximum of ``seconds``: longer than any real time, and exact as a float.
_MOST_S = 1 << 53


class InvalidValue(ValueError):
    """An invalid value in a document: its JSON path, and a description of the expected value."""

    def __init__(self, path: str, expected: str) -> None:
        # Field names also come from the document. They may be long and may contain any character.
        where = path if path.isprintable() else ascii(path)[1:-1]
        super().__init__(f"{where[:200]} is not {expected}")
        self.path = where[:200]
        self.expected = expected


def members(
    value: object, path: str, names: set[str], optional: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return VALUE if it is an object with all members NAMES, any members of OPTIONAL, and no others."""
    if not isinstance(value, dict):
        raise InvalidValue(path, "an object")
    if missing := sorted(names - value.keys()):
        raise InvalidValue(f"{path}.{missing[0]}", "present, but required")
    if unknown := sorted(value.keys() - names - optional):
        raise InvalidValue(f"{path}.{unknown[0]}", "a field of this schema")
    return value


def text(value: object, path: str) -> str:
    """Return VALUE, a text without control characters."""
    if not isinstance(value, str):
        raise InvalidValue(path, "text")
    if not value.isprintable():
        raise InvalidValue(path, "free of control characters")
    return value


def number(value: object, path: str) -> int:
    """Return VALUE, a whole number from 0 to MAX_NUMBER."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_NUMBER:
        raise InvalidValue(path, f"a whole number from 0 to {MAX_NUMBER}")
    return value


def seconds(value: object, path: str) -> float:
    """Return VALUE, a finite number of seconds, which may be negative."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST_S:
        return float(value)
    raise InvalidValue(path, "a number of seconds")


def flag(value: object, path: str) -> bool:
    """Return VALUE, true or false."""
    if not isinstance(value, bool):
        raise InvalidValue(path, "true or false")
    return value


def optional(reader: Reader) -> Reader:
    """Return a reader that accepts null and all values that READER accepts."""
    return lambda value, path: None if value is None else reader(value, path)


def one_of(*words: str) -> Reader:
    """Return a reader that accepts one of WORDS."""

    def read(value: object, path: str) -> str:
        if value not in words:
            raise InvalidValue(path, f"one of {', '.join(words)}")
        return str(value)

    return read


def many(reader: Reader) -> Reader:
    """Return a reader that converts a list to a tuple; READER reads each item."""

    def read(value: object, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise InvalidValue(path, "a list")
        return tuple(reader(item, f"{path}[{position}]") for position, item in enumerate(value))

    return read


def record(cls: type, *optional_names: str, **readers: Reader) -> Reader:
    """Return a reader that converts an object with exactly the members READERS to an instance of CLS.

    The members OPTIONAL_NAMES may be missing. CLS has the defaults of these members.
    """
    defaulted = frozenset(optional_names)

    def read(value: object, path: str) -> Any:
        values = members(value, path, readers.keys() - defaulted, defaulted)
        return cls(
            **{
                name: reader(values[name], f"{path}.{name}")
                for name, reader in readers.items()
                if name in values
            }
        )

    return read


def as_json(value: object) -> Any:
    """Return the frozen instance VALUE as JSON that ``record`` can read; tuples become lists."""
    if isinstance(value, Finding):
        return value.row()
    if names := fields(value):
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    return value
