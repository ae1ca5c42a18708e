"""The types of configuration values.

Each type reads a YAML node and has the equivalent JSON Schema. ``config.keys.KEYS`` has the type of every
key.
"""

from __future__ import annotations

import re
from functools import partial

from cdigen.config.tree import text_of
from cdigen.model.errors import ConfigError
from cdigen.model.profile import NAMINGS
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    import yaml

    from cdigen.model.findings import Severity

_MAX_DURATION = 86_400
_MIN_DURATION = 0.01
_TRUE = {"true", "yes", "on", "y"}
_NODE_TYPES = {("scalar", "str"): "text", ("sequence", "seq"): "list", ("mapping", "map"): "mapping"}
# The result of reading an invalid value.
INVALID = object()


class WrongValueError(ValueError):
    """A value with a problem; ``node`` is the YAML node of the value.

    ``value`` is the part of the value that cdigen uses, or INVALID. ``others`` are further problems.
    """

    others: tuple[WrongValueError, ...] = ()

    def __init__(
        self, problem: str, node: yaml.Node, severity: Severity = "error", value: object = INVALID
    ) -> None:
        super().__init__(problem)
        self.node, self.severity, self.value = node, severity, value


@frozen
class Vendors:
    """The names of the supported vendors (``known``), and of the vendors in the configuration (``named``).

    A membership test of ``known`` accepts the vendors of other packages. An iteration omits these vendors.
    """

    known: Collection[str]
    named: tuple[str, ...] = ()


@frozen
class Scalar:
    """The type of a single value; ``read`` returns the value or raises WrongValueError."""

    read: Callable[[yaml.Node, Vendors], object]
    schema: dict[str, Any]


@frozen
class ListOf:
    """The type of a list without duplicates, whose items have one type."""

    item: Scalar
    at_least: int = 0


@frozen
class Table:
    """The type of a mapping with ``keys``; its value is an instance of ``cls``."""

    keys: tuple[Key, ...]
    cls: type


@frozen
class Rows:
    """The type of a list of mappings with ``keys``; the value of a mapping is an instance of ``cls``."""

    keys: tuple[Key, ...]
    cls: type
    at_least: int = 0


@frozen
class Key:
    """A key of the configuration; ``text`` is its description in Markdown.

    ``default`` describes the default value, if the value itself is not clear. ``field`` is the field of the
    settings class, if the field has another name than the key. ``example`` is a value for etc/config.yaml, if
    the key has no default.
    """

    name: str
    type: Scalar | ListOf | Table | Rows
    text: str = ""
    default: str = ""
    field: str = ""
    example: str = ""
    is_required: bool = False


def node_type(node: yaml.Node) -> str:
    """Return ``text``, ``list`` or ``mapping``, or the YAML name of any other type."""
    # In PyYAML, the class of each node has the attribute "id": scalar, sequence or mapping.
    kind, tag = str(getattr(node, "id", "")), node.tag.removeprefix("tag:yaml.org,2002:")
    return _NODE_TYPES.get((kind, tag), tag)


def describe(node: yaml.Node) -> str:
    """Return a description of the value of NODE with its type."""
    if isinstance(node.value, list):
        return f"a {quote(node_type(node))[1:-1]}"
    return f"{quote(node.value)}, which YAML reads as {quote(node_type(node))[1:-1]}"


def quote(text: str, limit: int = 60) -> str:
    """Return TEXT in quotes, shortened if it is long."""
    return repr(text if len(text) <= limit else f"{text[:limit]}...")


def choice(*words: str, or_path: str = "") -> Scalar:
    """Return the type that accepts each of WORDS, and also a path if OR_PATH (a description) is set."""
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


def text(expected: str, pattern: str) -> Scalar:
    """Return the type of a text that PATTERN matches; EXPECTED describes such a text in messages."""
    return Scalar(
        read=partial(_text, expected, pattern), schema={"type": "string", "pattern": f"^(?:{pattern})$"}
    )


def _device_name(expected: str, pattern: str) -> Scalar:
    """Return the type of a name that YAML can also read as a number, if the name has no quotes."""
    schema = {"anyOf": [{"type": "string", "pattern": f"^(?:{pattern})$"}, {"type": "number"}]}
    return Scalar(read=partial(_name, expected, pattern), schema=schema)


def _must_be(expected: str, node: yaml.Node) -> WrongValueError:
    value = quote(str(node.value)) if node_type(node) == "text" else describe(node)
    return WrongValueError(f"must be {expected}, not {value}", node)


def _choice(words: Collection[str], or_path: str, node: yaml.Node, vendors: Vendors) -> object:
    # YAML 1.1 reads an unquoted off as false.
    if "off" in words and node_type(node) == "bool" and str(node.value).lower() not in _TRUE:
        return "off"
    if node_type(node) == "text" and node.value in words:
        return str(node.value)
    listed = ", ".join(words)
    if node_type(node) == "text" and or_path:
        return PATH.read(node, vendors)
    raise _must_be(f"{listed} or {or_path}" if or_path else f"one of {listed}", node)


def _number(minimum: int, maximum: int, node: yaml.Node, _: Vendors) -> int:
    value = text_of(node)
    # YAML 1.1 reads 010 as eight. cdigen accepts only numbers with the same value in all versions of YAML.
    is_plain = node_type(node) == "int" and re.fullmatch("0|[1-9][0-9]{0,9}", value)
    if not is_plain or not minimum <= int(value) <= maximum:
        raise _must_be(f"a number from {minimum} to {maximum}", node)
    return int(value)


def _name(expected: str, pattern: str, node: yaml.Node, _: Vendors) -> str:
    # YAML 1.1 reads 0 and 0:1 as integers, and the address 0000:05:00.0 as a float.
    if node_type(node) not in {"text", "int", "float"} or not re.fullmatch(pattern, str(node.value)):
        raise _must_be(expected, node)
    return str(node.value)


def _duration(unit: str, node: yaml.Node, _: Vendors) -> float:
    value = text_of(node)
    is_plain = re.fullmatch(r"(?:0|[1-9][0-9]*)?\.[0-9]*|[1-9][0-9]*", value) and node_type(node) in {
        "int",
        "float",
    }
    if not is_plain or not _MIN_DURATION <= float(value) <= _MAX_DURATION:
        raise _must_be(f"a number of {unit} from {_MIN_DURATION} to {_MAX_DURATION}", node)
    return float(value)


def _flag(node: yaml.Node, _: Vendors) -> bool:
    if node_type(node) != "bool":
        raise _must_be("true or false", node)
    return str(node.value).lower() in _TRUE


def _text(expected: str, pattern: str, node: yaml.Node, _: Vendors) -> str:
    if node_type(node) != "text" or not re.fullmatch(pattern, node.value):
        raise _must_be(expected, node)
    return str(node.value)


def _line(node: yaml.Node, _: Vendors) -> str:
    if node_type(node) != "text" or not node.value.isprintable():
        raise _must_be("a text of one line", node)
    return str(node.value)


def _path(node: yaml.Node, _: Vendors) -> str:
    value = node.value if node_type(node) == "text" else ""
    if not value.startswith("/") or not value.isprintable() or {".", ".."} & {*value.split("/")}:
        raise _must_be("an absolute path without '.', '..' or control characters", node)
    return str(value)


def _vendor(node: yaml.Node, vendors: Vendors) -> object:
    return _choice(vendors.known, "", node, vendors)


def _naming(node: yaml.Node, vendors: Vendors) -> object:
    from cdigen.vendors.registry import has_naming  # noqa: PLC0415 - few configurations have names

    is_known = isinstance(node.value, str) and has_naming(node.value, vendors.named)
    return _choice((*NAMINGS, node.value) if is_known else NAMINGS, "", node, vendors)


def _target(node: yaml.Node, vendors: Vendors) -> str:
    from cdigen.runtimes import targets  # noqa: PLC0415 - few configurations have a target

    value = _text("a runtime and its release, such as podman-4.3", _TARGET, node, vendors)
    try:
        targets.parse(value)
    except ConfigError as error:
        raise WrongValueError(f"cannot be {quote(value)}: {error.message} ({error.hint})", node) from None
    return value


def _labels(node: yaml.Node, vendors: Vendors) -> object:
    if node_type(node) != "mapping":
        raise _must_be("a mapping", node)
    pairs: dict[object, object] = {}
    wrong: list[WrongValueError] = []
    for key, value in node.value:
        try:
            name = LABEL.read(key, vendors)
            if name in pairs:
                raise WrongValueError(f"has {quote(key.value)} twice", key)
            pairs[name] = None
            pairs[name] = LABEL_VALUE.read(value, vendors)
        except WrongValueError as error:
            wrong.append(error)
    if wrong:
        first, *others = wrong
        first.others = tuple(others)
        raise first
    return tuple(pairs.items())


# The name of a Kubernetes label, and the value of a label (apimachinery, pkg/util/validation). A namespace is
# an RFC 1123 label.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
# A kind as in model.names.is_kind: the vendor up to 253 characters, the class up to 63.
_VENDOR = r"[A-Za-z][A-Za-z0-9._-]{0,251}[A-Za-z0-9]"
_KIND = rf"{_VENDOR}/[A-Za-z][A-Za-z0-9._-]{{0,61}}[A-Za-z0-9]"

# A runtime of runtimes.releases and a release of one to three numbers; ``_target`` checks the release.
_TARGET = r"[a-z-]{1,20}-[0-9]{1,5}(?:\.[0-9]{1,5}){0,2}"

_DEVICE = rf"(?:{_KIND}=)?[A-Za-z0-9](?:[A-Za-z0-9._:-]{{0,252}}[A-Za-z0-9])?"

# A PCI address, or the name of a device on another bus.
_ADDRESS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]|[a-z][a-z0-9_-]{0,62}"

FLAG = Scalar(read=_flag, schema={"type": "boolean"})
LINE = Scalar(read=_line, schema={"type": "string"})
PATH = Scalar(read=_path, schema={"$ref": "#/$defs/path"})
_DURATION = {"type": "number", "minimum": _MIN_DURATION, "maximum": _MAX_DURATION}
SECONDS = Scalar(read=partial(_duration, "seconds"), schema=_DURATION)
MINUTES = Scalar(read=partial(_duration, "minutes"), schema=_DURATION)
CAUSE = text("the name of a cause, such as xid-63", "[a-z][a-z0-9-]{0,63}")
PORT = number(65_535)
ID = number((1 << 32) - 2)  # the largest ID means "no change" (chown(2))
VENDOR = Scalar(read=_vendor, schema={"$ref": "#/$defs/vendor"})
NAMING = Scalar(read=_naming, schema={"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,31}$"})
TARGET = Scalar(read=_target, schema={"type": "string", "pattern": f"^(?:{_TARGET})$"})
NAMESPACE = text(
    "a namespace, or the beginning of its name and *",
    r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?|[a-z0-9][a-z0-9-]{0,61}\*|\*",
)
# The runtimes report an empty handler for pods without a RuntimeClass.
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
    "a kind such as nvidia.com/gpu, or the beginning of a kind and *",
    rf"{_KIND}|{_VENDOR}/[A-Za-z0-9._-]{{0,62}}\*|\*",
)
DEVICE = _device_name("an index, a UUID, a PCI address or a CDI name", _DEVICE)
ADDRESS = _device_name("an address such as 0000:65:00.0, as in 'cdigen inspect'", _ADDRESS)
UUID = _device_name("a UUID as in 'cdigen inspect'", r"[A-Za-z0-9][A-Za-z0-9/-]{0,99}")
NUMBER = number(65_535)
# An extended resource is a qualified name outside the domain kubernetes.io. It must not start with
# "requests.", because quotas add this prefix (kubernetes, pkg/apis/core/v1/helper, IsExtendedResourceName).
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
RESOURCE_NAME = rf"(?!requests\.|[^/]*kubernetes\.io/)(?=[^/]{{1,243}}/){_LABEL}(?:\.{_LABEL})*/{_NAME}"
RESOURCE = text("an extended resource such as example.com/gpu", RESOURCE_NAME)
PATTERN = text("a text of one line, in which * matches any text", r"[ -~]{1,200}")
# CDI permits a class of one letter, but such a class crashes every released CDI library. A dot in a class
# needs cdiVersion 0.6.0, which podman 4.3 refuses.
CLASS = text(
    "2 to 63 letters, digits, _ or -, beginning with a letter and ending with a letter or digit",
    "[A-Za-z][A-Za-z0-9_-]{0,61}[A-Za-z0-9]",
)
# The options of the vendors. Each vendor package declares the keys of its options.
VENDOR_OPTIONS = Table(keys=(), cls=dict)
