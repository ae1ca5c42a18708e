"""``KubeletPluginConfig``: the settings of the process; ``active_configuration``: their reload."""

from __future__ import annotations

from cdigen.config import KubeletConfig
from cdigen.model.errors import ConfigError
from cdigen.model.findings import errors
from cdigen.model.profile import DEFAULT
from cdigen.service.configuration import ActiveConfiguration, emptied
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.model.findings import Finding
    from cdigen.model.profile import Profile
    from cdigen.service.host_state import HostSources
    from cdigen.service.process.buffered_log import Logger


@frozen
class KubeletPluginConfig:
    """The folders and the ``settings`` of the process, and the ``profiles`` that name the devices.

    ``state_dir`` stores the state for a later start. ``labels`` is the file of node labels, or "" for no
    file. ``machine`` is the host's model, for the labels.

    ``watched`` are the files with these settings. The first file is the configuration of cdigen. The second
    file is NVIDIA's configuration, if cdigen is configured to read it. ``findings`` are about the second
    file, and about settings that conflict. ``problem`` is set if the configuration was invalid at the start.
    Then cdigen advertises no resource.
    """

    kubelet_dir: str
    run_dir: str
    sources: HostSources
    settings: KubeletConfig = KubeletConfig()
    profiles: tuple[Profile, ...] = (DEFAULT,)
    state_dir: str = ""
    labels: str = ""
    machine: str = ""
    watched: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    problem: str = ""


def active_configuration(
    load: Callable[[bool], KubeletPluginConfig], log: Logger
) -> ActiveConfiguration[KubeletPluginConfig]:
    """Return the configuration that LOAD reads; the configuration writes its findings to LOG."""
    return ActiveConfiguration(load, log, check=_check, notes=lambda config: config.findings, fixed=_fixed)


def _check(before: KubeletPluginConfig, config: KubeletPluginConfig) -> None:
    """Raise ConfigError if CONFIG has errors, or if an emptied or deleted file changes the settings."""
    if wrong := errors(config.findings):
        raise ConfigError(wrong[0].message, hint=wrong[0].hint)
    path = config.watched[0]
    is_changed = (before.settings, before.profiles) != (config.settings, config.profiles)
    if is_changed and (state := emptied(path)):
        raise ConfigError(
            f"{path}: the file {state}; the defaults become active at the next start",
            hint="write 'kubelet: {}' into the file to activate the defaults now",
        )


def _fixed(config: KubeletPluginConfig) -> str:
    """Return the settings that take effect only at a start, in one line."""
    return f"{config.kubelet_dir}, {config.run_dir}, HTTP port {config.settings.http_port}"
