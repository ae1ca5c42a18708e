"""``parse_quantity`` parses quantities of Kubernetes.

The API server shortens quantities, for example ``16000`` to ``16k`` (k8s.io/apimachinery/pkg/api/resource,
quantity.go).
"""

from __future__ import annotations

import re

_BINARY = {f"{letter}i": 1 << (10 * (power + 1)) for power, letter in enumerate("KMGTPE")}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_SMALL = {"m": 10**3, "u": 10**6, "n": 10**9}
_QUANTITY = re.compile(r"([+-]?)([0-9]{1,19})(?:\.([0-9]{0,9}))?(?:([eE][+-]?[0-9]{1,2})|([A-Za-z]{0,2}))")
# JSON readers in every language represent integers up to this number exactly.
MAX_QUANTITY = 1 << 53


def parse_quantity(value: object) -> int:
    """Return the quantity in VALUE, which is a text or a number.

    Raise ValueError if VALUE is not a whole number or exceeds ±2^53.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _bounded(value)
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{_shown(value)} is not a quantity")
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
        raise ValueError(f"{_shown(value)} is not a quantity")
    if number % divisor:
        raise ValueError(f"{_shown(value)} is not a whole number")
    return _bounded(number // divisor * (-1 if sign == "-" else 1))


def _bounded(number: int) -> int:
    if abs(number) > MAX_QUANTITY:
        raise ValueError("the quantity exceeds 2^53")
    return number


def _shown(value: object) -> str:
    return ascii(value)[:40]
