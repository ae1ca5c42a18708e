"""Strict readers for values, which check each value and convert it.

Readers are nested like the document: ``record(cls, path=_path, sizes=many(_size))``. A reader raises
``InvalidValue`` at the first invalid value. The caller converts ``InvalidValue`` to another error.
``as_json`` is the inverse of ``record`` and ``typed_record``. The readers also accept the converted values,
tuples and frozen instances, so that they check values of other packages' code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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


def string(value: object, path: str) -> str:
    """Return VALUE, a text with any characters, such as the path of a file."""
    if not isinstance(value, str):
        raise InvalidValue(path, "text")
    return value


def text(value: object, path: str) -> str:
    """Return VALUE, a text without control characters."""
    if not string(value, path).isprintable():
        raise InvalidValue(path, "free of control characters")
    return str(value)


def whole(least: int, most: int) -> Reader:
    """Return a reader that accepts a whole number from LEAST to MOST."""

    def read(value: object, path: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise InvalidValue(path, f"a whole number from {least} to {most}")
        return value

    return read


# The reader of a whole number from 0 to MAX_NUMBER.
number = whole(0, MAX_NUMBER)


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


PLAIN: dict[str, Reader] = {"str": text, "int": number, "float": seconds, "bool": flag}


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


def matching(pattern: str, expected: str) -> Reader:
    """Return a reader that accepts a text that matches the regular expression PATTERN as a whole."""

    def read(value: object, path: str) -> str:
        if not re.fullmatch(pattern, text(value, path), re.ASCII):
            raise InvalidValue(path, expected)
        return str(value)

    return read


def many(reader: Reader) -> Reader:
    """Return a reader that converts a list to a tuple; READER reads each item."""

    def read(value: object, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise InvalidValue(path, "a list")
        return tuple(reader(item, f"{path}[{position}]") for position, item in enumerate(value))

    return read


def mapping(reader: Reader) -> Reader:
    """Return a reader that accepts an object with any members; READER reads each value."""

    def read(value: object, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InvalidValue(path, "an object")
        return {name: reader(item, f"{path}.{name}") for name, item in value.items()}

    return read


def record(cls: type, *optional_names: str, **readers: Reader) -> Reader:
    """Return a reader that converts an object with exactly the members READERS to an instance of CLS.

    The members OPTIONAL_NAMES may be missing. CLS has the defaults of these members.
    """
    defaulted = frozenset(optional_names)

    def read(value: object, path: str) -> Any:
        if isinstance(value, cls):
            value = {name: getattr(value, name) for name in readers}
        values = members(value, path, readers.keys() - defaulted, defaulted)
        return cls(
            **{
                name: reader(values[name], f"{path}.{name}")
                for name, reader in readers.items()
                if name in values
            }
        )

    return read


def typed_record(cls: type, *optional_names: str, **readers: Reader) -> Reader:
    """Return the reader of ``record`` for all fields of the frozen class CLS.

    A field that is not in READERS has the reader of its type (``reader_of``).
    """
    types: dict[str, str] = cls.__annotations__
    every = {name: readers.get(name) or reader_of(spelled) for name, spelled in types.items()}
    return record(cls, *optional_names, **every)


def reader_of(spelled: str, other: Callable[[str], Reader] = PLAIN.__getitem__) -> Reader:
    """Return the reader of the type SPELLED in an annotation, such as ``tuple[str, ...]`` or ``int | None``.

    OTHER returns the reader of each other type, by default of the types in PLAIN.
    """
    if spelled.endswith(" | None"):
        return optional(reader_of(spelled.removesuffix(" | None"), other))
    if spelled.startswith("tuple[") and spelled.endswith(", ...]"):
        return many(reader_of(spelled[len("tuple[") : -len(", ...]")], other))
    return other(spelled)


def as_json(value: object) -> Any:
    """Return VALUE as JSON that ``record`` can read; frozen instances become objects, tuples become lists."""
    if isinstance(value, Finding):
        return value.row()
    if names := fields(value):
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {name: as_json(item) for name, item in value.items()}
    return value
