"""The command ``cdigen run``: the daemon, which keeps the specs of this host up to date."""

from __future__ import annotations

import os

from cdigen.cli.shared import argument_checks, discovery_options, options
from cdigen.cli.shared.maintained import maintained_document
from cdigen.cli.shared.option_table import add
from cdigen.cli.shared.spec_options import add_options as add_spec_options
from cdigen.cli.shared.spec_options import delivery_options, generate_options
from cdigen.model.errors import CdigenError, ConfigError, StoreError
from cdigen.value import replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.config import Settings
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.host.root import Root
    from cdigen.service.process.buffered_log import Logger
    from cdigen.vendors.context import DiscoveryContext

EXAMPLES = """\
  cdigen run                                 use /etc/cdigen/config.yaml, as cdigen.service does
  cdigen run --driver-root /run/nvidia/driver
                                             the driver is in a driver container
  cdigen run --run-dir /run/cdigen-try -v    run a test, with a log line for every cycle
"""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    add(parser, "--run-dir", help="the run directory, for status and sockets")
    add(parser, "--standby")
    add_spec_options(parser)
    add(parser, "--spec-dir")
    discovery_options.add_discovery_options(parser, takes_inventory=False)


def run(arguments: Namespace) -> int:
    """Run the daemon until a signal ends it; return the exit code or raise a CdigenError."""
    from cdigen.daemon.loop import Daemon  # noqa: PLC0415 - not for --help, 0.2 s
    from cdigen.page.routes import page_routes  # noqa: PLC0415 - likewise
    from cdigen.service.process.context import service_process  # noqa: PLC0415 - likewise

    discovery_options.refuse_inventory(arguments)
    with service_process(verbose=arguments.verbose) as context:
        _log_missing_paths(arguments, context.log)
        _save_run_dir(arguments, context.log)
        Daemon(lambda _: setup(arguments), context, page_routes).run(standby=arguments.standby)
    return 0


def _log_missing_paths(arguments: Namespace, logger: Logger) -> None:
    """Log the first path of the command line that does not exist. The driver may create it later."""
    try:
        host, settings = options.host_and_settings(arguments)
        where = discovery_options.context(arguments, host, settings)
    except CdigenError:
        return  # the daemon reads the same settings and reports the error
    try:
        argument_checks.require_sources(arguments, where)
    except ConfigError as error:
        logger.warning("options", message=error.message, hint=error.hint)


def _save_run_dir(arguments: Namespace, logger: Logger) -> None:
    """Record --run-dir, so that ``generate --write`` and ``withdraw`` find this daemon."""
    if arguments.run_dir is None:
        return
    from cdigen.store.records import run_dir  # noqa: PLC0415 - not for --help

    try:
        host, settings = options.host_and_settings(arguments)
        run_dir.save(options.outer_directory(host, settings.state_dir), os.path.abspath(arguments.run_dir))
    except StoreError as error:
        logger.warning("options", message=error.message, hint=error.hint)
    except CdigenError:
        return  # the daemon reads the same settings and reports the error


def setup(arguments: Namespace) -> DaemonSetup:
    """Return the daemon's settings from ARGUMENTS and the current configuration, or raise a CdigenError."""
    from cdigen.daemon.setup import DaemonSetup  # noqa: PLC0415 - not for --help

    host, settings = options.host_and_settings(arguments)
    options.refuse_own_spec_directory(arguments, host, settings)
    run_dir = arguments.run_dir or options.outer_directory(host, settings.daemon.run_dir)

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
        daemon=replace(settings.daemon, run_dir=run_dir),
        health=settings.health,
        page=settings.page,
        nri_dir=options.outer_directory(host, settings.nri.run_dir),
        kubelet_dir=options.outer_directory(host, settings.kubelet.run_dir),
        targets=settings.target,
        maintained=maintained_document(arguments, host, settings),
        watched=(options.configuration_file(arguments),),
    )


def _vendors(arguments: Namespace, settings: Settings) -> tuple[str, ...]:
    """Return the vendors to discover, or raise ConfigError if a --kind belongs to none of these vendors."""
    names = discovery_options.vendor_names(arguments, settings)
    for kind in options.kinds(arguments):
        if not registry.vendor_of(kind, names):
            own = ", ".join(f"{prefix}..." for prefix in registry.prefixes(names))
            raise ConfigError(
                f"--kind {kind}: none of the selected vendors has this kind", hint=f"possible kinds: {own}"
            )
    return names
