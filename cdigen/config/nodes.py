"""Values of the configuration, each from its YAML node: what is wrong with one is a ``WrongError``."""

from __future__ import annotations

import re

from cdigen.config.settings import REQUIRE
from cdigen.model.names import MAX_CLASS, is_vendor_or_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import yaml


class WrongError(ValueError):
    """Says which value is wrong, and what it should have been; OTHERS are wrong in the same list."""

    def __init__(self, node: yaml.Node, problem: str, others: tuple[WrongError, ...] = ()) -> None:
        super().__init__(problem)
        self.node = node
        self.others = others


def flag(node: yaml.Node) -> bool:
    """Return a switch: true or false."""
    if form(node) != "bool":
        raise WrongError(node, f"must be true or false, not {kind(node)}")
    return str(node.value).lower() in _TRUE


def number(node: yaml.Node) -> int:
    """Return a plain number that can be an id."""
    text = str(node.value)
    if form(node) != "int" or not (text.isascii() and text.isdigit()) or not _is_plain_number(text):
        raise WrongError(node, f"must be a number from 0 to {_MAX_ID}, not {kind(node)}")
    return int(text)


def seconds(node: yaml.Node) -> float:
    """Return a time in seconds."""
    wanted = f"a number of seconds from 0.01 to {_MAX_SECONDS}"
    if form(node) not in {"int", "float"} or not _SECONDS.issuperset(str(node.value)):
        raise WrongError(node, f"must be {wanted}, not {kind(node)}")
    try:
        value = float(str(node.value))
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= _MAX_SECONDS or _is_octal(str(node.value)):
        raise WrongError(node, f"must be {wanted}, not {kind(node)}")
    return value


def _is_octal(text: str) -> bool:
    # YAML 1.1 reads 010 as eight.
    return text.startswith("0") and text.isdigit() and text != "0"


def port(node: yaml.Node) -> int:
    """Return a port of the loopback interface; 0 is none."""
    value = number(node)
    if value > _MAX_PORT:
        raise WrongError(node, f"must be a port from 0 (none) to {_MAX_PORT}, not {value}")
    return value


def index(node: yaml.Node) -> int:
    """Return the place of an NRI plugin among others: two digits."""
    value = number(node)
    if value > _MAX_INDEX:
        raise WrongError(node, f"must be a number from 0 to {_MAX_INDEX}, not {value}")
    return value


def _is_plain_number(text: str) -> bool:
    # YAML 1.1 reads 010 as eight; only what every reader takes for the same number will do.
    return (text == "0" or not text.startswith("0")) and len(text) <= 10 and int(text) <= _MAX_ID


def nvml(node: yaml.Node) -> str:
    """Return auto, off or the path of a library."""
    # YAML 1.1 reads an unquoted off as false.
    if form(node) == "bool" and str(node.value).lower() not in _TRUE:
        return "off"
    text = _text(node, "auto, off or the path of a library")
    return text if text in {"auto", "off"} else path(node)


def class_name(node: yaml.Node) -> str:
    """Return the class of a kind, or a name like one."""
    # Of one letter alone would do by the rule, and every released CDI library crashes on it.
    wanted = f"2 to {MAX_CLASS} letters, digits and inner _ -, the first a letter"
    text = _text(node, wanted)
    # A dot would need cdiVersion 0.6.0, which podman 4.3 refuses.
    if not is_vendor_or_class(text) or "." in text or len(text) > MAX_CLASS:
        raise WrongError(node, f"must be {wanted}, not {quoted(text)}")
    return text


def require(node: yaml.Node) -> str:
    """Return what becomes of requirements: enforce, warn or off."""
    # YAML 1.1 reads an unquoted off as false.
    if form(node) == "bool" and str(node.value).lower() not in _TRUE:
        return "off"
    return word(node, REQUIRE)


def namespace(node: yaml.Node) -> str:
    """Return the name of a Kubernetes namespace, or how such names begin."""
    return _fitting(node, _NAMESPACE, "a namespace, or how its name begins and *")


def handler(node: yaml.Node) -> str:
    """Return the name of a runtime handler."""
    return _fitting(node, _HANDLER, "the name of a runtime handler")


def kind_pattern(node: yaml.Node) -> str:
    """Return a kind, or how its name begins."""
    wanted = "a kind such as nvidia.com/gpu, or how it begins and *"
    return _fitting(node, _KIND_PATTERN, wanted)


def gpu_kind(node: yaml.Node) -> str:
    """Return a kind."""
    return _fitting(node, _KIND, "a kind such as nvidia.com/gpu")


def labels(node: yaml.Node) -> tuple[tuple[str, str], ...]:
    """Return the labels of a mapping of names to values."""
    if form(node) != "mapping":
        raise WrongError(node, f"must be a mapping, not {kind(node)}")
    read: dict[str, str] = {}
    for key, value in node.value:
        name = _fitting(key, _LABEL, "names of labels")
        if name in read:
            raise WrongError(key, f"has {quoted(name)} twice")
        read[name] = _fitting(value, _LABEL_VALUE, "names of labels and their values, or '*'")
    return tuple(read.items())


def _fitting(node: yaml.Node, rule: re.Pattern[str], wanted: str) -> str:
    text = _text(node, wanted)
    if not rule.fullmatch(text):
        raise WrongError(node, f"must be {wanted}, not {quoted(text)}")
    return text


# Names of Kubernetes: RFC 1123 labels for namespaces; qualified names and their values for labels
# (apimachinery, pkg/util/validation). The schema has the same expressions.
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?|[a-z0-9][a-z0-9-]{0,61}\*|\*")
_HANDLER = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_LABEL = re.compile(
    r"([a-z0-9][a-z0-9.-]{0,251}[a-z0-9]/|[a-z0-9]/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?|\*")
# A kind as model.names.is_kind has it: the vendor up to 253 characters, the class up to 63.
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,251}[A-Za-z0-9]/[A-Za-z][A-Za-z0-9._-]{0,61}[A-Za-z0-9]")
_KIND_PATTERN = re.compile(
    _KIND.pattern + r"|[A-Za-z][A-Za-z0-9._-]{0,251}[A-Za-z0-9]/[A-Za-z0-9._-]{0,62}\*|\*"
)
_TRUE = {"true", "yes", "on", "y"}
_MAX_ID = (1 << 32) - 2  # the last one means "no such user" (chown(2))
_MAX_SECONDS = 86_400
_MAX_PORT = 65_535
_MAX_INDEX = 99
_SECONDS = frozenset("0123456789.")
_FORMS = {("scalar", "str"): "text", ("sequence", "seq"): "list", ("mapping", "map"): "mapping"}


def form(node: yaml.Node) -> str:
    """Return ``text``, ``list`` or ``mapping``; of anything else what YAML calls it."""
    # PyYAML keeps scalar, sequence or mapping on the class of each node.
    what, tag = str(getattr(node, "id", "")), node.tag.removeprefix("tag:yaml.org,2002:")
    return _FORMS.get((what, tag), tag)


def _text(node: yaml.Node, wanted: str) -> str:
    if form(node) != "text":
        raise WrongError(node, f"must be {wanted}, not {kind(node)}")
    return str(node.value)


def path(node: yaml.Node) -> str:
    """Return an absolute path."""
    wanted = "an absolute path without '.', '..' or control characters"
    text = _text(node, wanted)
    plain = text.startswith("/") and text.isprintable()
    if not plain or any(part in {".", ".."} for part in text.split("/")):
        raise WrongError(node, f"must be {wanted}, not {quoted(text)}")
    return text


def line(node: yaml.Node) -> str:
    """Return a text of one line."""
    wanted = "a text of one line"
    text = _text(node, wanted)
    if not text.isprintable():
        raise WrongError(node, f"must be {wanted}, not {quoted(text)}")
    return text


def word(node: yaml.Node, words: Collection[str]) -> str:
    """Return one of WORDS."""
    text = _text(node, f"one of {', '.join(words)}")
    if text not in words:
        raise WrongError(node, f"must be one of {', '.join(words)}, not {quoted(text)}")
    return text


def texts_of(root: yaml.Node, name: str, known: Collection[str]) -> tuple[str, ...]:
    """Return which of KNOWN the list under the key NAME of the mapping ROOT has."""
    lists = (value.value for key, value in root.value if key.value == name and form(value) == "list")
    texts = (item.value for entries in lists for item in entries if form(item) == "text")
    return tuple(text for text in texts if text in known)


def items(node: yaml.Node, read: Callable[[yaml.Node], str], *, at_least: int = 0) -> tuple[str, ...]:
    """Return the different values of a list, each as READ returns it."""
    if form(node) != "list":
        raise WrongError(node, f"must be a list, not {kind(node)}")
    if len(node.value) < at_least:
        raise WrongError(node, "must not be empty")
    values: dict[str, None] = {}
    wrong: list[WrongError] = []
    for item in node.value:
        try:
            value = read(item)
        except WrongError as error:
            wrong.append(error)
            continue
        if value in values:
            wrong.append(WrongError(item, f"holds {quoted(value)} twice"))
        values[value] = None
    if wrong:
        first, *others = wrong
        raise WrongError(first.node, str(first), tuple(others))
    return tuple(values)


def kind(node: yaml.Node) -> str:
    """Return what NODE is, in words."""
    if isinstance(node.value, list):
        return f"a {quoted(form(node))[1:-1]}"
    return f"{quoted(node.value)}, which YAML reads as {quoted(form(node))[1:-1]}"


def quoted(text: str, limit: int = 60) -> str:
    """Return TEXT in quotes, its beginning if it is long."""
    return repr(text if len(text) <= limit else f"{text[:limit]}...")
