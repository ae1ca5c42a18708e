"""Find the runtimes on a host, with their releases: ``find``, ``find_low_level``.

Each binary is asked for its version, but only on the machine that cdigen runs on, and only if nobody except
root can have put it there or changed it.
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

# Docker's daemon reads specs; its client may be of another release.
BINARIES = {
    "apptainer": "apptainer",
    "buildkit": "buildkitd",
    "containerd": "containerd",
    "cri-o": "crio",
    "docker": "dockerd",
    "nerdctl": "nerdctl",
    "podman": "podman",
}
LOW_LEVEL = {"crun": "crun", "runc": "runc"}

# The places of packages, then of manual installs; NixOS's links, and a snap's own tree.
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
)

# The slowest one measured took 0.12 s; a busy machine may take ten times as long.
_DEADLINE_S = 8.0
_WORDS = 200
# A version has a dot, unlike the 2 of containerd/v2, which precedes containerd's.
_VERSION = re.compile(r"(?<![0-9.])v?([0-9]{1,5})\.([0-9]{1,5})(?:\.([0-9]{1,5}))?(?![0-9])")


@frozen
class InstalledRuntime:
    """A runtime's binary, empty where it is not known, and its version.

    ``runtime`` as in ``releases.LIBRARIES``, or ``runc``, ``crun``. ``release`` None: it was not asked or
    gave no version, and ``problem`` says why. ``library`` and ``newest``: its CDI library and the newest spec
    version that this accepts; empty without a release, or if it has no CDI.
    """

    runtime: str
    binary: str
    release: Release | None
    library: str = ""
    newest: str = ""
    problem: str = ""


def find(host: Root) -> tuple[InstalledRuntime, ...]:
    """Return the runtimes of HOST that read CDI specs, by name; each from the first place where it exists."""
    return _find(host, BINARIES)


def find_low_level(host: Root) -> tuple[InstalledRuntime, ...]:
    """Return runc and crun of HOST likewise: they read no specs, but some releases mishandle them."""
    return _find(host, LOW_LEVEL)


def examine(host: Root, runtime: str, binary: str) -> InstalledRuntime:
    """Return RUNTIME, whose BINARY is known, likewise."""
    release, problem = release_of(host, binary)
    library, newest = library_of(runtime, release) if release else ("", "")
    if release and not library and runtime not in LOW_LEVEL:
        problem = "this release reads no CDI specs"
    return InstalledRuntime(
        runtime=runtime, binary=binary, release=release, library=library, newest=newest, problem=problem
    )


def unnamed(runtime: str, problem: str) -> InstalledRuntime:
    """Return RUNTIME, which is there without a binary that can be named, for the reason PROBLEM."""
    return InstalledRuntime(runtime=runtime, binary="", release=None, problem=problem)


def release_in(text: str) -> Release | None:
    """Return the first version in TEXT, without any suffix after its numbers; None if there is none.

    ``29.0.0-rc.1`` is 29.0.0, ``1.7.24~ds1`` is 1.7.24, ``5.4`` is 5.4.0.
    """
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def _find(host: Root, binaries: Mapping[str, str]) -> tuple[InstalledRuntime, ...]:
    found = ((runtime, place(host, name)) for runtime, name in binaries.items())
    return tuple(examine(host, runtime, binary) for runtime, binary in found if binary)


def place(host: Root, name: str) -> str:
    """Return where the program NAME is on HOST, empty if it is at none of the usual places."""
    return next((f"{folder}/{name}" for folder in FOLDERS if host.exists(f"{folder}/{name}")), "")


def release_of(host: Root, binary: str) -> tuple[Release | None, str]:
    """Return the release that BINARY reports, or None and why there is none."""
    if not host.is_this_machine:
        return None, "it was not asked for its version: it is of another tree than this machine's own"
    if doubt := untrusted(binary):
        return None, f"it was not asked for its version: {doubt}"
    try:
        ending = run((binary, "--version"), deadline_s=_DEADLINE_S)
    except OSError as error:
        return None, f"it cannot be started: {reason(error)}"
    words = shown(ending.output[:_WORDS].decode("utf-8", "replace").strip().partition("\n")[0])
    release = release_in(words)
    if ending.by == "itself" and release:
        return release, ""
    problem = {
        "deadline": f"it did not give its version within {_DEADLINE_S:g} s",
        "flood": "it printed without end when asked for its version",
    }.get(ending.by, f"it gave no version: {words or ending.last_stderr_line or 'nothing'}")
    return None, problem
