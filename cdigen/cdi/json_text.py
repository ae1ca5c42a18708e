"""Strict JSON: a text becomes a value, and what the runtimes' YAML parsers would trip over is named.

Every CDI library reads a ``.json`` file with a YAML parser, so some good JSON is refused by all of
them: docs/cdi.md, "Encoding" lists these traps as seen with the real loaders. The fast way is one pass of
the standard library; the walk that finds lines and columns runs only where something is wrong.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from math import isfinite

from cdigen.cdi.rules.fields import member_path
from cdigen.cdi.rules.rulebook import finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.model.findings import Finding

# A CDI document nests seven levels; jsonschema and repr() recurse, so a bound is needed at all.
MAX_DEPTH = 100
# YAML's simple keys: 1024 characters from the opening quote to the colon (docs/cdi.md, "Encoding").
MAX_KEY = 1024

# Above what 100,000 devices take; each value costs time, and 100 bytes and more.
MAX_COMMAS = 600_000

# To find a line and a column takes a walk over the text, so there is an end to it.
MAX_PLACES = 100

# A key of 1024 characters as written may be as short as this when read: six characters per \\uXXXX.
_SUSPICIOUS_KEY = (MAX_KEY - 200) // 6
# 64-bit integers have at most 20 characters with their sign; Python refuses to read 4,300 digits.
_MAX_INTEGER_TEXT = 20

_SPACE = " \t\r\n"
_LINE_BREAKS = frozenset("\r\n")
# Patterns are compiled when first used (``re`` keeps them): most files need one of them.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = (
    rf"(?P<string>{_STRING})(?P<gap>[ \t\r\n]*+)(?P<colon>:?)|(?P<bracket>[\[\]{{}},])|(?P<word>[-+.\w]++)"
)
_KEY_END = r'"[ \t\r\n]*+:'
_KEY_GAP = r'"(?:[ \t]*+[\r\n][ \t\r\n]*+:|[ \t]{800})'
_TAB_IN_LINE = r"[\r\n][ \r\n]*+\t"
_PAIR = r"\\u[dD][89abAB]..\\u[dD][c-fC-F].."
# Texts without a surrogate need no walk over their escapes.
_SURROGATE = r"\\u[dD][89a-fA-F]"
# One after the other, since a backslash may belong to the one before. No possessive quantifier passes over
# them all in one go: Python up to 3.11.4 gets those with a lookahead wrong (CPython issue 100061).
_ESCAPE = rf"(?P<pair>{_PAIR})|(?P<lone>\\u[dD][89a-fA-F]..)|\\."
_ESCAPED_SLASH = r"(?:[^\\]|\\[^/])*+(?P<escape>\\/)"
# What the decoder alone would take for something else: an integer beyond 64 bits, a float beyond all.
_HUGE = r"[0-9]{19}|[eE]\+?[0-9]*[1-9][0-9]{2}|N|I"
# What YAML's reader refuses although JSON strings may hold it: DEL, most of C1, the non-characters.
_CONTROL = "[\x7f-\x84\x86-\x9f\ufffe\uffff]"
_LINE_SEPARATOR = "[\x85\u2028\u2029]"


def place_of(text: str, offset: int) -> tuple[int, int]:
    """Return the line and the column of OFFSET in TEXT; both count from one."""
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    return line, column


def found_at(rule: str, message: str, place: tuple[int, int], *, path: str = "$", hint: str = "") -> Finding:
    """Return a finding of what is at PLACE; ``{}`` in MESSAGE becomes its words."""
    words = f"line {place[0]}, column {place[1]}"
    return finding(rule, path, message.replace("{}", words, 1), hint, place=place)


class _Numbers:
    """Hooks for a text that may hold numbers which are none; ``suspicious`` asks for the slow walk."""

    def __init__(self) -> None:
        self.suspicious = False

    def constant(self, _name: str) -> float:
        self.suspicious = True
        return 0.0

    def integer(self, text: str) -> int:
        if _is_of_64_bits(text):
            return int(text)
        self.suspicious = True
        return 0

    def real(self, text: str) -> float:
        value = float(text)
        if not isfinite(value):
            self.suspicious = True
        return value


def _decoder(text: str, numbers: _Numbers) -> json.JSONDecoder:
    """Return the decoder for TEXT; hooks take time, and few texts have use for them."""
    if not re.search(_HUGE, text):
        return json.JSONDecoder()
    return json.JSONDecoder(
        parse_constant=numbers.constant, parse_int=numbers.integer, parse_float=numbers.real
    )


def read_json(text: str) -> tuple[object, tuple[Finding, ...]]:
    """Return the value of TEXT (None where it cannot be read) and all that is wrong with it.

    TEXT has no byte order mark. Nothing is raised. The value is given along with findings wherever
    there is one, so that the rules can judge it too; it is at most ``MAX_DEPTH`` deep.
    """
    if not text.strip(_SPACE):
        return None, (finding("empty-document", "$", "the file is empty"),)
    if text.count(",") > MAX_COMMAS:
        return None, (finding("too-many-values", "$", f"more than {MAX_COMMAS} commas"),)
    numbers = _Numbers()
    start = _end_of_space(text, 0)
    try:
        value, end = _decoder(text, numbers).raw_decode(text, start)
    except json.JSONDecodeError as error:
        return None, (_syntax(text, error.pos, error.msg), *_traps(text))
    except RecursionError:
        return None, (_too_deep(),)
    keys = _keys_in(value)
    if keys is None:
        return None, (_too_deep(),)
    findings = [*_tail(text, end), *_traps(text[:end])]
    # A key that is there twice is one key of the value: then the text has more of what looks like keys.
    is_odd = numbers.suspicious or max(keys, default=0) > _SUSPICIOUS_KEY
    if is_odd or len(keys) != len(re.findall(_KEY_END, text[:end])) or re.search(_KEY_GAP, text[:end]):
        findings += islice(_walk(text[:end]), MAX_PLACES)
    return value, tuple(findings)


def _end_of_space(text: str, offset: int) -> int:
    return len(text) - len(text[offset:].lstrip(_SPACE))


def _syntax(text: str, offset: int, message: str) -> Finding:
    what = f"not JSON at {{}}: {message[:1].lower()}{message[1:]}"
    return found_at("json-syntax", what, place_of(text, offset))


def _too_deep() -> Finding:
    return finding("too-deep", "$", f"nested deeper than {MAX_DEPTH} levels")


def _keys_in(value: object) -> list[int] | None:
    """Return the lengths of all keys in VALUE, None where it nests deeper than MAX_DEPTH.

    A loop, since recursion is what it guards.
    """
    lengths: list[int] = []
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for node in level:
            if isinstance(node, dict):
                lengths += map(len, node)
                below += [child for child in node.values() if isinstance(child, dict | list)]
            elif isinstance(node, list):
                below += [child for child in node if isinstance(child, dict | list)]
        if not below:
            return lengths
        level = below
    return None


def _tail(text: str, end: int) -> Iterator[Finding]:
    """Yield what follows the document that ends at END: other text, or a TAB that YAML cannot take."""
    after = _end_of_space(text, end)
    if after < len(text):
        yield found_at("trailing-data", "text after the document at {}", place_of(text, after))
    elif "\t" in text[end:] and (match := re.search(_TAB_IN_LINE, text[end:])):
        yield found_at("leading-tab", "TAB in an empty line at {}", place_of(text, end + match.end() - 1))


def _traps(text: str) -> Iterator[Finding]:
    """Yield what is good JSON, or nearly, and refused or changed by a YAML parser."""
    tab = text.find("\t", 0, _end_of_space(text, 0))
    if tab >= 0:
        yield found_at("leading-tab", "TAB before the document at {}", place_of(text, tab))
    if not text.isascii() or "\x7f" in text:
        yield from _raw_characters(text)
    if "\\" in text:
        yield from _escapes(text)


def _raw_characters(text: str) -> Iterator[Finding]:
    for rule, pattern, what in (
        ("control-character", _CONTROL, "is refused by every loader"),
        ("line-separator", _LINE_SEPARATOR, "is read as a line break by every loader"),
    ):
        if match := re.search(pattern, text):
            code = f"{ord(match[0]):04X}"
            where = place_of(text, match.start())
            yield found_at(rule, f"U+{code} at {{}} {what}", where, hint=f"write \\u{code}")


def _escapes(text: str) -> Iterator[Finding]:
    """Yield the first of each kind of escape that loaders refuse."""
    found = _surrogates(text) if re.search(_SURROGATE, text) else {}
    if match := re.match(_ESCAPED_SLASH, text, re.DOTALL):
        found["escaped-slash"] = (match["escape"], match.start("escape"))
    for rule, (escape, start) in found.items():
        # An escape is backslashes, letters and digits, and two characters that may be anything.
        what = escape.replace("{}", "")
        yield found_at(rule, f"{what} at {{}} is refused by every loader", place_of(text, start))


def _surrogates(text: str) -> dict[str, tuple[str, int]]:
    """Return by its rule the first pair of surrogates in TEXT, and the first that has no other half."""
    found: dict[str, tuple[str, int]] = {}
    for match in re.finditer(_ESCAPE, text, re.DOTALL):
        if match.lastgroup:
            rule = "surrogate-escape" if match.lastgroup == "pair" else "lone-surrogate"
            found.setdefault(rule, (match[0], match.start()))
            if len(found) > 1:
                break
    return dict(sorted(found.items(), reverse=True))


def _walk(text: str) -> Iterator[Finding]:
    """Yield, with their places, the findings of JSON that the decoder has accepted.

    Case 1: a key: repeated, too long, or parted from its colon. Case 2: a number that is none.
    Case 3: a bracket opens or closes a level; ``paths`` ends with the JSON path of the current one.
    """
    paths: list[str] = ["$"]
    keys: list[set[str]] = [set()]
    indexes: list[int] = [-1]
    here = "$"
    for match in re.finditer(_TOKEN, text):
        if match["colon"]:
            key = str(json.loads(match["string"]))
            here = member_path(paths[-1], key)
            yield from _key(text, match, here, is_known=key in keys[-1])
            keys[-1].add(key)
        elif match["word"]:
            yield from _number(text, match, here)
        elif bracket := match["bracket"]:
            if bracket in "[{":
                paths.append(here)
                keys.append(set())
                indexes.append(0 if bracket == "[" else -1)
            elif bracket in "]}":
                del paths[-1], keys[-1], indexes[-1]
            elif indexes[-1] >= 0:
                indexes[-1] += 1
            here = f"{paths[-1]}[{indexes[-1]}]" if indexes[-1] >= 0 else paths[-1]


def _key(text: str, match: re.Match[str], path: str, *, is_known: bool) -> Iterator[Finding]:
    length = len(match["string"]) + len(match["gap"])
    if is_known:
        yield found_at("duplicate-key", "repeated key at {}", place_of(text, match.start()), path=path)
    if not _LINE_BREAKS.isdisjoint(match["gap"]):
        yield found_at(
            "key-split", "line break between key and colon at {}", place_of(text, match.start()), path=path
        )
    elif length > MAX_KEY:
        yield found_at(
            "key-too-long", f"key of {length} characters at {{}}", place_of(text, match.start()), path=path
        )


def _number(text: str, match: re.Match[str], path: str) -> Iterator[Finding]:
    word = match["word"]
    if word in ("NaN", "Infinity", "-Infinity"):
        yield found_at(
            "number-not-finite", f"{word} at {{}} is not JSON", place_of(text, match.start()), path=path
        )
    elif word not in ("true", "false", "null") and not _is_of_64_bits(word):
        message = f"number of {len(word)} characters at {{}} needs more than 64 bits"
        yield found_at("number-out-of-range", message, place_of(text, match.start()), path=path)


def _is_of_64_bits(number: str) -> bool:
    if not number.lstrip("-").isdigit():
        return isfinite(float(number))
    return len(number) <= _MAX_INTEGER_TEXT and -(2**63) <= int(number) < 2**64
