"""The settings of a service command, and the locations from which it reads the state of the host."""

from __future__ import annotations

import os

from cdigen.cli.shared import options
from cdigen.cli.shared.argument_checks import require_spec_directories
from cdigen.config import Settings
from cdigen.host.root import Root
from cdigen.model.errors import ConfigError, StoreError
from cdigen.service import rundir
from cdigen.service.host_state import HostSources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from cdigen.service.process.buffered_log import Logger


def settings_or_defaults(arguments: Namespace, *, may_fail: bool) -> tuple[Root, Settings, str]:
    """Return the root, the settings, and the problem of an invalid configuration or "".

    With MAY_FAIL, the settings of an invalid configuration are the defaults. Otherwise the function raises
    ConfigError or StoreError.
    """
    try:
        return (*options.host_and_settings(arguments), "")
    except (ConfigError, StoreError) as error:
        root = os.path.realpath(arguments.root)
        if not may_fail or not os.path.isdir(root):
            raise
        return Root(root), Settings(), error.message


def log_missing_directories(arguments: Namespace, log: Logger) -> None:
    """Log a --spec-dir that does not exist. The first write of a spec may create the directory."""
    try:
        require_spec_directories(arguments)
    except ConfigError as error:
        log.warning("options", message=error.message, hint=error.hint)


def sources(
    arguments: Namespace, host: Root, settings: Settings, *, run_dir: str | None = None
) -> HostSources:
    """Return the locations of specs and inventory.

    RUN_DIR is the daemon's run directory if it is not the configured one. RUN_DIR and the directories in
    ARGUMENTS are paths of this machine.
    """
    outer = host.outer or "/"
    literal = tuple(os.path.abspath(directory) for directory in arguments.spec_dir or ())
    return HostSources(
        host=outer,
        specs="/" if literal else outer,
        spec_dirs=literal or settings.spec_dirs,
        runs="/" if run_dir else outer,
        run_dir=os.path.abspath(run_dir) if run_dir else settings.daemon.run_dir,
    )


def require_run_dir(run_dir: str, *, hint: str) -> None:
    """Raise StoreError with HINT if the user cannot create and use RUN_DIR."""
    try:
        rundir.prepare(run_dir)
    except StoreError as error:
        raise StoreError(error.message, hint=hint) from None
