"""The command ``cdigen nri``: the NRI plugin, which injects the devices that containers request."""

from __future__ import annotations

import argparse
import os
import re
import stat

from cdigen.cli.services.service_sources import (
    log_missing_directories,
    require_run_dir,
    settings_or_defaults,
    sources,
)
from cdigen.cli.shared import options
from cdigen.cli.shared.option_table import add
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError, StoreError
from cdigen.nri.plugin_config import Endpoint, NriPluginConfig
from cdigen.runtimes.daemon_service import service_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

EXAMPLES = """\
  cdigen nri                           use /etc/cdigen/config.yaml; cdigen-nri.service does this
  cdigen nri --run-dir /run/try -v     run a test, and log every container with a request
  cdigen nri --socket /run/k3s/nri.sock --index 30
                                       use another socket, and run after other plugins
  cdigen nri --standby                 take over from a running instance, without a gap
"""

NAME = "cdigen"
# The default folder of the plugins that a runtime launches (plugin_path).
PLUGIN_DIR = "/opt/nri/plugins"
# The environment variables of a plugin that a runtime launches (containerd/nri, pkg/api/plugin.go).
_NAME, _INDEX, _SOCKET = "NRI_PLUGIN_NAME", "NRI_PLUGIN_IDX", "NRI_PLUGIN_SOCKET"
# NRI 0.12 and later releases check the names and indices of plugins by these rules.
_NAMES = re.compile(r"[A-Za-z0-9_.+-]{1,128}", re.ASCII)
_INDICES = re.compile(r"[0-9]{2}", re.ASCII)
_DIGITS = 8


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    group = parser.add_argument_group("the runtime")
    add(group, "--socket")
    add(group, "--index", type=_index)
    add(group, "--name", type=_name, help=f"the name of the plugin (default: {NAME})")
    add(parser, "--run-dir", help="the run directory, for status and sockets")
    text = "if another instance serves the runtime, register as its standby, and take over when it ends"
    add(parser, "--standby", help=text)
    options.add_root_options(parser)
    add(parser, "--spec-dir")


def run(arguments: Namespace) -> int:
    """Run the plugin until a signal stops it; return the exit code or raise a CdigenError."""
    from cdigen.nri.plugin import NriPlugin  # noqa: PLC0415 - not for --help, 0.1 s
    from cdigen.service.process.context import service_process  # noqa: PLC0415 - likewise

    launch = _launch_parameters()
    _require_root(arguments, launch)
    with service_process() as context:
        log_missing_directories(arguments, context.log)
        plugin = NriPlugin(
            lambda is_first: setup(arguments, launch, is_lenient=is_first),
            context,
            verbose=arguments.verbose,
        )
        plugin.run(is_standby=arguments.standby)
    return 0


def _require_root(arguments: Namespace, launch: tuple[int, str, str] | None) -> None:
    """Raise StoreError if the user is not root and lacks the rights to run the plugin.

    A plugin that runs as root waits for a missing socket, and works without a run directory. A plugin without
    the rights to open the socket would wait for ever.
    """
    if os.geteuid() == 0 or launch is not None:
        return
    config = setup(arguments, launch, is_lenient=True)
    hint = f"start it with {service_of(options.host_root(arguments)).plugin}"
    if not _may_use(config.endpoint.path):
        path = shown(config.endpoint.path)
        raise StoreError(f"the runtime's socket {path} cannot be used: Permission denied", hint=hint)
    require_run_dir(config.run_dir, hint=hint)


def _may_use(socket: str) -> bool:
    """Return whether the user may open SOCKET; for a missing socket, whether the user may create it.

    If only root may create the socket, only root may open it.
    """
    existing = socket
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    needed = os.W_OK if existing == socket else os.W_OK | os.X_OK
    return os.access(existing, needed)


def setup(arguments: Namespace, launch: tuple[int, str, str] | None, *, is_lenient: bool) -> NriPluginConfig:
    """Return the plugin's settings from ARGUMENTS and the current configuration file, or raise a CdigenError.

    LAUNCH has the socket, the name and the index if a runtime launched the process. If IS_LENIENT is true,
    the function raises no error for an invalid configuration file. Then ``problem`` of the result is the
    error, and the plugin continues, because a plugin that has ended cannot refuse containers.
    """
    may_fail = is_lenient and (arguments.config is None or launch is not None)
    host, settings, problem = settings_or_defaults(arguments, may_fail=may_fail)
    nri = settings.nri
    socket, name, index = launch or (None, "", "")
    path = arguments.socket or options.outer_directory(host, nri.socket)
    return NriPluginConfig(
        settings=settings,
        endpoint=Endpoint(fd=socket) if socket is not None else Endpoint(path=os.path.abspath(path)),
        name=arguments.name or name or NAME,
        index=arguments.index or index or f"{nri.index:02}",
        run_dir=arguments.run_dir or options.outer_directory(host, nri.run_dir),
        sources=sources(arguments, host, settings),
        watched=(options.configuration_file(arguments),),
        plugin_dir=f"{host.outer}{PLUGIN_DIR}",
        problem=problem,
    )


def _launch_parameters() -> tuple[int, str, str] | None:
    """Return socket, name and index from the runtime that launched the process, or None if no runtime did.

    Raises ConfigError if the values are invalid.
    """
    text = os.environ.get(_SOCKET)
    if text is None:
        return None
    hint = f"leave {_SOCKET} unset: only a runtime sets it"
    number = int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else -1
    try:
        is_socket = number >= 0 and stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        is_socket = False
    if not is_socket:
        raise ConfigError(f"{_SOCKET}={shown(text)!r} is not a socket of this process", hint=hint)
    os.set_inheritable(number, False)  # noqa: FBT003 - the os module's own signature
    name, index = os.environ.get(_NAME, ""), os.environ.get(_INDEX, "")
    if name and not _NAMES.fullmatch(name):
        raise ConfigError(f"{_NAME}={shown(name)!r} is not the name of a plugin", hint=hint)
    if index and not _INDICES.fullmatch(index):
        raise ConfigError(f"{_INDEX}={shown(index)!r} is not an index", hint=hint)
    return number, name, index


def _index(text: str) -> str:
    if not _INDICES.fullmatch(text):
        raise argparse.ArgumentTypeError("must be two digits")
    return text


def _name(text: str) -> str:
    if not _NAMES.fullmatch(text):
        raise argparse.ArgumentTypeError("can only contain letters, digits and _ . + -")
    return text
