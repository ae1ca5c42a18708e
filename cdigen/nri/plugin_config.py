"""What the configuration and the command line make of the plugin: ``PluginConfig``."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config import Settings
    from cdigen.frontend.host_state import HostSources
    from cdigen.nri.link import Endpoint


@frozen
class PluginConfig:
    """One plugin: whom it serves, as whom, and by what.

    ``watched`` are files that matter besides the specs and the inventory, the configuration first;
    ``plugin_dir`` is where the runtime finds plugins that it starts itself. ``problem``: the configuration is
    wrong, so that nobody knows who may ask, and the settings are the default ones.
    """

    settings: Settings
    endpoint: Endpoint
    name: str
    index: str
    run_dir: str
    sources: HostSources
    watched: tuple[str, ...]
    plugin_dir: str
    problem: str = ""
