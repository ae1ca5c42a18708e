"""How a runtime of a host is configured, as far as CDI and NRI go: ``read`` gives its ``RuntimeSettings``.

Each runtime has a reader of its own, which merges the files in the runtime's own order over the defaults
of its release. What is broken in a file is a finding with the file and the line; never an exception.
"""

from __future__ import annotations

from cdigen.runtimes.releases import newest_release
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.users import User

# The library's own (pkg/cdi, DefaultSpecDirs), lowest priority first.
DEFAULT_DIRS = ("/etc/cdi", "/var/run/cdi")
NRI_SOCKET = "/var/run/nri/nri.sock"


@frozen
class RuntimeSettings:
    """What a runtime's configuration says; where it says nothing, the defaults of the release.

    ``spec_dirs``: where it looks for specs, priority rising. ``cdi_enabled`` and ``nri_enabled``: None where
    nobody can tell, or the runtime has no such thing (podman has no NRI). ``follows_links``: whether it
    follows a spec directory that is a symlink. ``files``: what was read and applied, in that order, all of
    which exist. ``wanted``: the file that ``configure`` writes, a drop-in where the runtime has them;
    ``wanted_is_read`` says whether the runtime would read it as its configuration is now.
    ``dirs_key``, ``cdi_key``, ``nri_key``: what the switches are called (dots between tables), empty where
    this release has none. ``set_by``: pairs of ``spec_dirs``, ``cdi``, ``nri``, ``nri_socket`` and the
    file, or the words ``the command line of FILE``, that sets it; what is not there is a default.
    ``config_version``: containerd's ``version`` of the main file, else 0. ``nri_socket``: where plugins
    connect, empty without NRI. ``rootless``: whether these are a user's own settings.
    """

    runtime: str
    spec_dirs: tuple[str, ...]
    cdi_enabled: bool | None
    nri_enabled: bool | None
    files: tuple[str, ...]
    wanted: str
    findings: tuple[Finding, ...]
    wanted_is_read: bool = True
    follows_links: bool = False
    dirs_key: str = ""
    cdi_key: str = ""
    nri_key: str = ""
    set_by: tuple[tuple[str, str], ...] = ()
    config_version: int = 0
    nri_socket: str = ""
    rootless: bool = False

    def source(self, what: str) -> str:
        """Return what sets WHAT (see ``set_by``), an empty text where it is the default."""
        return dict(self.set_by).get(what, "")


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
