"""``NriPluginConfig``: the configuration of one plugin process, from file and command line."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config import Settings
    from cdigen.service.host_state import HostSources


@frozen
class Endpoint:
    """The address of the runtime: the ``path`` of its socket, or a connected socket.

    ``fd`` is the file descriptor of a socket that the runtime has connected and passed to the process.
    """

    path: str = ""
    fd: int | None = None


@frozen
class NriPluginConfig:
    """The values that one plugin process needs.

    ``endpoint`` is the address of the runtime. ``name`` and ``index`` (two digits) identify the plugin.
    ``sources`` are the paths of the specs and the inventory. ``watched`` are more files to watch. The first
    of these files is the configuration. ``plugin_dir`` is the folder of the plugins that the runtime
    launches. ``problem`` is the error in an invalid configuration, or "". With an invalid configuration, the
    policy is unknown and ``settings`` has the default values.
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
