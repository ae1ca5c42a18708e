"""How the process runs, by configuration and command line: ``PluginConfig``, and what changes it."""

from __future__ import annotations

import os

from cdigen.config import KubeletConfig
from cdigen.model.errors import ConfigError
from cdigen.model.profile import DEFAULT
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.frontend.host_state import HostSources
    from cdigen.model.findings import Finding
    from cdigen.model.profile import Profile


@frozen
class PluginConfig:
    """Where the process works, and what is offered by ``settings`` of the devices that ``profiles`` name.

    ``state_dir`` keeps what a later start has to know. ``labels`` is the file of the node's labels, "" for
    none, and ``machine`` the host's model, for them.

    ``watched`` are the files that this was read from: the configuration first, then NVIDIA's own, if it is
    named; ``findings`` are about the latter. ``problem``: the configuration is wrong, so that nobody knows
    what may be offered, and nothing is.
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
    """Return what tells one content of the files PATHS from another; zeros or nothing where one has none."""
    return tuple(map(_identity, paths))


def _identity(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    # It is empty as well while somebody writes it in place.
    return (found.st_size and found.st_ctime_ns, found.st_size, found.st_size and found.st_ino)


def refuse_emptied(before: PluginConfig, config: PluginConfig) -> None:
    """Raise ConfigError where the file that made BEFORE has no content now, and with it goes all it said."""
    path = config.watched[0]
    if any(_identity(path)) or (before.settings, before.profiles) == (config.settings, config.profiles):
        return
    was = "is empty" if os.path.lexists(path) else "was deleted"
    raise ConfigError(
        f"{path} {was}; from the next start on the defaults count",
        hint="write 'kubelet: {}' into it to let them count now",
    )


def fixed(config: PluginConfig) -> str:
    """Return what counts from the start on."""
    return f"{config.kubelet_dir}, {config.run_dir}, HTTP port {config.settings.http_port}"
