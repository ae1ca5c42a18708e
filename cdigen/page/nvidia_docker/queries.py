"""``members``: the parameters in the query of a request."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from cdigen.host.root import shown

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")


class InvalidQueryError(ValueError):
    """A query that is rejected with status 400. ``members`` uses the error text of nvidia-docker 1.0."""


def members(query: str) -> dict[str, str]:
    """Return the first value of each parameter in QUERY; raise InvalidQueryError if QUERY is malformed."""
    bad = _BAD_ESCAPE.search(query)
    if bad is not None:
        raise InvalidQueryError(f'invalid URL escape "{shown(bad.group())}"')
    found: dict[str, str] = {}
    for name, text in parse_qsl(query, keep_blank_values=True, errors="replace"):
        found.setdefault(name, text)
    return found
