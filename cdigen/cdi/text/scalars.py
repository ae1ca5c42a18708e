"""The values of plain YAML scalars and the texts of values, as in the parser of the runtimes.

The libraries read spec files with sigs.k8s.io/yaml and go-yaml v2. There, ``yes`` is true, ``010`` is the
number 8, ``1e3`` is a number, and ``12:30`` is a text. PyYAML's resolver has the same result only for
``yes``, so this module does not use PyYAML's resolver. Sources: go-yaml v2, resolve.go; sigs.k8s.io/yaml,
yaml.go.
"""

from __future__ import annotations

import base64
import re
from math import isfinite

_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)"
    r"|0[oO]?(?P<oct>[0-7]+)|(?P<dec>0|[1-9][0-9]*))"
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BASES = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
_CORE = "tag:yaml.org,2002:"
_TYPES_OF_TAGS: dict[str, type] = {
    f"{_CORE}bool": bool,
    f"{_CORE}float": float,
    f"{_CORE}int": int,
    f"{_CORE}null": type(None),
    f"{_CORE}timestamp": str,
}
_NUMBER_STARTS = frozenset("+-.0123456789")
# In every base, a 64-bit integer has fewer digits than this limit. Python refuses more than 4,300 digits.
_MAX_DIGITS = 70


def resolve(text: str) -> object:
    """Return the value of the plain scalar TEXT.

    The value is None, a bool, a 64-bit int, a float, or TEXT.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    plain = text if text[0] == "." else text.replace("_", "")
    if match := _INTEGER.fullmatch(plain):
        integer = _integer(match)
        if integer is not None:
            return integer
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        if number not in (float("inf"), float("-inf")):
            return number
    return text


def _integer(match: re.Match[str]) -> int | None:
    """Return the integer in MATCH, or None if it is neither a signed nor an unsigned 64-bit integer."""
    base = match.lastgroup or "dec"
    digits = match[base]
    if len(digits) > _MAX_DIGITS:
        return None
    value = int(digits, _BASES[base])
    if match["sign"] == "-":
        return -value if value <= 2**63 else None
    limit = 2**63 if match["sign"] else 2**64
    return value if value < limit else None


def is_of_64_bits(number: str) -> bool:
    """Return whether NUMBER, a number in JSON, is a 64-bit integer or a finite float."""
    if not number.lstrip("-").isdigit():
        return isfinite(float(number))
    # The length is checked first, because Python refuses to read more than 4,300 digits.
    return len(number) <= len(str(-(2**64))) and -(2**63) <= int(number) < 2**64


def as_text(value: object) -> str | None:
    """Return the text that loaders store if the value of a text field is VALUE (text, number or boolean).

    The result is None for other values. Go writes a float with the smallest number of digits that identify
    its 32-bit value. The result is None if a float needs more than six digits.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = f"{value:g}"
        return text if isfinite(value) and float(text) == value else None
    return str(value) if isinstance(value, str | int) else None


def as_key(value: object) -> str | None:
    """Return the text of VALUE, the key of a mapping.

    The result is None if VALUE is None, because the loaders refuse null as a key.
    """
    return None if value is None else as_text(value) or str(value)


def tagged(tag: str, text: str) -> object:
    """Return the value of the scalar TEXT with the explicit TAG.

    Raise ValueError if the loaders refuse the scalar.
    """
    if tag == f"{_CORE}binary":
        return base64.b64decode(text, validate=True).decode()
    if tag == f"{_CORE}str" or tag not in _TYPES_OF_TAGS:
        return text
    value = resolve(text)
    if type(value) is int and tag == f"{_CORE}float":
        return float(value)
    if type(value) is not _TYPES_OF_TAGS[tag]:
        raise ValueError(f"{text!r} is not {tag}")
    return value
