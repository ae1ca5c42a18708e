"""Read a systemd unit: the arguments and the environment of its command line, and whether it is enabled.

The module supports the parts of systemd.unit(5), systemd.service(5) and systemd.exec(5) that the services of
runtimes use: drop-ins, the reset by an empty value, environment files and variables. An unreadable file is
treated as a missing file, without a finding. The arguments in this file then have their default values.
"""

from __future__ import annotations

import re

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

# systemd.unit(5), "Unit File Load Path". The first folder has the highest priority.
SYSTEM_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
USER_FOLDERS = (
    "/etc/systemd/user",
    "/run/systemd/user",
    "/usr/local/lib/systemd/user",
    "/usr/lib/systemd/user",
)

_ENABLED_AT = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_LIMIT = 1 << 16
_PREFIXES = "@-:+!|"  # the prefixes of an executable: systemd.service(5), "Command lines"
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@frozen
class Command:
    """A command line: the words after the program, the environment from units, and the unit file."""

    words: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    file: str = ""
    program: str = ""

    def values(self, *names: str) -> tuple[str, ...]:
        """Return the values of the options NAMES (``--config``, ``-c``) in order."""
        found: list[str] = []
        words = iter(self.words)
        for word in words:
            name, equals, value = word.partition("=")
            if name in names:
                found += [value] if equals else [next(words, "")]
        return tuple(found)

    def flag(self, name: str) -> bool | None:
        """Return the last value of the switch NAME; None if the command line does not contain the switch."""
        last = None
        for word in self.words:
            option, equals, value = word.partition("=")
            if option == name:
                last = not equals or value.lower() in {"1", "t", "true"}
        return last


def command(host: Root, unit: str, folders: tuple[str, ...] = SYSTEM_FOLDERS) -> Command:
    """Return the command of UNIT (``docker.service``) on HOST; an empty Command if UNIT does not exist."""
    file, settings = _settings_of(host, unit, folders, "[Service]")
    line = ""
    environment: dict[str, str] = {}
    for key, value in settings:
        if key == "ExecStart":
            line = value
        elif key == "Environment":
            environment |= _assignments(value)
    # systemd reads environment files when the service starts, after all settings of units (systemd.exec(5)).
    for key, value in settings:
        if key == "EnvironmentFile":
            environment |= _environment_file(_text(host, value.removeprefix("-")))
    program, *words = _split(line.lstrip(_PREFIXES)) or [""]
    expanded = tuple(part for word in words for part in _expand(word, environment))
    return Command(words=expanded, environment=tuple(sorted(environment.items())), file=file, program=program)


def _text(host: Root, path: str) -> str:
    if not path.startswith("/"):
        return ""
    try:
        return host.read(path, limit=_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""


def _drop_ins(host: Root, unit: str, folders: tuple[str, ...]) -> list[str]:
    """Return the drop-ins, sorted by name; among equal names, only that of the first folder is used."""
    found: dict[str, str] = {}
    for folder in folders:
        for name in host.names(f"{folder}/{unit}.d"):
            if name.endswith(".conf"):
                found.setdefault(name, f"{folder}/{unit}.d/{name}")
    return [found[name] for name in sorted(found)]


def unit_values(host: Root, unit: str, key: str) -> tuple[str, ...]:
    """Return the words of KEY (``Before``) in the section [Unit] of UNIT and its drop-ins.

    The function is for dependencies, which an empty value does not reset (systemd.unit(5)).
    """
    _, settings = _settings_of(host, unit, SYSTEM_FOLDERS, "[Unit]")
    return tuple(word for name, value in settings if name == key for word in value.split())


def has_unit(host: Root, unit: str) -> bool:
    """Return whether HOST has UNIT."""
    return any(host.exists(f"{folder}/{unit}") for folder in SYSTEM_FOLDERS)


def is_enabled(host: Root, unit: str) -> bool:
    """Return whether UNIT is enabled: another unit has a link to UNIT, and UNIT is not masked."""
    files = [f"{folder}/{unit}" for folder in SYSTEM_FOLDERS]
    try:
        real = next(host.resolve(path) for path in files if host.exists(path))
    except (StopIteration, OSError):
        return False
    if real == "/dev/null":
        return False
    return any(
        unit in host.names(f"{folder}/{name}")
        for folder in _ENABLED_AT
        for name in host.names(folder)
        if name.endswith((".wants", ".requires"))
    )


def _settings_of(
    host: Root, unit: str, folders: tuple[str, ...], section: str
) -> tuple[str, list[tuple[str, str]]]:
    """Return the file of UNIT, and the settings in SECTION of the file and its drop-ins."""
    file = next((f"{folder}/{unit}" for folder in folders if _text(host, f"{folder}/{unit}")), "")
    paths = (file, *_drop_ins(host, unit, folders)) if file else ()
    return file, [setting for path in paths for setting in _settings(_text(host, path), section)]


def _settings(text: str, wanted_section: str) -> list[tuple[str, str]]:
    settings: list[tuple[str, str]] = []
    section = ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            section = stripped
        elif section == wanted_section and stripped[:1] not in {"", "#", ";"}:
            key, _, value = stripped.partition("=")
            settings.append((key.strip(), value.strip()))
    return settings


def _assignments(text: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in _split(text))
    return {name: value for name, equals, value in pairs if equals}


def _environment_file(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name[:1] not in {"#", ";"}:
            found[name.strip()] = " ".join(_split(value))
    return found


def _expand(word: str, environment: dict[str, str]) -> list[str]:
    if word.startswith("$") and word[1:].isidentifier():
        return _split(environment.get(word[1:], ""))
    return [_VARIABLE.sub(lambda found: environment.get(found[1], ""), word)]


def _split(text: str) -> list[str]:
    import shlex  # noqa: PLC0415 - few commands read units

    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
