"""Read JSON strictly: readers check a value and return its meaning.

They are nested like the document: ``record(cls, name=text, sizes=many(number))``. The first invalid place
raises ``InvalidValue``; the caller says whose fault that is. ``as_json`` is
the way back.
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
# Longer than any clock counts, and exact as a float.
_MOST_S = 1 << 53


class InvalidValue(ValueError):
    """Names the place of a document that is invalid, and what is wanted."""

    def __init__(self, path: str, wanted: str) -> None:
        # Field names come from the document, too: they may be long and contain anything.
        where = path if path.isprintable() else ascii(path)[1:-1]
        super().__init__(f"{where[:200]} is not {wanted}")
        self.path = where[:200]
        self.wanted = wanted


def members(
    value: object, path: str, names: set[str], optional: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return VALUE, an object with exactly these members; those OPTIONAL may be missing."""
    if not isinstance(value, dict):
        raise InvalidValue(path, "an object")
    if missing := sorted(names - value.keys()):
        raise InvalidValue(f"{path}.{missing[0]}", "there, but it has to be")
    if unknown := sorted(value.keys() - names - optional):
        raise InvalidValue(f"{path}.{unknown[0]}", "a field of this schema")
    return value


def text(value: object, path: str) -> str:
    """Return a text without control characters."""
    if not isinstance(value, str):
        raise InvalidValue(path, "text")
    if not value.isprintable():
        raise InvalidValue(path, "free of control characters")
    return value


def number(value: object, path: str) -> int:
    """Return a whole number of 32 bits."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_NUMBER:
        raise InvalidValue(path, f"a whole number from 0 to {MAX_NUMBER}")
    return value


def seconds(value: object, path: str) -> float:
    """Return a number of seconds, finite, of either sign."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST_S:
        return float(value)
    raise InvalidValue(path, "a number of seconds")


def flag(value: object, path: str) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise InvalidValue(path, "true or false")
    return value


def optional(reader: Reader) -> Reader:
    """Return a reader of null, or what READER reads."""
    return lambda value, path: None if value is None else reader(value, path)


def one_of(*words: str) -> Reader:
    """Return a reader of one of WORDS."""

    def read(value: object, path: str) -> str:
        if value not in words:
            raise InvalidValue(path, f"one of {', '.join(words)}")
        return str(value)

    return read


def many(reader: Reader) -> Reader:
    """Return a reader of a list, which becomes a tuple."""

    def read(value: object, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise InvalidValue(path, "a list")
        return tuple(reader(item, f"{path}[{position}]") for position, item in enumerate(value))

    return read


def record(cls: type, *added: str, **readers: Reader) -> Reader:
    """Return a reader of an object with exactly these members, which becomes an instance of CLS.

    Those ADDED since the first version of its document may be missing: CLS has their defaults.
    """
    later = frozenset(added)

    def read(value: object, path: str) -> Any:
        values = members(value, path, readers.keys() - later, later)
        return cls(
            **{
                name: reader(values[name], f"{path}.{name}")
                for name, reader in readers.items()
                if name in values
            }
        )

    return read


def as_json(value: object) -> Any:
    """Return VALUE, made of frozen classes, as the JSON that ``record`` reads; tuples become lists."""
    if isinstance(value, Finding):
        return value.row()
    if names := fields(value):
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    return value
