"""Read the CDI and NRI configuration of a runtime on a host.

The module of each runtime merges the files over the defaults of the release, in the order of the runtime. A
fault in a file is a finding with the file and the line, never an exception.
"""

from __future__ import annotations

from cdigen.runtimes.releases import UNKNOWN
from cdigen.runtimes.settings import containerd, crio, docker, podman

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.settings.config_files import RuntimeSettings
    from cdigen.runtimes.units import Command
    from cdigen.runtimes.users import User


_OF_DAEMONS = {"containerd": containerd.read, "cri-o": crio.read}


def read(
    runtime: str,
    host: Root,
    release: Release | None,
    user: User | None = None,
    *,
    environment: Mapping[str, str] | None = None,
) -> RuntimeSettings:
    """Return the settings of RUNTIME (``podman``, ``docker``, ``containerd``, ``cri-o``) on HOST.

    If RELEASE is None (unknown), the values of the last row of each table apply, and no version of a file is
    too new. If USER is None, the settings are the settings of root's podman or of the system's daemons.
    Otherwise the settings are those of the user's podman or rootless dockerd. containerd and CRI-O always run
    as root. ENVIRONMENT is the environment of the user who runs podman. Raises KeyError if RUNTIME is
    unknown. The function never raises OSError.
    """
    known = release or UNKNOWN
    if runtime == "podman":
        return podman.read(host, known, user, environment or {})
    if runtime == "docker":
        return docker.read(host, known, user)
    return _OF_DAEMONS[runtime](host, known, None)


def read_started(runtime: str, host: Root, release: Release | None, line: Command) -> RuntimeSettings:
    """Return the settings of RUNTIME (containerd or CRI-O) with the command line LINE (see ``read``)."""
    return _OF_DAEMONS[runtime](host, release or UNKNOWN, line)
