"""Find the runtimes on a host, with their releases.

cdigen runs each binary with ``--version``. cdigen runs a binary only if the host is the machine on which
cdigen runs, and only if no user except root can install or change the binary.
"""

from __future__ import annotations

import re

from cdigen.host.childprocess import run
from cdigen.host.root import reason, shown
from cdigen.host.trust import untrusted
from cdigen.runtimes.releases import library_of
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.runtimes.releases import Release

# For Docker, the daemon is examined, because the daemon reads specs. The client may have another release.
BINARIES = {
    "apptainer": "apptainer",
    "buildkit": "buildkitd",
    "containerd": "containerd",
    "cri-o": "crio",
    "docker": "dockerd",
    "nerdctl": "nerdctl",
    "podman": "podman",
    "singularity": "singularity",
}
# The programs that users start. A shell and sudo search the manual installations first (PATH of login(1)).
_BY_USERS = frozenset({"apptainer", "nerdctl", "podman", "singularity"})
_MANUAL = ("/usr/local/bin", "/usr/local/sbin")
# runc and crun read no specs, but some releases have known issues.
LOW_LEVEL = {"crun": "crun", "runc": "runc"}

# The folders of packages, the folders of manual installations, the links of NixOS, and the trees of a snap.
# The snapd of Fedora mounts snaps in /var/lib/snapd/snap.
FOLDERS = (
    "/usr/bin",
    "/usr/sbin",
    "/bin",
    "/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/run/current-system/sw/bin",
    "/opt/bin",
    "/snap/docker/current/bin",
    "/var/lib/snapd/snap/docker/current/bin",
)

# The slowest binary took 0.12 s in a measurement. A busy machine may need ten times as long.
_DEADLINE_S = 8.0
_WORDS = 200
# The script of the package podman-docker has less than 1000 bytes.
_SCRIPT = 1 << 14
# A version contains a dot. The number 2 in containerd/v2 precedes the version of containerd and has no dot.
_VERSION = re.compile(r"(?<![0-9.])v?([0-9]{1,5})\.([0-9]{1,5})(?:\.([0-9]{1,5}))?(?![0-9])")


@frozen
class InstalledRuntime:
    """The binary of a runtime and its version; ``binary`` is empty if the path is unknown.

    ``runtime`` is a name in ``releases.LIBRARIES``, or ``runc`` or ``crun``. ``release`` is None if the
    version is unknown. ``library`` is the version of the runtime's CDI library. ``newest`` is the newest spec
    version that the library accepts. ``library`` and ``newest`` are empty if the release is unknown or has no
    CDI. ``problem`` is the reason why the release is unknown, or why the runtime reads no specs.
    """

    runtime: str
    binary: str
    release: Release | None
    library: str = ""
    newest: str = ""
    problem: str = ""


def find(host: Root, binaries: Mapping[str, str] = BINARIES) -> tuple[InstalledRuntime, ...]:
    """Return the runtimes of HOST with BINARIES, sorted by name; by default the runtimes that read CDI specs.

    Each binary is from the first folder in FOLDERS that contains the binary.
    """
    found = ((runtime, place(host, name)) for runtime, name in binaries.items())
    return tuple(examine(host, runtime, binary) for runtime, binary in found if binary)


def examine(host: Root, runtime: str, binary: str) -> InstalledRuntime:
    """Return RUNTIME with the known path BINARY, and with the version of the binary."""
    release, problem = release_of(host, binary)
    library, newest = library_of(runtime, release) if release else ("", "")
    if release and not library and runtime not in LOW_LEVEL:
        problem = "this release reads no CDI specs"
    return InstalledRuntime(
        runtime=runtime, binary=binary, release=release, library=library, newest=newest, problem=problem
    )


def release_in(text: str) -> Release | None:
    """Return the numbers of the first version in TEXT; None if TEXT has no version.

    ``29.0.0-rc.1`` is 29.0.0, ``1.7.24~ds1`` is 1.7.24, ``5.4`` is 5.4.0.
    """
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def place(host: Root, name: str) -> str:
    """Return the path of the program NAME on HOST; empty if no folder in FOLDERS contains the program."""
    return next(iter(places(host, name)), "")


def places(host: Root, name: str) -> tuple[str, ...]:
    """Return the paths of the different programs NAME in FOLDERS; the first path is that of ``place``.

    A link to the program of another runtime is not in the result (Apptainer's link ``singularity``).
    """
    folders = (*_MANUAL, *FOLDERS) if name in _BY_USERS else FOLDERS
    others = {*BINARIES.values()} - {name}
    found: dict[str, str] = {}
    for path in (f"{folder}/{name}" for folder in folders):
        if host.exists(path) and (target := _target(host, path)).rpartition("/")[2] not in others:
            found.setdefault(target, path)
    return tuple(found.values())


def emulated_docker(host: Root) -> str:
    """Return the path of the program docker if podman emulates Docker with it (podman-docker), else ""."""
    path = place(host, "docker")
    if not path or _target(host, path).rpartition("/")[2] == "podman":
        return path
    try:
        start = host.read(path, limit=_SCRIPT)
    except OSError:
        return ""  # larger than a script
    return path if start.startswith(b"#!") and b"podman" in start else ""


def _target(host: Root, path: str) -> str:
    try:
        return host.resolve(path)
    except OSError:
        return path


def is_of_snap(binary: str) -> bool:
    """Return whether the path BINARY is in the tree of a snap."""
    return "/snap/" in binary


def release_of(host: Root, binary: str) -> tuple[Release | None, str]:
    """Return (release, "") if BINARY reports its release, else (None, reason)."""
    if not host.is_this_machine:
        return None, "version not queried: with --root, cdigen runs no programs of the tree"
    if doubt := untrusted(binary):
        return None, f"version not queried: {doubt}"
    try:
        ending = run((binary, "--version"), deadline_s=_DEADLINE_S)
    except OSError as error:
        return None, f"the program cannot be started: {reason(error)}"
    words = shown(ending.output[:_WORDS].decode("utf-8", "replace").strip().partition("\n")[0])
    release = release_in(words)
    if ending.by == "itself" and release:
        return release, ""
    problem = {
        "deadline": f"no version reported within {_DEADLINE_S:g} s",
        "flood": "the program prints without end, instead of a version",
    }.get(ending.by, f"no version reported: {words or ending.last_stderr_line or 'no output'}")
    return None, problem
