"""Options that several commands share, and what they name: host, configuration, spec directories, kinds."""

from __future__ import annotations

import argparse
import os
import sys
from errno import EFBIG

from cdigen import config
from cdigen.cli import report
from cdigen.host.root import Root, reason, shown
from cdigen.model.errors import ConfigError, StoreError
from cdigen.model.findings import Finding, errors
from cdigen.model.names import is_kind
from cdigen.value import replace
from cdigen.vendors.registry import NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.model.findings import Severity


def not_empty(text: str) -> str:
    """Return TEXT, the value of an option; argparse puts the option's name before what is raised."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add what every command takes."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document and nothing else on stdout"
    )
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-v", "--verbose", action="store_true", help="say more on stderr")
    volume.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors on stderr")


def add_root_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which host is meant."""
    group = parser.add_argument_group("which host")
    group.add_argument(
        "--config",
        metavar="FILE",
        type=not_empty,
        help=f"the configuration (default: {config.DEFAULT_PATH})",
    )
    group.add_argument(
        "--root",
        metavar="DIR",
        type=not_empty,
        default="/",
        help="pretend that the folder DIR is the host",
    )


def add_standby_option(parser: argparse.ArgumentParser) -> None:
    """Add --standby, of a process that serves a host alone."""
    parser.add_argument(
        "--standby",
        action="store_true",
        help="where another instance serves this host, wait until it ends, and take its place at once",
    )


def add_spec_dir_option(parser: argparse.ArgumentParser) -> None:
    """Add --spec-dir."""
    parser.add_argument(
        "--spec-dir",
        metavar="DIR",
        type=not_empty,
        action="append",
        help="a spec directory instead of the default ones; repeat it, the last has priority",
    )


def host_and_settings(
    arguments: argparse.Namespace, warn: Callable[[Finding], object] | None = None
) -> tuple[Root, config.Settings]:
    """Open the root and read the configuration that ARGUMENTS name; raises ConfigError, StoreError.

    WARN is given each key that has its old name; without it, they are printed.
    """
    host = host_root(arguments)
    settings, found = configuration(arguments, host)
    if wrong := errors(found):
        raise config.as_error(wrong)
    if warn is None:
        report.print_findings(_placed(found), arguments)
    else:
        for finding in _placed(found):
            warn(finding)
    return host, _cautious(arguments, host, settings)


def host_and_usable_settings(
    arguments: argparse.Namespace,
) -> tuple[Root, config.Settings, tuple[Finding, ...]]:
    """Open the root and read of the configuration what is right; what is wrong with it is one finding.

    Keys with their old names are findings of their own after it. The first is a warning where root alone may
    read the file, and another user asks: the daemon may have a right one. For commands that go on by what is
    right. Raises ConfigError for the root, StoreError for a file that was named and cannot be read.
    """
    host = host_root(arguments)
    severity: Severity = "error"
    said = ""
    old: tuple[Finding, ...] = ()
    hint = "'cdigen config check' shows every fault with its line"
    try:
        settings, found = configuration(arguments, host)
    except StoreError as error:
        if arguments.config is not None:
            raise
        settings, said, hint = config.Settings(), error.message, error.hint
        if isinstance(error.__cause__, PermissionError) and os.geteuid() != 0:
            severity, said, hint = "warning", f"the defaults are taken: {said}", "ask as root"
    else:
        faults, old = errors(found), _placed(found)
        if faults:
            more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
            said = f"the configuration is wrong: {config.format_fault(faults[0])}{more}"
    path = arguments.config or config.DEFAULT_PATH
    wrong = Finding(severity=severity, rule=config.RULE, path=path, message=said, hint=hint)
    return host, _cautious(arguments, host, settings), (*((wrong,) if said else ()), *old)


def _placed(found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the warnings among FOUND with their places in their messages, which are what is printed."""
    return tuple(
        replace(finding, message=config.format_fault(replace(finding, severity="error")))
        for finding in found
        if finding.severity == "warning"
    )


def host_root(arguments: argparse.Namespace) -> Root:
    """Open the root that ARGUMENTS name; raises ConfigError."""
    outer = os.path.realpath(arguments.root)
    if not os.path.isdir(outer):
        raise ConfigError(
            f"--root {shown(arguments.root)} is not a folder that exists",
            hint="name the folder that holds the host's /",
        )
    return Root(outer)


def _cautious(arguments: argparse.Namespace, host: Root, settings: config.Settings) -> config.Settings:
    if arguments.config is None and not host.is_this_machine:
        # What another's tree says of itself is not a reason to make nodes or to load a library as root.
        settings = replace(settings, create_nodes=False, nvml="auto" if settings.nvml != "off" else "off")
    spec_dirs = getattr(arguments, "spec_dir", None)
    if spec_dirs and host.is_this_machine:
        settings = replace(settings, state_dir=_own_state_dir(settings.state_dir, spec_dirs[-1], os.environ))
    return settings


def configuration(arguments: argparse.Namespace, host: Root) -> tuple[config.Settings, tuple[Finding, ...]]:
    """Return the settings by what is right in the configuration that ARGUMENTS name, and what is wrong in it.

    StoreError: it cannot be read. The default one need not exist.
    """
    if arguments.config is not None:
        data = read_input(arguments.config, limit=config.MAX_SIZE)
        return config.read(data, file=arguments.config, vendors=NAMES)
    try:
        data = host.read(config.DEFAULT_PATH, limit=config.MAX_SIZE)
    except (FileNotFoundError, NotADirectoryError) as error:
        folder, _, name = config.DEFAULT_PATH.rpartition("/")
        if name not in host.names(folder):
            return config.Settings(), ()
        raise StoreError(
            f"{config.DEFAULT_PATH} cannot be read: it is a link that leads nowhere",
            hint="fix the link, or remove it: without the file every key has its default",
        ) from error
    except OSError as error:
        is_refused = isinstance(error, PermissionError)
        raise StoreError(
            f"{config.DEFAULT_PATH} cannot be read: {reason(error)}",
            hint="check its mode and owner" if is_refused else "put a file of YAML there, or nothing",
        ) from error
    return config.read(data, file=config.DEFAULT_PATH, vendors=NAMES)


def _own_state_dir(configured: str, spec_dir: str, environment: Mapping[str, str]) -> str:
    """Return CONFIGURED, the host's state directory, or the user's own where only SPEC_DIR may be written.

    That is ``cdigen`` in XDG_STATE_HOME, by default ~/.local/state (XDG Base Directory Specification 0.8).
    """
    if os.geteuid() == 0 or _may_write(configured) or not _may_write(os.path.abspath(spec_dir)):
        return configured
    given, home = environment.get("XDG_STATE_HOME", ""), _home(environment)
    if given.startswith("/"):
        return f"{given}/cdigen"
    return f"{home}/.local/state/cdigen" if home.startswith("/") else configured


def _home(environment: Mapping[str, str]) -> str:
    import pwd  # noqa: PLC0415 - users alone come here

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir.rstrip("/")
    except KeyError:
        # A container that gives its processes any number.
        return environment.get("HOME", "").rstrip("/")


def _may_write(path: str) -> bool:
    """Return whether the folder PATH may be written to, or made."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)


def read_input(path: str, *, limit: int) -> bytes:
    """Return the content of PATH (``-``: standard input), which the user named; raises StoreError.

    It has at most LIMIT bytes. Unlike what is found on a host, it may be a pipe or a device.
    """
    try:
        if path == "-":
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(limit + 1)
        if len(data) > limit:
            raise OSError(EFBIG, f"larger than {limit} bytes", path)
    except OSError as error:
        raise StoreError(
            f"{shown(path)} cannot be read: {reason(error)}", hint="check its path and mode"
        ) from error
    except ValueError:
        raise StoreError(f"{shown(path)} is not a path", hint="a path cannot hold a NUL byte") from None
    return data


def configuration_file(arguments: argparse.Namespace) -> str:
    """Return where on this machine the configuration is that ARGUMENTS name, whether it is there or not."""
    path: str = arguments.config or f"{arguments.root.rstrip('/')}{config.DEFAULT_PATH}"
    return os.path.abspath(path)


def kinds(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the kinds named by --kind; raises ConfigError for what cannot be a kind."""
    for kind in arguments.kind or ():
        if not is_kind(kind):
            raise ConfigError(
                f"--kind {shown(kind)!r} is not a kind", hint="a kind looks like nvidia.com/gpu"
            )
    return tuple(arguments.kind or ())


def spec_directories(arguments: argparse.Namespace, host: Root, settings: config.Settings) -> tuple[str, ...]:
    """Return the spec directories as paths of this machine, in rising priority.

    Directories that were given are literal; the default and the configured ones lie in the root.
    """
    if arguments.spec_dir:
        return tuple(os.path.abspath(directory) for directory in arguments.spec_dir)
    return tuple(outer_directory(host, directory) for directory in settings.spec_dirs)


def known_spec_directories(
    arguments: argparse.Namespace, host: Root, settings: config.Settings
) -> tuple[str, ...]:
    """Return every directory in which a spec may name a view: those given, beside the others."""
    given = spec_directories(arguments, host, settings)
    usual = (outer_directory(host, directory) for directory in (*config.SPEC_DIRS, *settings.spec_dirs))
    return tuple(dict.fromkeys((*given, *usual)))


def outer_directory(host: Root, path: str) -> str:
    """Return the folder PATH of HOST as a path of this machine; it need not exist yet.

    The last part is not resolved: a spec directory that is a link is the store's to refuse.
    """
    folder, _, name = path.rstrip("/").rpartition("/")
    try:
        return host.outer_path(f"{host.resolve_new(folder or '/').rstrip('/')}/{name}")
    except OSError as error:
        raise StoreError(
            f"{shown(path)}: {reason(error)}", hint="fix the link or the folder's mode"
        ) from error


def absolute(option: str, path: str | None) -> str | None:
    """Return PATH, which OPTION gave; raises ConfigError for what the configuration refuses as well."""
    if path is None:
        return None
    if not path.startswith("/"):
        raise ConfigError(f"{option} {shown(path)!r} is not absolute", hint="paths are as the host sees them")
    if not path.isprintable() or any(part in {".", ".."} for part in path.split("/")):
        raise ConfigError(
            f"{option} {shown(path)} holds '.', '..' or control characters", hint="give the path itself"
        )
    return path
