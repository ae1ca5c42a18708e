"""``NriPluginConfig``: the configuration of one plugin process; ``active_configuration``: its reload."""

from __future__ import annotations

import os

from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding
from cdigen.service.configuration import ActiveConfiguration, emptied
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.config import Settings
    from cdigen.service.host_state import HostSources
    from cdigen.service.process.buffered_log import BufferedLogger

# The rule (docs/reference/findings.md) for a configuration that permits devices to no container.
ALLOW_EMPTY = "nri-allow-empty"


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


def active_configuration(
    load: Callable[[bool], NriPluginConfig], log: BufferedLogger
) -> ActiveConfiguration[NriPluginConfig]:
    """Return the configuration that LOAD reads; the configuration writes its findings to LOG."""
    return ActiveConfiguration(load, log, check=_check, notes=_notes, fixed=_fixed)


def _check(before: NriPluginConfig, config: NriPluginConfig) -> None:
    """Raise ConfigError if the file was emptied or deleted, and BEFORE permits devices."""
    path = config.watched[0]
    if _allows_any(before.settings) and (state := emptied(path)):
        effect = "after the next start of the plugin no container may have devices"
        raise ConfigError(f"{path} {state}; {effect}", hint=f"write 'nri: {{}}' into {path}")


def _notes(config: NriPluginConfig) -> tuple[Finding, ...]:
    """Return a finding if CONFIG permits devices to no container."""
    if _allows_any(config.settings) or config.problem:
        return ()
    path = config.watched[0]
    why = f"'nri: allow' in {path} is empty" if os.path.exists(path) else f"{path} does not exist"
    message = f"no container may have devices: {why}"
    hint = "nri: {allow: [{namespaces: [NAME]}]}"
    return (Finding(severity="warning", rule=ALLOW_EMPTY, path=path, message=message, hint=hint),)


def _allows_any(settings: Settings) -> bool:
    return bool(settings.nri.allow or settings.nri.management_namespaces)


def _fixed(config: NriPluginConfig) -> str:
    """Return the values that the plugin uses only at its start."""
    address = config.endpoint.path or "the runtime's socket"
    return f"{address}, index {config.index}, {config.run_dir}, HTTP port {config.settings.nri.http_port}"
