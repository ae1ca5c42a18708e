"""What a text must be to be shown as a status: ``parse``.

``cdigen status`` reads no value that is not checked here, whoever wrote the file. A daemon of another
version may say more: fields that are not known are no mistake, as far as they can be printed.
"""

from __future__ import annotations

import json
from math import isfinite

from cdigen.model.strict import InvalidValue, flag, many, optional

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.model.strict import Reader

SCHEMA = 1
# A status nests four levels; what prints it recurses, so a bound is needed at all.
MAX_DEPTH = 16


def parse(data: bytes) -> dict[str, Any]:
    """Return the status in DATA, JSON in UTF-8, -16 or -32. ValueError: what is wrong with it, in words."""
    try:
        document = json.loads(data, parse_constant=_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if type(schema) is not int or schema != SCHEMA:
        raise ValueError(f"its schema is {_short(schema)}, not {SCHEMA}")
    if _is_deep(document):
        raise ValueError(f"it nests deeper than {MAX_DEPTH} levels")
    found: dict[str, Any] = _STATUS(document, "$")
    return found


def _constant(name: str) -> float:
    raise ValueError(f"it holds {name}")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("it holds a number that is too large")
    return number


def _short(value: object) -> str:
    return type(value).__name__ if isinstance(value, list | dict) else ascii(value)[:40]


def _is_deep(value: object) -> bool:
    """Return whether VALUE nests deeper than MAX_DEPTH; a loop, since recursion is what it guards."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(path, "text")
    return value


def _number(value: object, path: str) -> int:
    if type(value) is not int:  # true is an int as well
        raise InvalidValue(path, "a whole number")
    return value


def _members(*, required: bool = False, **readers: Reader) -> Reader:
    """Return a reader of an object in which those fields of READERS that are there are as they must be."""

    def read(value: object, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InvalidValue(path, "an object")
        for name, reader in readers.items():
            if name in value:
                reader(value[name], f"{path}.{name}")
            elif required:
                raise InvalidValue(f"{path}.{name}", "there, but it has to be")
        return value

    return read


def _named(reader: Reader) -> Reader:
    """Return a reader of an object whose fields, whatever their names, are for READER."""

    def read(value: object, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InvalidValue(path, "an object")
        for name, item in value.items():
            reader(item, f"{path}.{name}")
        return value

    return read


_STATUS = _members(
    required=True,
    state=_text,
    since=_text,
    version=_text,
    pid=_number,
    pid_started=_number,
    pid_namespace=_text,
    started=_text,
    last_success=optional(_text),
    vendors=many(_members(vendor=_text, state=_text, since=_text, reason=_text, hint=_text)),
    specs=many(
        _members(
            kind=_text,
            file=_text,
            result=_text,
            reason=_text,
            devices=_members(served=_number, left_out=_number),
            written=optional(_text),
        )
    ),
    findings=many(_members(severity=_text, rule=_text, path=_text, message=_text, hint=_text)),
    last_cycle=_members(
        started=_text,
        result=_text,
        error=_text,
        reasons=many(_members(source=_text, reason=_text)),
    ),
    sources=_named(_members(healthy=flag, problem=_text)),
    journal=many(_members(at=_text, kind=_text, result=_text, summary=_text)),
)
