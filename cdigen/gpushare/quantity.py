"""Read amounts as Kubernetes writes them: ``whole``.

The API server shortens what was written: ``16000`` comes back as ``16k``
(k8s.io/apimachinery/pkg/api/resource, quantity.go).
"""

from __future__ import annotations

import re

_BINARY = {f"{letter}i": 1 << (10 * (power + 1)) for power, letter in enumerate("KMGTPE")}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_SMALL = {"m": 10**3, "u": 10**6, "n": 10**9}
_FORM = re.compile(r"([+-]?)([0-9]{1,19})(?:\.([0-9]{0,9}))?(?:([eE][+-]?[0-9]{1,2})|([A-Za-z]{0,2}))")
# What JSON's readers hold exactly, in whatever language.
MOST = 1 << 53


def whole(value: object) -> int:
    """Return the quantity VALUE, text or number; ValueError: not one, no whole number, or beyond ±2^53."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _bounded(value)
    found = _FORM.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{_shown(value)} is no quantity")
    sign, digits, fraction, exponent, suffix = found.groups(default="")
    number, divisor = int(digits + fraction), 10 ** len(fraction)
    if exponent:
        power = int(exponent[1:])
        number, divisor = number * 10 ** max(power, 0), divisor * 10 ** max(-power, 0)
    elif suffix in _SMALL:
        divisor *= _SMALL[suffix]
    elif suffix in _BINARY or suffix in _DECIMAL:
        number *= _BINARY.get(suffix) or _DECIMAL[suffix]
    else:
        raise ValueError(f"{_shown(value)} is no quantity")
    if number % divisor:
        raise ValueError(f"{_shown(value)} is no whole number")
    return _bounded(number // divisor * (-1 if sign == "-" else 1))


def _bounded(number: int) -> int:
    if abs(number) > MOST:
        raise ValueError("the quantity is beyond 2^53")
    return number


def _shown(value: object) -> str:
    return ascii(value)[:40]
