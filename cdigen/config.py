"""The configuration file: YAML in, checked ``Settings`` out.

The rules are those of ``schemas/config.schema.json``, written in Python because jsonschema takes
longer to import than the whole command takes to run; a test holds the two against each other.
Every problem is reported with its line.
"""

from __future__ import annotations

from cdigen.model.errors import ConfigError
from cdigen.model.names import MAX_CLASS, is_vendor_or_class
from cdigen.model.profile import CAPABILITIES, DEFAULT, HOOKS, LAYOUTS, NAMINGS, STEPS, Profile
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import yaml

    Reader = Callable[[yaml.Node], object]

DEFAULT_PATH = "/etc/cdigen/config.yaml"
MAX_SIZE = 1 << 20
MAX_PROBLEMS = 10
MAX_DEPTH = 20  # what is right is 4 deep: stream, document, mapping, list
# The directories of every CDI library, in rising priority (container-device-interface, pkg/cdi).
SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")
STATE_DIR = "/var/lib/cdigen"
# What a host may be taken for; ``auto`` looks.
MODES = ("auto", "gpu", "wsl", "csv", "management")


# What becomes of a spec whose files or nodes are gone.
ON_GONE = ("withdraw", "keep")


@frozen
class Daemon:
    """How ``cdigen run`` waits; times are seconds (docs/operations.md has the reasons for the defaults).

    A cycle follows ``quiet_s`` after the last event, ``bound_s`` after the first at most. A host between
    two states is looked at again after ``settle_first_s``, later each time up to ``settle_most_s``, and is
    taken as it is after ``settle_s``. Every ``poll_s`` what the kernel does not announce is compared, every
    ``look_s`` all is looked at.
    """

    quiet_s: float = 0.2
    bound_s: float = 5.0
    settle_s: float = 30.0
    settle_first_s: float = 0.5
    settle_most_s: float = 10.0
    poll_s: float = 1.0
    look_s: float = 300.0
    on_gone: str = "withdraw"
    run_dir: str = "/run/cdigen"
    http_port: int = 0


@frozen
class Settings:
    """What the configuration says; the field names are the keys of the file."""

    vendors: tuple[str, ...] = ()
    spec_dirs: tuple[str, ...] = SPEC_DIRS
    state_dir: str = STATE_DIR
    driver_root: str = "/"
    dev_root: str = ""
    container_driver_root: str = "/"
    library_search_paths: tuple[str, ...] = ()
    config_search_paths: tuple[str, ...] = ()
    mode: str = "auto"
    nvml: str = "auto"
    create_nodes: bool = False
    mps_pipe_dir: str = ""
    mps_uid: int = 0
    hook: str = "/usr/libexec/cdigen/cdigen-hook"
    hook_python: str = "/usr/bin/python3"
    nvidia_hook: str = "/usr/bin/nvidia-cdi-hook"
    view_copies: bool = False
    profiles: tuple[Profile, ...] = (DEFAULT,)
    daemon: Daemon = Daemon()


def parse(data: bytes, *, file: str, vendors: tuple[str, ...]) -> Settings:
    """Return the settings in the text of a configuration file; VENDORS are the names known.

    Raises ConfigError that names every problem with FILE and its line.
    """
    if len(data) > MAX_SIZE:
        raise ConfigError(f"{file} is larger than {MAX_SIZE} bytes", hint="is it a configuration of cdigen?")
    root = _compose(data, file)
    return Settings() if root is None else _Reading(file, vendors).settings(root)


def _compose(data: bytes, file: str) -> yaml.Node | None:
    """Return the tree of a YAML document, None where there is none; raises ConfigError."""
    import yaml  # noqa: PLC0415 - 19 ms, and most one-shot calls have no configuration file

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: this is no UTF-8", hint="save it as UTF-8") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_depth(yaml.parse(text, Loader=loader), file)
        root: yaml.Node | None = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{file}{where}: {error.problem or error.context}", hint="mend the YAML") from None
    except yaml.reader.ReaderError as error:
        odd = yaml.reader.Reader.NON_PRINTABLE.search(text)
        where = f":{text.count(chr(10), 0, odd.start()) + 1}" if odd else ""
        raise ConfigError(f"{file}{where}: {error.reason}", hint="mend the YAML") from None
    return root


def _refuse_depth(events: Iterable[yaml.Event], file: str) -> None:
    """Raise ConfigError where a document is nested deeply: composing it would overflow the C stack."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if depth > MAX_DEPTH:
            line = f":{event.start_mark.line + 1}" if event.start_mark else ""
            raise ConfigError(f"{file}{line}: nested too deeply", hint="is it a configuration of cdigen?")


class _Wrong(ValueError):
    """Says which value is wrong, and what it should have been."""

    def __init__(self, node: yaml.Node, problem: str) -> None:
        super().__init__(problem)
        self.node = node


class _Reading:
    """One file being read: gathers problems with their lines."""

    def __init__(self, file: str, vendors: tuple[str, ...]) -> None:
        self._file = file
        self._problems: list[str] = []
        self._keys: dict[str, Reader] = {
            "vendors": lambda node: _list(node, lambda item: _word(item, vendors)),
            "spec_dirs": lambda node: _list(node, _path, at_least=1),
            "state_dir": _path,
            "driver_root": _path,
            "dev_root": _path,
            "container_driver_root": _path,
            "library_search_paths": lambda node: _list(node, _path),
            "config_search_paths": lambda node: _list(node, _path),
            "mode": lambda node: _word(node, MODES),
            "nvml": _nvml,
            "create_nodes": _flag,
            "mps_pipe_dir": _path,
            "mps_uid": _number,
            "hook": _path,
            "hook_python": _path,
            "nvidia_hook": _path,
            "view_copies": _flag,
            "profiles": self._profiles,
            "daemon": self._daemon,
        }

    def settings(self, root: yaml.Node) -> Settings:
        """Return the settings of the document ROOT; raises ConfigError with all problems."""
        if _form(root) != "mapping":
            self._add(root, "the file is not a mapping of keys to values")
            raise self._error()
        values = self._mapping(root, self._keys, "")
        if self._problems:
            raise self._error()
        return Settings(**values)  # type: ignore[arg-type]  # each reader returns its field's type

    def _mapping(self, root: yaml.Node, keys: dict[str, Reader], where: str) -> dict[str, object]:
        """Return the values of the mapping ROOT by KEYS, and note what is wrong with it."""
        values: dict[str, object] = {}
        for key, value in root.value:
            name = key.value if _form(key) == "text" else ""
            if not name:
                self._add(key, f"{where}a key must be a text, not {_kind(key)}")
            elif name in values:
                self._add(key, f"{where}the key {name!r} is given a second time")
            elif name not in keys:
                self._add(key, f"{where}unknown key {_quoted(name)}{_meant(name, keys)}")
            else:
                values[name] = None
                try:
                    values[name] = keys[name](value)
                except _Wrong as wrong:
                    self._add(wrong.node, f"{where}{name} {wrong}")
        return values

    def _profiles(self, node: yaml.Node) -> tuple[Profile, ...]:
        """Return the profiles of a list; two of one name or one class are wrong."""
        if _form(node) != "list":
            raise _Wrong(node, f"must be a list, not {_kind(node)}")
        if not node.value:
            raise _Wrong(node, "must not be empty")
        profiles: list[Profile] = []
        for item in node.value:
            if _form(item) != "mapping":
                self._add(item, f"a profile must be a mapping, not {_kind(item)}")
                continue
            before = len(self._problems)
            values = self._mapping(item, _PROFILE, "profile: ")
            self._problems.extend(
                f"{self._file}:{item.start_mark.line + 1}: profile: the key {name!r} is missing"
                for name in ("name", "class")
                if name not in values
            )
            if len(self._problems) > before:
                continue
            profile = Profile(device_class=values.pop("class"), **values)  # type: ignore[arg-type]
            for other in profiles:
                if profile.name == other.name:
                    self._add(item, f"a second profile is named {profile.name!r}")
                elif profile.device_class == other.device_class:
                    self._add(item, f"a second profile has the class {profile.device_class!r}")
            profiles.append(profile)
        return tuple(profiles)

    def _daemon(self, node: yaml.Node) -> Daemon:
        """Return the times and places of the daemon in a mapping."""
        if _form(node) != "mapping":
            raise _Wrong(node, f"must be a mapping, not {_kind(node)}")
        return Daemon(**self._mapping(node, _DAEMON, "daemon: "))  # type: ignore[arg-type]  # likewise

    def _add(self, node: yaml.Node, problem: str) -> None:
        self._problems.append(f"{self._file}:{node.start_mark.line + 1}: {problem}")

    def _error(self) -> ConfigError:
        more = len(self._problems) - MAX_PROBLEMS
        said = [*self._problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
        return ConfigError("; ".join(said), hint="see docs/configuration.md", kind="config")


def _flag(node: yaml.Node) -> bool:
    if _form(node) != "bool":
        raise _Wrong(node, f"must be true or false, not {_kind(node)}")
    return str(node.value).lower() in _TRUE


def _number(node: yaml.Node) -> int:
    text = str(node.value)
    if _form(node) != "int" or not (text.isascii() and text.isdigit()) or not _is_plain_number(text):
        raise _Wrong(node, f"must be a number from 0 to {_MAX_ID}, not {_kind(node)}")
    return int(text)


def _seconds(node: yaml.Node) -> float:
    wanted = f"a number of seconds from 0.01 to {_MAX_SECONDS}"
    if _form(node) not in {"int", "float"} or not _SECONDS.issuperset(str(node.value)):
        raise _Wrong(node, f"must be {wanted}, not {_kind(node)}")
    try:
        value = float(str(node.value))
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= _MAX_SECONDS or _is_octal(str(node.value)):
        raise _Wrong(node, f"must be {wanted}, not {_kind(node)}")
    return value


def _is_octal(text: str) -> bool:
    # YAML 1.1 reads 010 as eight.
    return text.startswith("0") and text.isdigit() and text != "0"


def _port(node: yaml.Node) -> int:
    number = _number(node)
    if number > _MAX_PORT:
        raise _Wrong(node, f"must be a port from 0 (none) to {_MAX_PORT}, not {number}")
    return number


def _is_plain_number(text: str) -> bool:
    # YAML 1.1 reads 010 as eight; only what every reader takes for the same number will do.
    return (text == "0" or not text.startswith("0")) and len(text) <= 10 and int(text) <= _MAX_ID


def _nvml(node: yaml.Node) -> str:
    # YAML 1.1 reads an unquoted off as false.
    if _form(node) == "bool" and str(node.value).lower() not in _TRUE:
        return "off"
    text = _text(node, "auto, off or the path of a library")
    return text if text in {"auto", "off"} else _path(node)


def _class(node: yaml.Node) -> str:
    wanted = f"letters, digits and inner _ -, at most {MAX_CLASS} of them"
    text = _text(node, wanted)
    # A dot would need cdiVersion 0.6.0, which podman 4.3 refuses.
    if not is_vendor_or_class(text) or "." in text or len(text) > MAX_CLASS:
        raise _Wrong(node, f"must be {wanted}, not {_quoted(text)}")
    return text


_TRUE = {"true", "yes", "on", "y"}
_MAX_ID = (1 << 32) - 2  # the last one means "no such user" (chown(2))
_MAX_SECONDS = 86_400
_MAX_PORT = 65_535
_SECONDS = frozenset("0123456789.")
_FORMS = {("scalar", "str"): "text", ("sequence", "seq"): "list", ("mapping", "map"): "mapping"}


def _form(node: yaml.Node) -> str:
    """Return ``text``, ``list`` or ``mapping``; of anything else what YAML calls it."""
    # PyYAML keeps scalar, sequence or mapping on the class of each node.
    what, tag = str(getattr(node, "id", "")), node.tag.removeprefix("tag:yaml.org,2002:")
    return _FORMS.get((what, tag), tag)


def _text(node: yaml.Node, wanted: str) -> str:
    if _form(node) != "text":
        raise _Wrong(node, f"must be {wanted}, not {_kind(node)}")
    return str(node.value)


def _path(node: yaml.Node) -> str:
    wanted = "an absolute path without '.', '..' or control characters"
    text = _text(node, wanted)
    plain = text.startswith("/") and text.isprintable()
    if not plain or any(part in {".", ".."} for part in text.split("/")):
        raise _Wrong(node, f"must be {wanted}, not {_quoted(text)}")
    return text


def _word(node: yaml.Node, words: tuple[str, ...]) -> str:
    text = _text(node, f"one of {', '.join(words)}")
    if text not in words:
        raise _Wrong(node, f"must be one of {', '.join(words)}, not {_quoted(text)}")
    return text


def _list(node: yaml.Node, read: Callable[[yaml.Node], str], *, at_least: int = 0) -> tuple[str, ...]:
    if _form(node) != "list":
        raise _Wrong(node, f"must be a list, not {_kind(node)}")
    if len(node.value) < at_least:
        raise _Wrong(node, "must not be empty")
    values: dict[str, None] = {}
    for item in node.value:
        value = read(item)
        if value in values:
            raise _Wrong(item, f"holds {_quoted(value)} twice")
        values[value] = None
    return tuple(values)


def _kind(node: yaml.Node) -> str:
    if isinstance(node.value, list):
        return f"a {_quoted(_form(node))[1:-1]}"
    return f"{_quoted(node.value)}, which YAML reads as {_quoted(_form(node))[1:-1]}"


def _quoted(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else f"{text[:limit]}...")


def _meant(name: str, known: dict[str, Reader]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only where something is wrong

    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"


_PROFILE: dict[str, Reader] = {
    "name": _class,
    "class": _class,
    "capabilities": lambda node: _list(node, lambda item: _word(item, CAPABILITIES)),
    "names": lambda node: _list(node, lambda item: _word(item, NAMINGS), at_least=1),
    "graphics": _flag,
    "x11": _flag,
    "firmware": _flag,
    "sockets": _flag,
    "mps": _flag,
    "compat32": _flag,
    "whole_gpus": _flag,
    "layout": lambda node: _word(node, LAYOUTS),
    "hook": lambda node: _word(node, HOOKS),
    "hook_steps": lambda node: _list(node, lambda item: _word(item, STEPS)),
    "hook_required": lambda node: _list(node, lambda item: _word(item, STEPS)),
}

_DAEMON: dict[str, Reader] = {
    "quiet_s": _seconds,
    "bound_s": _seconds,
    "settle_s": _seconds,
    "settle_first_s": _seconds,
    "settle_most_s": _seconds,
    "poll_s": _seconds,
    "look_s": _seconds,
    "on_gone": lambda node: _word(node, ON_GONE),
    "run_dir": _path,
    "http_port": _port,
}
