"""``DaemonSetup``: what configuration and command line make of the daemon."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.config import DaemonConfig, HealthConfig, PageConfig
    from cdigen.host.root import Root
    from cdigen.pipeline.delivery import DeliveryOptions
    from cdigen.pipeline.generate import GenerateOptions
    from cdigen.vendors.base import DiscoveryContext


@frozen
class DaemonSetup:
    """What the daemon reconciles, and how.

    ``outer`` is the host's root as a path of this machine; ``roots`` are the driver and dev root, which may
    come and go. ``directories`` are the spec directories, written into the last; ``view_directories`` all in
    which a spec may name a view. Both, and ``state_dir``, are paths of this machine. ``are_named``: the user
    named the ``vendors``; otherwise all are asked, and absent ones are not reported. ``nri_dir`` and
    ``kubelet_dir`` are where the processes beside the daemon show their status.
    """

    outer: str
    vendors: tuple[str, ...]
    context: Callable[[Root], DiscoveryContext]
    roots: tuple[str, ...]
    options: GenerateOptions
    delivery: DeliveryOptions
    directories: tuple[str, ...]
    view_directories: tuple[str, ...]
    state_dir: str
    create_nodes: bool
    daemon: DaemonConfig
    health: HealthConfig
    page: PageConfig
    are_named: bool = True
    nri_dir: str = ""
    kubelet_dir: str = ""

    @property
    def writable(self) -> tuple[str, ...]:
        """The folders of this machine that the daemon writes to."""
        return (self.directories[-1], self.daemon.run_dir, self.state_dir)
