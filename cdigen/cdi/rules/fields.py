"""Make the checks of single fields: texts, paths, integers, objects, lists.

A check takes a value, its JSON path and the list that findings go to, and returns whether the value
was good, so that a caller can build upon it. The factories (``integer``, ``one_of``) make such checks
out of a rule's name and its bounds; a ``Shape`` is the table of an object's fields.
"""

from __future__ import annotations

import json

from cdigen.cdi.rules.rulebook import finding
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cdigen.model.findings import Finding

    Check = Callable[[object, str, list[Finding]], bool]

# One argument or environment entry: 32 pages less the final NUL (Linux, MAX_ARG_STRLEN); execve of
# whatever the container starts fails beyond it.
MAX_TEXT = 131_071
# One path, less the final NUL (Linux, PATH_MAX).
MAX_PATH = 4095
# A CDI document nests seven levels; jsonschema and repr() recurse, so a bound is needed at all.
MAX_DEPTH = 100
# What the libyaml of PyYAML 6.0.4 says beyond 1,000 levels, before their events come (scanner.c).
YAML_TOO_DEEP = "exceeded maximum nesting depth"
MAX_UINT32 = 2**32 - 1
MAX_INT64 = 2**63 - 1


@frozen
class Shape:
    """An object of the specification: the check of each field, and which fields must be there."""

    fields: dict[str, Check]
    required: tuple[str, ...] = ()


def type_name(value: object) -> str:
    """Return what JSON calls the type of VALUE, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), f"a {type(value).__name__}")


def quote(text: str, limit: int = 60) -> str:
    """Return TEXT as JSON, cut to LIMIT characters, for a message."""
    return json.dumps(text if len(text) <= limit else f"{text[:limit]}...")


def member_path(path: str, key: object) -> str:
    """Return the JSON path of the member KEY of the object at PATH: ``$.a`` or ``$["a b"]``."""
    name = str(key)
    return f"{path}.{name}" if name.isidentifier() else f"{path}[{json.dumps(name)}]"


def wrong_type(value: object, path: str, wanted: str, out: list[Finding]) -> bool:
    """Report that VALUE is not WANTED (``a text``, ``an object``); return False."""
    out.append(finding("wrong-type", path, f"must be {wanted}, is {type_name(value)}"))
    return False


def check_text(value: object, path: str, out: list[Finding], limit: int = MAX_TEXT) -> bool:
    """Check a text of at most LIMIT bytes."""
    if not isinstance(value, str):
        return wrong_type(value, path, "a text", out)
    if value.isascii():
        size = len(value)
    elif any("\ud800" <= character <= "\udfff" for character in value):
        out.append(finding("lone-surrogate", path, "holds half of a character"))
        return False
    else:
        size = len(value.encode())
    if size > limit:
        out.append(finding("string-too-long", path, f"has {size} bytes, more than {limit}"))
        return False
    return True


def check_boolean(value: object, path: str, out: list[Finding]) -> bool:
    """Check a boolean."""
    return isinstance(value, bool) or wrong_type(value, path, "a boolean", out)


def check_path(value: object, path: str, out: list[Finding]) -> bool:
    """Check an absolute path without NUL and line breaks, of at most MAX_PATH bytes."""
    if not check_text(value, path, out, MAX_PATH) or not isinstance(value, str):
        return False
    if value[:1] != "/":
        out.append(finding("path-not-absolute", path, f"{quote(value)} does not begin with /"))
        return False
    return check_unbroken("path-control-character", value, path, out)


def check_clean_path(value: object, path: str, out: list[Finding]) -> bool:
    """Check a path as ``check_path`` does, and that it is clean."""
    if not check_path(value, path, out):
        return False
    if not is_clean(str(value)):
        out.append(finding("path-not-clean", path, f"{quote(str(value))} is not clean"))
        return False
    return True


def check_usual_path(value: object, path: str, out: list[Finding]) -> bool:
    """Check a path as ``check_path`` does; one that is not clean is only worth a warning."""
    if not check_path(value, path, out):
        return False
    if value != "/" and not is_clean(str(value)):
        out.append(finding("path-unusual", path, f"{quote(str(value))} is not clean"))
    return True


def is_clean(path: str) -> bool:
    """Return whether absolute PATH has neither empty nor ``.`` nor ``..`` components."""
    if "//" not in path and "/." not in path and path[-1] != "/":
        return True
    return not any(part in ("", ".", "..") for part in path[1:].split("/"))


def check_unbroken(rule: str, value: str, path: str, out: list[Finding]) -> bool:
    """Check, as RULE, that VALUE holds neither NUL nor a line break."""
    if "\n" in value or "\x00" in value:
        out.append(finding(rule, path, f"{quote(value)} holds NUL or a line break"))
        return False
    return True


def integer(rule: str, minimum: int, maximum: int) -> Check:
    """Return the check, as RULE, of an integer from MINIMUM to MAXIMUM."""

    def check(value: object, path: str, out: list[Finding]) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return wrong_type(value, path, "an integer", out)
        if minimum <= value <= maximum:
            return True
        bounds = f"at least {minimum}" if maximum == MAX_INT64 else f"from {minimum} to {maximum}"
        # The decimals of a huge number take long to make, and Python refuses to make 4,300 of them.
        shown = value if value.bit_length() <= 64 else "far away"
        out.append(finding(rule, path, f"must be {bounds}, is {shown}"))
        return False

    return check


def one_of(rule: str, choices: Iterable[str]) -> Check:
    """Return the check, as RULE, of a text that is one of CHOICES."""
    known = frozenset(choices)

    def check(value: object, path: str, out: list[Finding]) -> bool:
        if not isinstance(value, str):
            return wrong_type(value, path, "a text", out)
        if value in known:
            return True
        out.append(finding(rule, path, f"{quote(value)} is none of {', '.join(sorted(known))}"))
        return False

    return check


def list_of(check_item: Check) -> Check:
    """Return the check of a list whose items CHECK_ITEM checks."""

    def check(value: object, path: str, out: list[Finding]) -> bool:
        if not isinstance(value, list):
            return wrong_type(value, path, "a list", out)
        good = True
        for index, item in enumerate(value):
            good &= check_item(item, f"{path}[{index}]", out)
        return good

    return check


def check_object(value: object, path: str, shape: Shape, out: list[Finding]) -> bool:
    """Check the fields of an object; return whether VALUE is an object and all of them are good."""
    if not isinstance(value, dict):
        return wrong_type(value, path, "an object", out)
    good = True
    for key, item in value.items():
        check = shape.fields.get(key)
        if check is None:
            out.append(_unknown(key, path, shape))
            good = False
        else:
            good &= check(item, f"{path}.{key}", out)
    for key in shape.required:
        if key not in value:
            out.append(finding("missing-field", path, f"lacks {key}"))
            good = False
    return good


def _unknown(key: object, path: str, shape: Shape) -> Finding:
    meant = next((field for field in shape.fields if field.lower() == str(key).lower()), None)
    hint = f"spelt {meant}" if meant else f"known here: {', '.join(sorted(shape.fields))}"
    return finding(
        "unknown-field", member_path(path, key), f"{quote(str(key))} is not a field of CDI here", hint
    )
