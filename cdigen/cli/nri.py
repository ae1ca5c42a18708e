"""``cdigen nri``: the NRI plugin, which gives containers the devices that they ask for."""

from __future__ import annotations

import argparse
import gc
import os
import re
import stat

from cdigen.cli import options
from cdigen.cli.argument_checks import require_spec_directories
from cdigen.cli.front_end_sources import sources
from cdigen.config import Settings
from cdigen.frontend import rundir, signals
from cdigen.host.root import Root, shown
from cdigen.model.errors import ConfigError, StoreError
from cdigen.nri.plugin_config import Endpoint, PluginConfig
from cdigen.runtimes.daemon_service import service_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from cdigen.model.findings import Finding

EXAMPLES = """\
  cdigen nri                           as /etc/cdigen/config.yaml says; cdigen-nri.service does this
  cdigen nri --run-dir /run/try -v     try it, with a line for every container that asks
  cdigen nri --socket /run/k3s/nri.sock --index 30
                                       the runtime's socket is elsewhere, and others come first
  cdigen nri --standby                 take the place of an instance, without a gap
"""

NAME = "cdigen"
# Where runtimes look for plugins that they start themselves (plugin_path).
PLUGIN_DIR = "/opt/nri/plugins"
# What such a plugin is told (containerd/nri, pkg/api/plugin.go).
_NAME, _INDEX, _SOCKET = "NRI_PLUGIN_NAME", "NRI_PLUGIN_IDX", "NRI_PLUGIN_SOCKET"
# As NRI checks them since 0.12.
_NAMES = re.compile(r"[A-Za-z0-9_.+-]{1,128}", re.ASCII)
_INDICES = re.compile(r"[0-9]{2}", re.ASCII)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    group = parser.add_argument_group("the runtime")
    group.add_argument(
        "--socket", metavar="PATH", type=options.not_empty, help="where the runtime listens for plugins"
    )
    group.add_argument(
        "--index", metavar="NN", type=_index, help="the place among plugins, 00 to 99 (default: 20)"
    )
    group.add_argument(
        "--name", metavar="NAME", type=_name, help=f"the plugin's name there (default: {NAME})"
    )
    parser.add_argument(
        "--run-dir", metavar="DIR", type=options.not_empty, help="where status and HTTP socket are kept"
    )
    parser.add_argument(
        "--standby",
        action="store_true",
        help="where another instance serves the runtime, serve beside it, and in its place when it ends",
    )
    options.add_root_options(parser)
    options.add_spec_dir_option(parser)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the plugin until it is told to stop; returns the exit code or raises a CdigenError."""
    from cdigen.frontend.earlylog import EarlyLog  # noqa: PLC0415 - not for --help
    from cdigen.frontend.sd_notify import Notifier  # noqa: PLC0415 - likewise
    from cdigen.nri.plugin import Plugin  # noqa: PLC0415 - likewise, 0.1 s

    # Commands end before garbage matters (cli.main turns this off); this one stays.
    gc.enable()
    given = _given()
    _refuse_outsider(arguments, given)
    heard = signals.listen()
    log = EarlyLog()

    def warn(found: Finding) -> None:
        log.warning("configuration", message=found.message, hint=found.hint)

    try:
        require_spec_directories(arguments)
    except ConfigError as error:  # the first spec may make it
        log.warning("options", message=error.message, hint=error.hint)
    plugin = Plugin(
        lambda is_first: setup(arguments, given, is_lenient=is_first, warn=warn),
        notifier=Notifier(),
        log=log,
        signals=heard,
        verbose=arguments.verbose,
        stands_by=arguments.standby,
    )
    try:
        plugin.run()
    finally:
        heard.ignore()
    return 0


def _refuse_outsider(arguments: Namespace, given: tuple[int, str, str] | None) -> None:
    """Raise StoreError where who runs this has not root's rights, and can be no plugin without them.

    Root's plugin waits for a socket that is not there, and serves without a run directory: who is refused for
    want of rights would wait for ever.
    """
    if os.geteuid() == 0 or given is not None:
        return
    wanted = setup(arguments, given, is_lenient=True, warn=lambda _: None)
    hint = f"the NRI plugin is root's: {service_of(options.host_root(arguments)).plugin} starts it"
    try:
        os.stat(wanted.endpoint.path)
        is_refused = not os.access(wanted.endpoint.path, os.W_OK)
    except OSError as error:
        is_refused = isinstance(error, PermissionError)
    if is_refused:
        path = shown(wanted.endpoint.path)
        raise StoreError(f"the runtime's socket {path} cannot be used: Permission denied", hint=hint)
    try:
        rundir.prepare(wanted.run_dir)
    except StoreError as error:
        raise StoreError(error.message, hint=hint) from None


def setup(
    arguments: Namespace,
    given: tuple[int, str, str] | None,
    *,
    is_lenient: bool,
    warn: Callable[[Finding], object] | None = None,
) -> PluginConfig:
    """Return what ARGUMENTS and the configuration, read now, make of the plugin; raises a CdigenError.

    GIVEN are the socket, the name and the index that a runtime has started us with. IS_LENIENT: where the
    configuration of the host is wrong, the setup says so; a plugin that ends for that refuses nobody. WARN is
    given each key that has its old name.
    """
    problem = ""
    try:
        host, settings = options.host_and_settings(arguments, warn)
    except (ConfigError, StoreError) as error:
        root = os.path.realpath(arguments.root)
        if not is_lenient or not os.path.isdir(root) or (arguments.config is not None and given is None):
            raise
        host, settings, problem = Root(root), Settings(), error.message
    nri = settings.nri
    socket, name, index = given or (None, "", "")
    path = arguments.socket or options.outer_directory(host, nri.socket)
    return PluginConfig(
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


def _given() -> tuple[int, str, str] | None:
    """Return the socket, the name and the index that a runtime gives a plugin that it starts itself.

    Raises ConfigError where they are none.
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


_DIGITS = 8


def _index(text: str) -> str:
    if not _INDICES.fullmatch(text):
        raise argparse.ArgumentTypeError("must be two digits")
    return text


def _name(text: str) -> str:
    if not _NAMES.fullmatch(text):
        raise argparse.ArgumentTypeError("can hold letters, digits and _ . + - only")
    return text
