"""``KubeletPluginConfig``: the settings of the process from the configuration and the command line."""

from __future__ import annotations

import os

from cdigen.config import KubeletConfig
from cdigen.model.errors import ConfigError
from cdigen.model.profile import DEFAULT
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Finding
    from cdigen.model.profile import Profile
    from cdigen.service.host_state import HostSources


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


def identities(paths: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """Return a tuple for each file of PATHS; the tuple changes if the content of the file changes.

    The tuple of an empty file has only zeros. The tuple of a missing file is empty.
    """
    return tuple(map(_identity, paths))


def _identity(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    # While a program rewrites a file in place, the file is empty for a moment.
    return (found.st_size and found.st_ctime_ns, found.st_size, found.st_size and found.st_ino)


def refuse_emptied(before: KubeletPluginConfig, config: KubeletPluginConfig) -> None:
    """Raise ConfigError if the file of CONFIG is empty or deleted and CONFIG changes settings of BEFORE."""
    path = config.watched[0]
    if any(_identity(path)) or (before.settings, before.profiles) == (config.settings, config.profiles):
        return
    state = "the file is empty" if os.path.lexists(path) else "the file was deleted"
    raise ConfigError(
        f"{path}: {state}; the defaults become active at the next start",
        hint="write 'kubelet: {}' into the file to activate the defaults now",
    )


def startup_settings(config: KubeletPluginConfig) -> str:
    """Return the settings that take effect only at a start, in one line."""
    return f"{config.kubelet_dir}, {config.run_dir}, HTTP port {config.settings.http_port}"
