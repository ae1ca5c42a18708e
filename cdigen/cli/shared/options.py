"""The shared options of commands, and the values of these options: host, configuration, folders, kinds."""

from __future__ import annotations

import os
import sys
from errno import EFBIG

from cdigen import config
from cdigen.cli.shared.option_table import add
from cdigen.host.root import Root, reason, shown
from cdigen.model.errors import ConfigError, StoreError
from cdigen.model.findings import Finding
from cdigen.model.names import is_kind
from cdigen.value import replace
from cdigen.vendors.registry import NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping
    from typing import Any

    from cdigen.model.findings import Severity


def add_root_options(parser: ArgumentParser) -> None:
    """Add the options that select the host and its configuration."""
    add(parser.add_argument_group("host"), "--config", "--root")


def host_and_settings(arguments: Namespace) -> tuple[Root, config.Settings]:
    """Return the root and the configuration of ARGUMENTS; raise ConfigError or StoreError."""
    host = host_root(arguments)
    settings, found = configuration(arguments, host)
    if found:
        raise config.as_error(found)
    return host, _safe_settings(arguments, host, settings)


def host_and_usable_settings(
    arguments: Namespace,
) -> tuple[Root, config.Settings, tuple[Finding, ...]]:
    """Return the root, the valid part of the configuration, and a finding if the configuration has faults.

    Commands that continue with the valid part use this function. If a user other than root may not read the
    file, the finding is only a warning, because the file may be valid. Raises ConfigError for an invalid
    root, and StoreError if the file of --config cannot be read.
    """
    host = host_root(arguments)
    severity: Severity = "error"
    message = ""
    hint = "'cdigen config check' prints every fault with its line"
    try:
        settings, faults = configuration(arguments, host)
    except StoreError as error:
        if arguments.config is not None:
            raise
        settings, message, hint = config.Settings(), error.message, error.hint
        if isinstance(error.__cause__, PermissionError) and os.geteuid() != 0:
            severity, message, hint = "warning", f"the defaults apply: {message}", "run the command as root"
    else:
        if faults:
            more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
            message = f"invalid configuration: {config.format_fault(faults[0])}{more}"
    path = arguments.config or config.DEFAULT_PATH
    wrong = Finding(severity=severity, rule=config.RULE, path=path, message=message, hint=hint)
    return host, _safe_settings(arguments, host, settings), (wrong,) if message else ()


def host_root(arguments: Namespace) -> Root:
    """Return the folder of --root as a Root, or raise ConfigError if it is not a folder."""
    outer = os.path.realpath(arguments.root)
    if not os.path.isdir(outer):
        raise ConfigError(
            f"--root {shown(arguments.root)} is not a folder",
            hint="use the folder that contains the host's root file system",
        )
    return Root(outer)


def _safe_settings(arguments: Namespace, host: Root, settings: config.Settings) -> config.Settings:
    if arguments.config is None and not host.is_this_machine:
        # The configuration in another tree must not select a library that root then loads.
        settings = replace(settings, nvml="auto" if settings.nvml != "off" else "off")
    spec_dirs = getattr(arguments, "spec_dir", None)
    if spec_dirs and host.is_this_machine:
        settings = replace(settings, state_dir=_own_state_dir(settings.state_dir, spec_dirs[-1], os.environ))
    return settings


def configuration(arguments: Namespace, host: Root) -> tuple[config.Settings, tuple[Finding, ...]]:
    """Return the settings from the valid part of the configuration of ARGUMENTS, and an error for each fault.

    Raises StoreError if the file cannot be read. The default file may be missing.
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
            f"{config.DEFAULT_PATH} cannot be read: a link without a target",
            hint="fix the link, or remove it: without the file every key has its default",
        ) from error
    except OSError as error:
        is_refused = isinstance(error, PermissionError)
        raise StoreError(
            f"{config.DEFAULT_PATH} cannot be read: {reason(error)}",
            hint="check its mode and owner" if is_refused else "replace it by a YAML file, or remove it",
        ) from error
    return config.read(data, file=config.DEFAULT_PATH, vendors=NAMES)


def _own_state_dir(configured: str, spec_dir: str, environment: Mapping[str, str]) -> str:
    """Return CONFIGURED (the state directory of the host) or the user's own state directory.

    If the user can write to SPEC_DIR but not to CONFIGURED, the function returns the user's own directory:
    ``cdigen`` in XDG_STATE_HOME, by default ~/.local/state (XDG Base Directory Specification 0.8).
    """
    if os.geteuid() == 0 or _may_write(configured) or not _may_write(os.path.abspath(spec_dir)):
        return configured
    return users_state_dir(configured, environment)


def users_state_dir(configured: str, environment: Mapping[str, str]) -> str:
    """Return the state directory of the present user; CONFIGURED if the user has no home."""
    state_home, home = environment.get("XDG_STATE_HOME", ""), _home(environment)
    if state_home.startswith("/"):
        return f"{state_home}/cdigen"
    return f"{home}/.local/state/cdigen" if home.startswith("/") else configured


def _home(environment: Mapping[str, str]) -> str:
    import pwd  # noqa: PLC0415 - only for users other than root

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir.rstrip("/")
    except KeyError:
        # In a container, the UID of a process can lack an entry in the user database.
        return environment.get("HOME", "").rstrip("/")


def _may_write(path: str) -> bool:
    """Return whether this process can write to the folder PATH, or can create PATH."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)


def read_input(path: str, *, limit: int) -> bytes:
    """Return the content of the file PATH of the command line; ``-`` is standard input.

    PATH may be a pipe or a device. In contrast, ``Root.read`` accepts only regular files. Raises StoreError
    if PATH cannot be read or has more than LIMIT bytes.
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
        raise StoreError(f"{shown(path)} is not a path", hint="a path cannot contain a NUL byte") from None
    return data


def read_json(path: str, *, limit: int, hint: str, kind: str) -> Any:
    """Return the JSON document in the file PATH (see ``read_input``); raise ConfigError if it is not JSON."""
    import json  # noqa: PLC0415 - few commands read JSON

    data = read_input(path, limit=limit)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{shown(path)} is not JSON: {error}", hint=hint, kind=kind) from None


def configuration_file(arguments: Namespace) -> str:
    """Return the path of the configuration file on this machine. The file may be missing."""
    path: str = arguments.config or f"{arguments.root.rstrip('/')}{config.DEFAULT_PATH}"
    return os.path.abspath(path)


def kinds(arguments: Namespace) -> tuple[str, ...]:
    """Return the kinds of --kind; raise ConfigError for an invalid kind."""
    for kind in arguments.kind or ():
        if not is_kind(kind):
            raise ConfigError(
                f"--kind {shown(kind)!r} is not a kind", hint="a kind looks like nvidia.com/gpu"
            )
    return tuple(arguments.kind or ())


def spec_directories(arguments: Namespace, host: Root, settings: config.Settings) -> tuple[str, ...]:
    """Return the spec directories as paths of this machine, in rising priority.

    A directory of --spec-dir is already a path of this machine. The default and the configured directories
    are inside the root.
    """
    if arguments.spec_dir:
        return tuple(os.path.abspath(directory) for directory in arguments.spec_dir)
    return tuple(outer_directory(host, directory) for directory in settings.spec_dirs)


def refuse_own_spec_directory(arguments: Namespace, host: Root, settings: config.Settings) -> None:
    """Raise ConfigError if --spec-dir is a spec directory of this machine, but --root names another host.

    The runtimes of this machine would mount the paths of the other host. A mount point is accepted, because
    in a container it is the directory of the host.
    """
    if host.is_this_machine or not arguments.spec_dir:
        return
    directory = os.path.abspath(arguments.spec_dir[-1])
    own = {os.path.realpath(path) for path in (*config.SPEC_DIRS, *settings.spec_dirs)}
    if os.path.realpath(directory) in own and not os.path.ismount(directory):
        raise ConfigError(
            f"--spec-dir {shown(directory)} is a spec directory of this machine, but --root is "
            f"{shown(host.outer)}: the runtimes of this machine must not mount the paths of another host",
            hint=f"--spec-dir {shown(outer_directory(host, directory))}",
        )


def known_spec_directories(arguments: Namespace, host: Root, settings: config.Settings) -> tuple[str, ...]:
    """Return all directories whose specs can name a view.

    These are the directories of --spec-dir, the configured directories and the default directories.
    """
    own = spec_directories(arguments, host, settings)
    usual = (outer_directory(host, directory) for directory in (*config.SPEC_DIRS, *settings.spec_dirs))
    return tuple(dict.fromkeys((*own, *usual)))


def outer_directory(host: Root, path: str) -> str:
    """Return the folder PATH of HOST as a path of this machine; the folder may be missing.

    If the last part of PATH is a link, the link is not resolved, because the store rejects a spec directory
    that is a link.
    """
    folder, _, name = path.rstrip("/").rpartition("/")
    try:
        return host.outer_path(f"{host.resolve_new(folder or '/').rstrip('/')}/{name}")
    except OSError as error:
        raise StoreError(
            f"{shown(path)}: {reason(error)}", hint="fix the link or the folder's mode"
        ) from error


def absolute(option: str, path: str | None) -> str | None:
    """Return PATH, the value of OPTION; raise ConfigError for a path that the configuration rejects."""
    if path is None:
        return None
    if not path.startswith("/"):
        raise ConfigError(
            f"{option} {shown(path)!r} is not absolute", hint="use an absolute path of the host"
        )
    if not path.isprintable() or any(part in {".", ".."} for part in path.split("/")):
        raise ConfigError(
            f"{option} {shown(path)} contains '.', '..' or control characters", hint="use the plain path"
        )
    return path
