"""Read how a runtime of a host is configured for CDI and NRI: ``read`` returns its ``RuntimeSettings``.

Each runtime has a reader of its own, which merges the files in the runtime's own order over the defaults
of its release. A fault in a file is a finding with the file and the line; never an exception.
"""

from __future__ import annotations

from cdigen.runtimes.releases import newest_release
from cdigen.runtimes.settings import containerd, crio, docker, podman

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.settings.config_files import RuntimeSettings
    from cdigen.runtimes.units import Command
    from cdigen.runtimes.users import User


def read(
    runtime: str,
    host: Root,
    release: Release | None,
    user: User | None = None,
    *,
    environment: Mapping[str, str] | None = None,
) -> RuntimeSettings:
    """Return the settings of RUNTIME (``podman``, ``docker``, ``containerd``, ``cri-o``) on HOST.

    RELEASE None: unknown, taken as the newest known. USER None: root's podman, the system's daemons; else the
    user's own podman or rootless dockerd; containerd and CRI-O always run as root. ENVIRONMENT: of the user
    who runs podman. KeyError: no such runtime. Never OSError.
    """
    known = release or newest_release(runtime)
    if runtime == "podman":
        return podman.read(host, known, user, environment or {})
    if runtime == "docker":
        return docker.read(host, known, user)
    if runtime == "containerd":
        return containerd.read(host, known)
    if runtime == "cri-o":
        return crio.read(host, known)
    raise KeyError(runtime)


def read_started(runtime: str, host: Root, release: Release | None, line: Command) -> RuntimeSettings:
    """Return the settings of the ``containerd`` or ``cri-o`` that was started by LINE, likewise."""
    known = release or newest_release(runtime)
    return containerd.read(host, known, line) if runtime == "containerd" else crio.read(host, known, line)
