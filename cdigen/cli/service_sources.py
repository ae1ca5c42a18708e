"""The locations from which a service command reads the state of the host."""

from __future__ import annotations

import os

from cdigen.service.host_state import HostSources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from cdigen.config import Settings
    from cdigen.host.root import Root


def sources(arguments: Namespace, host: Root, settings: Settings) -> HostSources:
    """Return the locations of specs and inventory; directories in ARGUMENTS are paths of this machine."""
    literal = tuple(os.path.abspath(directory) for directory in arguments.spec_dir or ())
    return HostSources(
        host=host.outer or "/",
        specs="/" if literal else host.outer or "/",
        spec_dirs=literal or settings.spec_dirs,
        runs=host.outer or "/",
        run_dir=settings.daemon.run_dir,
    )
