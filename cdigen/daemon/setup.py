"""``DaemonSetup``: what configuration and command line make of the daemon."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.config import DaemonConfig
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
    named the ``vendors``; otherwise all are asked, and absent ones are not reported.
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
    are_named: bool = True
