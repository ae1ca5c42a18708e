"""The types of configuration values: each reads its YAML node, and has the equivalent JSON Schema.

``KEYS`` of ``config.keys`` gives every key one of these.
"""

from __future__ import annotations

import re
from functools import partial

from cdigen.model.profile import NAMINGS
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    import yaml

    from cdigen.config.keys import Key

_MAX_SECONDS = 86_400
_MIN_SECONDS = 0.01
_TRUE = {"true", "yes", "on", "y"}
_FORMS = {("scalar", "str"): "text", ("sequence", "seq"): "list", ("mapping", "map"): "mapping"}


class WrongValueError(ValueError):
    """Says what is wrong with the value of NODE."""

    def __init__(self, problem: str, node: yaml.Node) -> None:
        super().__init__(problem)
        self.node = node


@frozen
class Vendors:
    """The names of the known vendors, and of those that the file names.

    ``known`` also contains names that it does not iterate over: those of plugin vendors.
    """

    known: Collection[str]
    named: tuple[str, ...] = ()


@frozen
class Scalar:
    """A single value: ``read`` returns it, or raises WrongValueError; ``schema`` is its JSON Schema."""

    read: Callable[[yaml.Node, Vendors], object]
    schema: dict[str, Any]


@frozen
class ListOf:
    """A list of different values of one type."""

    item: Scalar
    at_least: int = 0


@frozen
class Table:
    """A mapping with keys of its own, read into ``cls``."""

    keys: tuple[Key, ...]
    cls: type


@frozen
class Rows:
    """A list of mappings with ``keys``, each read into ``cls``; messages call one of them ``row``."""

    keys: tuple[Key, ...]
    cls: type
    row: str
    at_least: int = 0


def form(node: yaml.Node) -> str:
    """Return ``text``, ``list`` or ``mapping``; for anything else YAML's name."""
    # PyYAML keeps scalar, sequence or mapping on the class of each node.
    what, tag = str(getattr(node, "id", "")), node.tag.removeprefix("tag:yaml.org,2002:")
    return _FORMS.get((what, tag), tag)


def described(node: yaml.Node) -> str:
    """Return what NODE is, in words."""
    if isinstance(node.value, list):
        return f"a {quoted(form(node))[1:-1]}"
    return f"{quoted(node.value)}, which YAML reads as {quoted(form(node))[1:-1]}"


def quoted(text: str, limit: int = 60) -> str:
    """Return TEXT in quotes, shortened if it is long."""
    return repr(text if len(text) <= limit else f"{text[:limit]}...")


def choice(*words: str, or_path: str = "") -> Scalar:
    """Return the type of one of WORDS, or with OR_PATH also of a path."""
    schema: dict[str, Any] = {"enum": [*words, *([False] if "off" in words else [])]}
    if or_path:
        schema = {"anyOf": [schema, PATH.schema]}
    return Scalar(read=partial(_choice, words, or_path), schema=schema)


def number(maximum: int, *, minimum: int = 0) -> Scalar:
    """Return the type of a whole number from MINIMUM to MAXIMUM."""
    return Scalar(
        read=partial(_number, minimum, maximum),
        schema={"type": "integer", "minimum": minimum, "maximum": maximum},
    )


def text(wanted: str, pattern: str) -> Scalar:
    """Return the type of a text that PATTERN matches; messages say that it must be WANTED."""
    return Scalar(
        read=partial(_text, wanted, pattern), schema={"type": "string", "pattern": f"^(?:{pattern})$"}
    )


def _must_be(wanted: str, node: yaml.Node) -> WrongValueError:
    value = quoted(str(node.value)) if form(node) == "text" else described(node)
    return WrongValueError(f"must be {wanted}, not {value}", node)


def _choice(words: Collection[str], or_path: str, node: yaml.Node, vendors: Vendors) -> object:
    # YAML 1.1 reads an unquoted off as false.
    if "off" in words and form(node) == "bool" and str(node.value).lower() not in _TRUE:
        return "off"
    if form(node) == "text" and node.value in words:
        return str(node.value)
    listed = ", ".join(words)
    if form(node) == "text" and or_path:
        return PATH.read(node, vendors)
    raise _must_be(f"{listed} or {or_path}" if or_path else f"one of {listed}", node)


def _number(minimum: int, maximum: int, node: yaml.Node, _: Vendors) -> int:
    value = str(node.value)
    # YAML 1.1 reads 010 as eight; only numbers that every reader reads alike are accepted.
    is_plain = form(node) == "int" and re.fullmatch("0|[1-9][0-9]{0,9}", value)
    if not is_plain or not minimum <= int(value) <= maximum:
        raise _must_be(f"a number from {minimum} to {maximum}", node)
    return int(value)


def _device(node: yaml.Node, _: Vendors) -> str:
    # YAML 1.1 reads 0 and 0:1 as integers, and the address 0000:05:00.0 as a float.
    if form(node) not in {"text", "int", "float"} or not re.fullmatch(_DEVICE, str(node.value)):
        raise _must_be("an index, a UUID, a PCI address or a CDI name", node)
    return str(node.value)


def _seconds(node: yaml.Node, _: Vendors) -> float:
    value = str(node.value)
    is_plain = re.fullmatch(r"(?:0|[1-9][0-9]*)?\.[0-9]*|[1-9][0-9]*", value) and form(node) in {
        "int",
        "float",
    }
    if not is_plain or not _MIN_SECONDS <= float(value) <= _MAX_SECONDS:
        raise _must_be(f"a number of seconds from {_MIN_SECONDS} to {_MAX_SECONDS}", node)
    return float(value)


def _minutes(node: yaml.Node, vendors: Vendors) -> float:
    try:
        return _seconds(node, vendors)
    except WrongValueError:
        raise _must_be(f"a number of minutes from {_MIN_SECONDS} to {_MAX_SECONDS}", node) from None


def _flag(node: yaml.Node, _: Vendors) -> bool:
    if form(node) != "bool":
        raise _must_be("true or false", node)
    return str(node.value).lower() in _TRUE


def _text(wanted: str, pattern: str, node: yaml.Node, _: Vendors) -> str:
    if form(node) != "text" or not re.fullmatch(pattern, node.value):
        raise _must_be(wanted, node)
    return str(node.value)


def _line(node: yaml.Node, _: Vendors) -> str:
    if form(node) != "text" or not node.value.isprintable():
        raise _must_be("a text of one line", node)
    return str(node.value)


def _path(node: yaml.Node, _: Vendors) -> str:
    value = node.value if form(node) == "text" else ""
    if not value.startswith("/") or not value.isprintable() or {".", ".."} & {*value.split("/")}:
        raise _must_be("an absolute path without '.', '..' or control characters", node)
    return str(value)


def _vendor(node: yaml.Node, vendors: Vendors) -> object:
    return _choice(vendors.known, "", node, vendors)


def _naming(node: yaml.Node, vendors: Vendors) -> object:
    from cdigen.vendors.registry import has_naming  # noqa: PLC0415 - hardly anybody names devices

    is_known = isinstance(node.value, str) and has_naming(node.value, vendors.named)
    return _choice((*NAMINGS, node.value) if is_known else NAMINGS, "", node, vendors)


def _labels(node: yaml.Node, vendors: Vendors) -> object:
    if form(node) != "mapping":
        raise _must_be("a mapping", node)
    pairs: dict[object, object] = {}
    for key, value in node.value:
        name = LABEL.read(key, vendors)
        if name in pairs:
            raise WrongValueError(f"has {quoted(key.value)} twice", key)
        pairs[name] = LABEL_VALUE.read(value, vendors)
    return tuple(pairs.items())


# Names of Kubernetes: RFC 1123 labels for namespaces; qualified names and their values for labels
# (apimachinery, pkg/util/validation).
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
# A kind as model.names.is_kind has it: the vendor up to 253 characters, the class up to 63.
_VENDOR = r"[A-Za-z][A-Za-z0-9._-]{0,251}[A-Za-z0-9]"
_KIND = rf"{_VENDOR}/[A-Za-z][A-Za-z0-9._-]{{0,61}}[A-Za-z0-9]"

_DEVICE = rf"(?:{_KIND}=)?[A-Za-z0-9](?:[A-Za-z0-9._:-]{{0,252}}[A-Za-z0-9])?"

FLAG = Scalar(read=_flag, schema={"type": "boolean"})
LINE = Scalar(read=_line, schema={"type": "string"})
PATH = Scalar(read=_path, schema={"$ref": "#/$defs/path"})
SECONDS = Scalar(read=_seconds, schema={"type": "number", "minimum": _MIN_SECONDS, "maximum": _MAX_SECONDS})
MINUTES = Scalar(read=_minutes, schema=SECONDS.schema)
CAUSE = text("the name of a cause, such as xid-63", "[a-z][a-z0-9-]{0,63}")
PORT = number(65_535)
ID = number((1 << 32) - 2)  # the last one means "no such user" (chown(2))
VENDOR = Scalar(read=_vendor, schema={"$ref": "#/$defs/vendor"})
NAMING = Scalar(read=_naming, schema={"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,31}$"})
NAMESPACE = text(
    "a namespace, or how its name begins and *",
    r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?|[a-z0-9][a-z0-9-]{0,61}\*|\*",
)
# Empty: of pods without a RuntimeClass, of which runtimes report no handler.
HANDLER = text(
    "the name of a runtime handler, or empty", r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?)?"
)
LABEL = text("names of labels", rf"(?:[a-z0-9][a-z0-9.-]{{0,251}}[a-z0-9]/|[a-z0-9]/)?{_NAME}")
LABEL_VALUE = text("names of labels and their values, or '*'", rf"(?:{_NAME})?|\*")
LABELS = Scalar(
    read=_labels,
    schema={"type": "object", "propertyNames": LABEL.schema, "additionalProperties": LABEL_VALUE.schema},
)
KIND = text("a kind such as nvidia.com/gpu", _KIND)
KIND_PATTERN = text(
    "a kind such as nvidia.com/gpu, or how it begins and *", rf"{_KIND}|{_VENDOR}/[A-Za-z0-9._-]{{0,62}}\*|\*"
)
DEVICE = Scalar(
    read=_device, schema={"anyOf": [{"type": "string", "pattern": f"^(?:{_DEVICE})$"}, {"type": "number"}]}
)
# An extended resource is a qualified name of a domain that does not end as Kubernetes' own, and quotas put
# "requests." before it (kubernetes, pkg/apis/core/v1/helper, IsExtendedResourceName).
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
RESOURCE_NAME = rf"(?!requests\.|[^/]*kubernetes\.io/)(?=[^/]{{1,243}}/){_LABEL}(?:\.{_LABEL})*/{_NAME}"
RESOURCE = text("an extended resource such as example.com/gpu", RESOURCE_NAME)
PATTERN = text("a text of one line, in which * stands for any", r"[ -~]{1,200}")
# CDI's rule allows one letter, but that crashes every released library; a dot needs cdiVersion 0.6.0, which
# podman 4.3 refuses.
CLASS = text(
    "2 to 63 letters, digits and inner _ -, the first a letter", "[A-Za-z][A-Za-z0-9_-]{0,61}[A-Za-z0-9]"
)
# The options of each vendor, with the keys that it declares.
VENDOR_OPTIONS = Table(keys=(), cls=dict)
