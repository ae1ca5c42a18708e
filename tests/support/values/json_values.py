"""Reads and changes a value of a JSON document by its keys: `places`, `at`, `changed`, `without`."""

import copy
from collections.abc import Iterator
from typing import Any

Place = tuple[str | int, ...]


def places(document: object, place: Place = ()) -> Iterator[Place]:
    """Yield the keys that lead to each value of DOCUMENT, first PLACE, which leads to DOCUMENT itself."""
    yield place
    if isinstance(document, dict | list):
        for key, item in document.items() if isinstance(document, dict) else enumerate(document):
            yield from places(item, (*place, key))


def at(document: Any, place: Place) -> Any:
    """Return the value at PLACE."""
    for key in place:
        document = document[key]
    return document


def changed(document: object, place: Place, value: object) -> Any:
    """Return a copy of DOCUMENT with VALUE at PLACE."""
    if not place:
        return value
    made = copy.deepcopy(document)
    at(made, place[:-1])[place[-1]] = value
    return made


def without(document: object, place: Place) -> Any:
    """Return a copy of DOCUMENT without the value at PLACE."""
    made = copy.deepcopy(document)
    del at(made, place[:-1])[place[-1]]
    return made
