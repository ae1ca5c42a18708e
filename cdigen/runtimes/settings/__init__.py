"""Read how a runtime of a host is configured for CDI and NRI: ``read`` returns its ``RuntimeSettings``.

Each runtime has a reader of its own, which merges the files in the runtime's own order over the defaults
of its release. What is broken in a file is a finding with the file and the line; never an exception.
"""

from __future__ import annotations

from cdigen.runtimes.releases import newest_release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.settings.runtime_settings import RuntimeSettings
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

    RELEASE None: unknown, taken as the newest that is known. USER None: root's podman, the system's
    daemons; else the user's own podman or rootless dockerd; containerd and CRI-O are root's for everybody.
    ENVIRONMENT: of whoever runs podman. KeyError: no such runtime. Never OSError.
    """
    known = release or newest_release(runtime)
    # Each imported where it is wanted: a command asks for those that the host has.
    if runtime == "podman":
        from cdigen.runtimes.settings import podman  # noqa: PLC0415

        return podman.read(host, known, user, environment or {})
    if runtime == "docker":
        from cdigen.runtimes.settings import docker  # noqa: PLC0415

        return docker.read(host, known, user)
    if runtime == "containerd":
        from cdigen.runtimes.settings import containerd  # noqa: PLC0415

        return containerd.read(host, known)
    if runtime == "cri-o":
        from cdigen.runtimes.settings import crio  # noqa: PLC0415

        return crio.read(host, known)
    raise KeyError(runtime)
