"""``DaemonSetup``: the daemon's settings from configuration and command line."""

from __future__ import annotations

from types import MappingProxyType

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.config import DaemonConfig, HealthConfig, PageConfig
    from cdigen.host.root import Root
    from cdigen.pipeline.delivery import DeliveryOptions
    from cdigen.pipeline.generate import GenerateOptions
    from cdigen.vendors.context import DiscoveryContext


@frozen
class DaemonSetup:
    """The host that the daemon reconciles, and the daemon's settings.

    ``outer`` is the path of the host's root folder for this process, such as ``/`` or ``/host``. ``roots``
    are the driver root and the dev root, which may appear and disappear. ``directories`` are the spec
    directories; specs are written to the last directory. ``view_directories`` are all directories whose specs
    may name a view. ``directories``, ``view_directories`` and ``state_dir`` are also paths for this process.
    ``are_named`` is true if the user named the ``vendors``. Otherwise all vendors are discovered, and absent
    vendors are not reported. ``nri_dir`` and ``kubelet_dir`` contain the status of the NRI plugin and of the
    kubelet service. ``targets`` are the releases of the key ``target``. ``maintained`` are the settings in
    the status. Commands that write the same specs read these settings. ``watched`` is the configuration file.
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
    daemon: DaemonConfig
    health: HealthConfig
    page: PageConfig
    are_named: bool = True
    nri_dir: str = ""
    kubelet_dir: str = ""
    targets: tuple[str, ...] = ()
    maintained: Mapping[str, Any] = MappingProxyType({})
    watched: tuple[str, ...] = ()

    @property
    def writable(self) -> tuple[str, ...]:
        """The folders of this machine that the daemon writes to."""
        return (self.directories[-1], self.daemon.run_dir, self.state_dir)
