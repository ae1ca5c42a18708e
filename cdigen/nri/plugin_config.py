"""How one plugin runs, by configuration and command line: ``PluginConfig``."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config import Settings
    from cdigen.frontend.host_state import HostSources


@frozen
class Endpoint:
    """Where the runtime is: the socket ``path``, or ``fd``, a connected socket that it has given to us."""

    path: str = ""
    fd: int | None = None


@frozen
class PluginConfig:
    """The runtime at ``endpoint``, the plugin's ``name`` and ``index`` (two digits) there, and its sources.

    ``watched`` are files that matter besides the specs and the inventory, the configuration first;
    ``plugin_dir`` is where the runtime finds plugins that it starts itself. ``problem``: the configuration is
    wrong, so that nobody knows which containers may have devices, and the settings are the default ones.
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
