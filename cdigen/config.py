"""The configuration file: YAML in, checked ``Settings`` out.

The rules are those of ``schemas/config.schema.json``, written in Python because jsonschema takes
longer to import than the whole command takes to run; a test holds the two against each other.
Every problem is reported with its line.
"""

from __future__ import annotations

from cdigen.model.errors import ConfigError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    import yaml

    Reader = Callable[[yaml.Node], object]

DEFAULT_PATH = "/etc/cdigen/config.yaml"
MAX_SIZE = 1 << 20
# The directories of every CDI library, in rising priority (container-device-interface, pkg/cdi).
SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")
STATE_DIR = "/var/lib/cdigen"


@frozen
class Settings:
    """What the configuration says; the field names are the keys of the file."""

    vendors: tuple[str, ...] = ()
    spec_dirs: tuple[str, ...] = SPEC_DIRS
    state_dir: str = STATE_DIR
    driver_root: str = "/"
    dev_root: str = ""
    library_search_paths: tuple[str, ...] = ()
    config_search_paths: tuple[str, ...] = ()


def parse(data: bytes, *, file: str, vendors: tuple[str, ...]) -> Settings:
    """Return the settings in the text of a configuration file; VENDORS are the names known.

    Raises ConfigError that names every problem with FILE and its line.
    """
    import yaml  # noqa: PLC0415 - 19 ms, and most one-shot calls have no configuration file

    if len(data) > MAX_SIZE:
        raise ConfigError(f"{file} is larger than {MAX_SIZE} bytes", hint="is it a configuration of cdigen?")
    try:
        text = data.decode("utf-8")
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 at byte {error.start}", hint="save it as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{file}{line}: {error.problem or error.context}", hint="mend the YAML") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: {' '.join(str(error).split())}", hint="mend the YAML") from None
    except RecursionError:
        raise ConfigError(f"{file} is nested too deeply", hint="is it a configuration of cdigen?") from None
    return Settings() if root is None else _Reading(file, vendors).settings(root)


class _Wrong(ValueError):
    """Carries what a value should have been."""


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
            "library_search_paths": lambda node: _list(node, _path),
            "config_search_paths": lambda node: _list(node, _path),
        }

    def settings(self, root: yaml.Node) -> Settings:
        """Return the settings of the document ROOT; raises ConfigError with all problems."""
        if _form(root) != "mapping":
            self._add(root, "the file is not a mapping of keys to values")
            raise self._error()
        values: dict[str, object] = {}
        for key, value in root.value:
            name = key.value if _form(key) == "scalar" else ""
            if name in values:
                self._add(key, f"the key {name!r} is given a second time")
            elif name not in self._keys:
                self._add(key, f"unknown key {name!r}{_meant(name, self._keys)}")
            else:
                values[name] = None
                try:
                    values[name] = self._keys[name](value)
                except _Wrong as wrong:
                    self._add(value, f"{name} {wrong}")
        if self._problems:
            raise self._error()
        return Settings(**values)  # type: ignore[arg-type]  # each reader returns its field's type

    def _add(self, node: yaml.Node, problem: str) -> None:
        self._problems.append(f"{self._file}:{node.start_mark.line + 1}: {problem}")

    def _error(self) -> ConfigError:
        return ConfigError("; ".join(self._problems), hint="see docs/configuration.md", kind="config")


def _form(node: yaml.Node) -> str:
    """Return ``scalar``, ``sequence`` or ``mapping``: PyYAML keeps it on the class of each."""
    return str(getattr(node, "id", ""))


def _scalar(node: yaml.Node, wanted: str) -> str:
    if _form(node) != "scalar" or node.tag != "tag:yaml.org,2002:str":
        raise _Wrong(f"must be {wanted}, not {_kind(node)}")
    return str(node.value)


def _path(node: yaml.Node) -> str:
    wanted = "an absolute path without '.', '..' or control characters"
    text = _scalar(node, wanted)
    plain = text.startswith("/") and text.isprintable()
    if not plain or any(part in {".", ".."} for part in text.split("/")):
        raise _Wrong(f"must be {wanted}, not {text!r}")
    return text


def _word(node: yaml.Node, words: tuple[str, ...]) -> str:
    text = _scalar(node, f"one of {', '.join(words)}")
    if text not in words:
        raise _Wrong(f"must be one of {', '.join(words)}, not {text!r}")
    return text


def _list(node: yaml.Node, read: Callable[[yaml.Node], str], *, at_least: int = 0) -> tuple[str, ...]:
    if _form(node) != "sequence":
        raise _Wrong(f"must be a list, not {_kind(node)}")
    if len(node.value) < at_least:
        raise _Wrong("must not be empty")
    values = tuple(read(item) for item in node.value)
    if len(set(values)) < len(values):
        raise _Wrong("holds a value twice")
    return values


def _kind(node: yaml.Node) -> str:
    if _form(node) != "scalar":
        return f"a {_form(node)}"
    return f"{node.value!r}, which YAML reads as {node.tag.rpartition(':')[2]}"


def _meant(name: str, known: dict[str, Reader]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only where something is wrong

    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
