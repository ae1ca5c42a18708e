"""What is known to go wrong with GPUs and CDI in which release of which runtime: ``known_issues``."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.runtimes.targets import Release


@frozen
class KnownIssue:
    """A limit of the releases from SINCE up to, not including, UNTIL of RUNTIME; None: all, still.

    ``name`` is stable (``podman-no-run-cdi``). ``text`` says what happens, ``remedy`` what to do: a command
    where one does it. ``references`` are threads as ``podman 26569``.
    """

    runtime: str
    since: Release | None
    until: Release | None
    name: str
    text: str
    remedy: str
    references: tuple[str, ...]


def known_issues(runtime: str, release: Release) -> tuple[KnownIssue, ...]:
    """Return the limits that RELEASE of RUNTIME has, in the table's order; runc and crun are runtimes too."""
    return tuple(
        limit
        for limit in KNOWN_ISSUES
        if limit.runtime == runtime
        and (limit.since is None or limit.since <= release)
        and (limit.until is None or release < limit.until)
    )


def _row(
    runtime: str,
    releases: tuple[Release | None, Release | None],
    name: str,
    words: tuple[str, str],
    *references: str,
) -> KnownIssue:
    return KnownIssue(
        runtime=runtime,
        since=releases[0],
        until=releases[1],
        name=name,
        text=words[0],
        remedy=words[1],
        references=references,
    )


# Sources: the threads of each row, and docs/cdi.md. A row is here only where somebody met it.
KNOWN_ISSUES: tuple[KnownIssue, ...] = (
    _row(
        "podman",
        (None, (4, 1, 0)),
        "podman-no-cdi",
        (
            "this release reads no CDI specs, or through an older interface",
            "install podman 4.1 or newer",
        ),
        "podman 12825",
    ),
    _row(
        "podman",
        ((4, 1, 0), (5, 5, 0)),
        "podman-fixed-dirs",
        (
            "it looks in /etc/cdi and /var/run/cdi whatever containers.conf says in cdi_spec_dirs",
            "keep specs in /etc/cdi or /var/run/cdi",
        ),
        "podman 25691",
        "podman 18292",
        "containers/common 2391",
    ),
    _row(
        "podman",
        ((5, 5, 0), (5, 6, 0)),
        "podman-no-run-cdi",
        (
            "it looks in /etc/cdi alone, unless containers.conf says otherwise: not in /var/run/cdi",
            "cdigen configure podman",
        ),
        "podman 26569",
        "containers/common 2460",
    ),
    _row(
        "podman",
        ((4, 1, 0), (4, 5, 0)),
        "podman-no-minimum-version",
        (
            "it takes a file whose cdiVersion is lower than its content needs, which newer releases refuse",
            "cdigen validate FILE",
        ),
        "kubernetes 116279",
    ),
    _row(
        "podman",
        ((4, 1, 0), (5, 1, 0)),
        "podman-no-additional-gids",
        (
            "it refuses the whole file in which additionalGids stands, as newer nvidia-ctk writes it",
            "cdigen generate --target podman-4.3 --write",
        ),
        "nvidia-container-toolkit 1860",
        "nvidia-container-toolkit 1853",
    ),
    _row(
        "podman",
        (None, (5, 0, 0)),
        "podman-gpus-ignored",
        ("--gpus does nothing", "podman run --device nvidia.com/gpu=all"),
    ),
    _row(
        "podman",
        ((4, 1, 0), (5, 4, 0)),
        "podman-api-without-cdi",
        (
            "its Docker-compatible interface and kube play do not take CDI names",
            "podman run --device nvidia.com/gpu=all",
        ),
        "podman 17833",
        "podman 19338",
    ),
    _row(
        "docker",
        (None, (25, 0, 0)),
        "docker-no-cdi",
        ("this release reads no CDI specs", "install Docker 25 or newer"),
        "moby 45134",
    ),
    _row(
        "docker",
        ((25, 0, 0), (28, 2, 0)),
        "docker-cdi-off",
        ("CDI is off unless daemon.json says features.cdi: true", "cdigen configure docker"),
        "moby 49963",
    ),
    _row(
        "docker",
        ((25, 0, 0), (28, 2, 0)),
        "docker-restart-without-devices",
        (
            "containers with --restart=always and a CDI device fail when the daemon starts",
            "start them again once dockerd runs, or install Docker 28.2 or newer",
        ),
        "moby 49989",
    ),
    _row(
        "docker",
        ((25, 0, 0), (29, 5, 0)),
        "docker-forgets-gids",
        (
            "additionalGids of a spec are lost when the container's user is set up",
            "docker run --group-add render",
        ),
        "moby 52579",
    ),
    _row(
        "docker",
        ((25, 0, 0), (29, 2, 0)),
        "docker-rootless-dirs",
        (
            "rootless, it passes over a user's own spec directories, and over those that are links",
            "install Docker 29.2 or newer, or write the specs to /etc/cdi",
        ),
        "moby 51624",
        "moby 47676",
        "moby 48541",
    ),
    _row(
        "docker",
        ((29, 2, 0), None),
        "docker-nri-without-cdi",
        (
            "a container whose NRI plugin asks for CDI devices, device nodes or hooks is not created",
            "docker run --device nvidia.com/gpu=all",
        ),
        "moby 51511",
    ),
    _row(
        "containerd",
        (None, (1, 7, 0)),
        "containerd-no-cdi",
        ("this release has no CDI", "install containerd 1.7 or newer"),
        "containerd 6654",
    ),
    _row(
        "containerd",
        ((1, 7, 0), (2, 0, 0)),
        "containerd-cdi-off",
        (
            "CDI is off unless the configuration says enable_cdi = true: devices are passed over silently",
            "cdigen configure containerd",
        ),
        "containerd 6654",
    ),
    _row(
        "containerd",
        ((1, 7, 0), (2, 0, 0)),
        "containerd-sections-replaced",
        (
            "a plugin's table in an imported file replaces that of the main file whole, not key by key",
            "set CDI in the main file",
        ),
        "containerd 9982",
    ),
    _row(
        "containerd",
        ((1, 7, 0), (2, 0, 0)),
        "ctr-without-cdi",
        ("ctr run --device takes device paths only, no CDI names", "install containerd 2.0 or newer"),
        "containerd 8525",
    ),
    _row(
        "containerd",
        ((1, 7, 0), (1, 7, 30)),  # seen with 1.7.24; NVIDIA's operator wants 1.7.30 for its own plugin
        "containerd-nri-without-cdi",
        (
            "CDI devices that an NRI plugin asks for are passed over silently",
            "install containerd 2.1 or newer",
        ),
        "gpu-operator 26.3",
    ),
    _row(
        "containerd",
        ((2, 0, 0), (2, 1, 0)),
        "containerd-nri-without-cdi",
        (
            "CDI devices that an NRI plugin asks for are passed over silently",
            "install containerd 2.1 or newer",
        ),
        "gpu-operator 26.3",
    ),
    _row(
        "containerd",
        ((2, 0, 0), (2, 3, 0)),
        "containerd-mixed-versions",
        (
            "an imported file of another version than the main file's hides tables of the CRI plugin",
            "give all files of the configuration one version",
        ),
        "containerd 12891",
        "containerd 13939",
    ),
    _row(
        "cri-o",
        (None, (1, 24, 0)),
        "crio-no-cdi",
        ("this release reads no CDI specs", "install CRI-O 1.24 or newer"),
        "cri-o 5571",
    ),
    _row(
        "cri-o",
        ((1, 24, 0), (1, 34, 0)),
        "crio-edits-overwritten",
        (
            "what a spec sets may be overwritten by what CRI-O sets up later",
            "install CRI-O 1.34 or newer",
        ),
        "cri-o 64a94f231f",
    ),
    _row(
        "apptainer",
        ((1, 5, 0), None),
        "apptainer-no-hooks",
        (
            "hooks of specs are passed over: libraries come through mounts alone",
            "cdigen generate --layout files --hook none --write",
        ),
        "apptainer 3738",
    ),
    _row(
        "crun",
        (None, (1, 7, 0)),
        "crun-nested-devices",
        (
            "users other than root cannot reach device nodes in folders below /dev",
            "install crun 1.7 or newer",
        ),
        "crun 1047",
    ),
    _row(
        "crun",
        (None, (1, 26, 0)),
        "crun-hooks-read-only",
        (
            "createContainer hooks run when a read-only root is read-only already, and fail",
            "install crun 1.26 or newer, or: cdigen generate --layout files --hook none --write",
        ),
        "crun NEWS 1.26",
    ),
    _row(
        "crun",
        (None, (1, 27, 0)),
        "crun-hook-userns",
        (
            "with --userns=auto or nomap createContainer hooks fail for a folder they may not enter",
            "install crun 1.27 or newer",
        ),
        "crun 2035",
    ),
    _row(
        "runc",
        (None, (1, 3, 0)),
        "runc-hook-environment",
        (
            "a createContainer hook without an environment gets the image's, LD_PRELOAD included",
            "give every hook an env; specs of cdigen do",
        ),
        "runc 4325",
        "CVE-2025-23266",
    ),
)
