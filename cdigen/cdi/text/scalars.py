"""Resolve plain YAML scalars as the runtimes' parser does, and turn values into text as it does.

The libraries read spec files through sigs.k8s.io/yaml on go-yaml v2: ``yes`` is true, ``010`` is
eight, ``1e3`` is a number, ``12:30`` is text. PyYAML's own resolver differs in all of these but the
first, so nothing of it is used. Source: go-yaml v2, resolve.go; sigs.k8s.io/yaml, yaml.go.
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
# No 64-bit integer needs more digits, and Python refuses to read 4,300.
_MAX_DIGITS = 70


def resolve(text: str) -> object:
    """Return what a plain scalar of TEXT is: None, a bool, an int of 64 bits, a float, or TEXT itself."""
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
    """Return the integer of MATCH, or None where neither 64 bits with nor without sign hold it."""
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
    """Return whether NUMBER, as JSON writes it, is an integer of 64 bits or a finite float."""
    if not number.lstrip("-").isdigit():
        return isfinite(float(number))
    # Python refuses to read 4,300 digits.
    return len(number) <= len(str(-(2**64))) and -(2**63) <= int(number) < 2**64


def as_text(value: object) -> str | None:
    """Return the text that a number or bool becomes where the loaders want text; None for the rest.

    Go writes a float with the fewest digits that identify its 32-bit value; None where six do not.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = f"{value:g}"
        return text if isfinite(value) and float(text) == value else None
    return str(value) if isinstance(value, str | int) else None


def as_key(value: object) -> str | None:
    """Return the text of a mapping's key; None for null, which the loaders refuse as a key."""
    return None if value is None else as_text(value) or str(value)


def tagged(tag: str, text: str) -> object:
    """Return what a scalar of TEXT with an explicit TAG is; ValueError where the loaders refuse it."""
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
