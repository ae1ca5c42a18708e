"""``cdigen run``: the daemon, which keeps the specs of this host true."""

from __future__ import annotations

import gc

from cdigen.cli import argument_checks, discovery_options, options
from cdigen.cli.spec_options import add_options as add_spec_options
from cdigen.cli.spec_options import delivery_options, generate_options
from cdigen.frontend import signals
from cdigen.model.errors import CdigenError, ConfigError
from cdigen.value import replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from cdigen.config import Settings
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.vendors.base import DiscoveryContext

EXAMPLES = """\
  cdigen run                                 as /etc/cdigen/config.yaml says; systemd does this
  cdigen run --driver-root /run/nvidia/driver
                                             the driver lies in a driver container
  cdigen run --run-dir /run/cdigen-try -v    try it, with a line for every cycle
"""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "--run-dir", metavar="DIR", type=options.not_empty, help="where status and sockets are kept"
    )
    options.add_standby_option(parser)
    add_spec_options(parser)
    options.add_spec_dir_option(parser)
    discovery_options.add_discovery_options(parser, takes_inventory=False)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the daemon until it is told to stop; returns the exit code or raises a CdigenError."""
    from cdigen.daemon.loop import Daemon  # noqa: PLC0415
    from cdigen.frontend import log  # noqa: PLC0415 - what it imports takes a fifth of a second
    from cdigen.frontend.sd_notify import Notifier  # noqa: PLC0415

    discovery_options.refuse_inventory(arguments)
    # Commands end before garbage matters (cli.main turns this off); here it is 9 kB a cycle.
    gc.enable()
    logger = log.make_logger(verbose=arguments.verbose)
    log.take_over(logger)
    heard = signals.listen()
    _tell_what_is_not_there(arguments, logger)

    def warn(found: Finding) -> None:
        logger.warning("configuration", message=found.message, hint=found.hint)

    daemon = Daemon(
        lambda: setup(arguments, warn),
        watched=(options.configuration_file(arguments),),
        notifier=Notifier(),
        logger=logger,
        signals=heard,
    )
    try:
        daemon.run(stands_by=arguments.standby)
    finally:
        heard.ignore()
    return 0


def _tell_what_is_not_there(arguments: Namespace, logger: FilteringBoundLogger) -> None:
    """Log which paths of the command line are not there; the driver may still bring them."""
    try:
        host, settings = options.host_and_settings(arguments, lambda _: None)
        where = discovery_options.context(arguments, host, settings)
    except CdigenError:
        return  # the daemon reads them as well, and judges them
    try:
        argument_checks.require_sources(arguments, where)
    except ConfigError as error:
        logger.warning("options", message=error.message, hint=error.hint)


def setup(arguments: Namespace, warn: Callable[[Finding], object] | None = None) -> DaemonSetup:
    """Return what ARGUMENTS and the configuration, read now, make of the daemon; raises a CdigenError.

    WARN is given each key that has its old name.
    """
    from cdigen.daemon.setup import DaemonSetup  # noqa: PLC0415 - see above

    host, settings = options.host_and_settings(arguments, warn)
    times = settings.daemon
    run_dir = arguments.run_dir or options.outer_directory(host, times.run_dir)

    def context(root: Root) -> DiscoveryContext:
        return discovery_options.context(arguments, root, settings)

    roots = (arguments.driver_root or settings.driver_root, arguments.dev_root or settings.dev_root)
    return DaemonSetup(
        outer=host.outer or "/",
        vendors=_vendors(arguments, settings),
        are_named=discovery_options.are_vendors_named(arguments, settings),
        context=context,
        roots=tuple(f"{host.outer}{path}" for path in roots if path not in {"", "/"}),
        options=generate_options(arguments, settings),
        delivery=delivery_options(arguments, host, settings, write=True),
        directories=options.spec_directories(arguments, host, settings),
        view_directories=options.known_spec_directories(arguments, host, settings),
        state_dir=options.outer_directory(host, settings.state_dir),
        create_nodes=settings.create_nodes,
        daemon=replace(times, run_dir=run_dir),
        health=settings.health,
        page=settings.page,
        nri_dir=options.outer_directory(host, settings.nri.run_dir),
        kubelet_dir=options.outer_directory(host, settings.kubelet.run_dir),
    )


def _vendors(arguments: Namespace, settings: Settings) -> tuple[str, ...]:
    """Return the vendors to ask; raises ConfigError for a --kind that will never be any of theirs."""
    names = discovery_options.vendor_names(arguments, settings)
    for kind in options.kinds(arguments):
        if not registry.vendor_of(kind, names):
            own = ", ".join(f"{prefix}..." for prefix in registry.prefixes(names))
            raise ConfigError(f"--kind {kind} is of no vendor that is asked", hint=f"their kinds: {own}")
    return names
