"""The checks of single fields, which are texts, paths, integers, objects and lists.

A check is a function. Its arguments are a value, the JSON path of the value, and a list for findings. A check
returns whether the value is valid. The functions ``integer``, ``one_of`` and ``list_of`` return a check. A
``Shape`` is a table of the fields of an object.
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

# The maximum number of bytes in an argument or environment entry. Linux permits 32 pages with the final NUL
# (MAX_ARG_STRLEN). With a longer entry, every execve in the container fails.
MAX_TEXT = 131_071
# The maximum number of bytes in a path. Linux permits 4,096 bytes with the final NUL (PATH_MAX).
MAX_PATH = 4095
# A CDI document has seven levels. jsonschema and repr() use recursion, so the depth has a limit.
MAX_DEPTH = 100
# libyaml in PyYAML 6.0.4 reports this message above 1,000 levels, before it reports the events (scanner.c).
YAML_TOO_DEEP = "exceeded maximum nesting depth"
MAX_UINT32 = 2**32 - 1
MAX_INT64 = 2**63 - 1


@frozen
class Shape:
    """An object of the specification, with the check of each field and the names of required fields."""

    fields: dict[str, Check]
    required: tuple[str, ...] = ()


def type_name(value: object) -> str:
    """Return the JSON type of VALUE with its article, such as ``a text``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), f"a {type(value).__name__}")


def quote(text: str, limit: int = 60) -> str:
    """Return TEXT as a JSON string for a message, shortened to LIMIT characters."""
    return json.dumps(text if len(text) <= limit else f"{text[:limit]}...")


def member_path(path: str, key: object) -> str:
    """Return the JSON path of the member KEY of the object at PATH, such as ``$.a`` or ``$["a b"]``."""
    name = str(key)
    return f"{path}.{name}" if name.isidentifier() else f"{path}[{json.dumps(name)}]"


def reject(out: list[Finding], rule: str, path: str, message: str, hint: str = "") -> bool:
    """Add an error of RULE to OUT; return False."""
    out.append(finding(rule, path, message, hint))
    return False


def wrong_type(value: object, path: str, wanted: str, out: list[Finding]) -> bool:
    """Report that VALUE does not have the type WANTED (``a text``, ``an object``); return False."""
    return reject(out, "wrong-type", path, f"must be {wanted}, is {type_name(value)}")


def check_text(value: object, path: str, out: list[Finding], limit: int = MAX_TEXT) -> bool:
    """Check that VALUE is a text of at most LIMIT bytes; return whether VALUE is valid."""
    if not isinstance(value, str):
        return wrong_type(value, path, "a text", out)
    if value.isascii():
        size = len(value)
    elif any("\ud800" <= character <= "\udfff" for character in value):
        return reject(out, "lone-surrogate", path, "contains half of a surrogate pair")
    else:
        size = len(value.encode())
    return size <= limit or reject(out, "string-too-long", path, f"has {size} bytes, more than {limit}")


def check_boolean(value: object, path: str, out: list[Finding]) -> bool:
    """Check that VALUE is a boolean; return whether VALUE is valid."""
    return isinstance(value, bool) or wrong_type(value, path, "a boolean", out)


def check_path(value: object, path: str, out: list[Finding]) -> bool:
    """Check that VALUE is an absolute path; return whether VALUE is valid.

    The path must not contain NUL or line breaks, and must have at most MAX_PATH bytes.
    """
    if not check_text(value, path, out, MAX_PATH) or not isinstance(value, str):
        return False
    if value[:1] != "/":
        return reject(out, "path-not-absolute", path, f"{quote(value)} does not begin with /")
    return check_unbroken("path-control-character", value, path, out)


def check_clean_path(value: object, path: str, out: list[Finding]) -> bool:
    """Check VALUE like ``check_path``; a path that is not clean is an error."""
    if not check_path(value, path, out):
        return False
    if is_clean(str(value)):
        return True
    return reject(out, "path-not-clean", path, f"{quote(str(value))} has an empty component, . or ..")


def check_usual_path(value: object, path: str, out: list[Finding]) -> bool:
    """Check VALUE like ``check_path``; a path that is not clean is a warning."""
    if not check_path(value, path, out):
        return False
    if value != "/" and not is_clean(str(value)):
        out.append(finding("path-unusual", path, f"{quote(str(value))} has an empty component, . or .."))
    return True


def is_clean(path: str) -> bool:
    """Return whether the absolute PATH has no empty components and no components ``.`` and ``..``."""
    if "//" not in path and "/." not in path and path[-1] != "/":
        return True
    return not any(part in ("", ".", "..") for part in path[1:].split("/"))


def check_unbroken(rule: str, value: str, path: str, out: list[Finding]) -> bool:
    """Check that VALUE contains no NUL and no line break; report an error of RULE otherwise."""
    if "\n" in value or "\x00" in value:
        return reject(out, rule, path, f"{quote(value)} contains NUL or a line break")
    return True


def integer(rule: str, minimum: int, maximum: int) -> Check:
    """Return the check of an integer from MINIMUM to MAXIMUM, with RULE as the rule of the finding."""

    def check(value: object, path: str, out: list[Finding]) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return wrong_type(value, path, "an integer", out)
        if minimum <= value <= maximum:
            return True
        bounds = f"at least {minimum}" if maximum == MAX_INT64 else f"from {minimum} to {maximum}"
        # The conversion of a huge number to decimals is slow, and Python refuses more than 4,300 digits.
        shown = value if value.bit_length() <= 64 else "far outside"
        return reject(out, rule, path, f"must be {bounds}, is {shown}")

    return check


def one_of(rule: str, choices: Iterable[str]) -> Check:
    """Return the check of a text that must be one of CHOICES, with RULE as the rule of the finding."""
    known = frozenset(choices)

    def check(value: object, path: str, out: list[Finding]) -> bool:
        if not isinstance(value, str):
            return wrong_type(value, path, "a text", out)
        if value in known:
            return True
        return reject(out, rule, path, f"{quote(value)} is none of {', '.join(sorted(known))}")

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
    """Check that VALUE is an object with the fields of SHAPE; return whether all fields are valid."""
    if not isinstance(value, dict):
        return wrong_type(value, path, "an object", out)
    good = True
    for key, item in value.items():
        check = shape.fields.get(key)
        if check is None:
            good = _reject_unknown(key, path, shape, out)
        else:
            good &= check(item, f"{path}.{key}", out)
    for key in shape.required:
        if key not in value:
            good = reject(out, "missing-field", path, f"lacks {key}")
    return good


def _reject_unknown(key: object, path: str, shape: Shape, out: list[Finding]) -> bool:
    meant = next((field for field in shape.fields if field.lower() == str(key).lower()), None)
    hint = f"write {meant}" if meant else f"fields of this object: {', '.join(sorted(shape.fields))}"
    message = f"{quote(str(key))} is not a CDI field of this object"
    return reject(out, "unknown-field", member_path(path, key), message, hint)
