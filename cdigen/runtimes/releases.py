"""The table of all releases of runtimes: CDI library, NRI version, behaviours and known issues.

``LIBRARIES`` has the CDI library of each release. ``NRI`` has the NRI version of each release. ``BEHAVIOURS``
has all other differences. ``behaves`` searches ``BEHAVIOURS``. A row of ``BEHAVIOURS`` with a text is a known
issue, which ``cdigen doctor`` reports. ``cdi.library`` has the behaviour of each release of the CDI library.
docs/contributing/changing-verdicts.md describes how to change a row.
"""

from __future__ import annotations

from enum import Enum

from cdigen.cdi.library import newest_version
from cdigen.cdi.version import is_newer, release_order
from cdigen.value import frozen

Release = tuple[int, int, int]

# Runtime -> rows of the first release with a version of the CDI library, and this version. Source: go.mod at
# the tags of each runtime, as of 2026-08. docs/reference/cdi-loaders.md, "Libraries in runtimes", has the
# most important releases. A release between two rows has the library of the earlier row.
LIBRARIES: dict[str, tuple[tuple[Release, str], ...]] = {
    "apptainer": (((1, 5, 0), "1.1.0"),),
    "buildkit": (
        ((0, 20, 0), "0.8.0"),  # PR 4056
        ((0, 21, 0), "1.0.1"),
        ((0, 28, 0), "1.1.0"),
    ),
    "containerd": (
        ((1, 7, 0), "0.5.4"),  # PR 6654
        ((1, 7, 12), "0.6.1"),
        ((1, 7, 13), "0.6.2"),
        ((1, 7, 16), "0.7.2"),
        ((1, 7, 27), "0.8.1"),
        ((2, 0, 0), "0.8.0"),
        ((2, 0, 3), "0.8.1"),
        ((2, 0, 5), "1.0.0"),
        ((2, 1, 0), "1.0.1"),
        ((2, 2, 1), "1.1.0"),
    ),
    "cri-o": (
        ((1, 24, 0), "0.3.2"),  # PR 5571
        ((1, 25, 0), "0.5.0"),
        ((1, 25, 2), "0.5.2"),
        ((1, 25, 5), "0.5.4"),
        ((1, 26, 0), "0.5.3"),
        ((1, 27, 0), "0.5.4"),
        ((1, 28, 0), "0.6.0"),
        ((1, 29, 0), "0.6.2"),
        ((1, 30, 0), "0.7.2"),
        ((1, 31, 0), "0.8.0"),
        ((1, 32, 2), "0.8.1"),
        ((1, 33, 0), "1.0.1"),
        ((1, 35, 0), "1.1.0"),
    ),
    "docker": (
        ((25, 0, 0), "0.6.2"),  # moby PR 45134
        ((26, 1, 0), "0.7.1"),
        ((26, 1, 1), "0.7.2"),
        ((27, 4, 0), "0.8.0"),
        ((28, 0, 1), "0.8.1"),
        ((28, 1, 0), "1.0.1"),
        ((29, 2, 0), "1.1.0"),
    ),
    "nerdctl": (((2, 1, 0), "1.0.1"),),
    "podman": (
        ((4, 1, 0), "0.4.0"),  # PR 12825; 3.2 to 4.0 had an older interface
        ((4, 3, 0), "0.5.2"),  # Debian 12
        ((4, 4, 0), "0.5.3"),
        ((4, 5, 0), "0.5.4"),
        ((4, 7, 0), "0.6.1"),
        ((4, 8, 0), "0.6.2"),  # Ubuntu 24.04 has 4.9.3
        ((5, 1, 0), "0.7.2"),
        ((5, 2, 0), "0.8.0"),
        ((5, 5, 0), "1.0.1"),
        ((6, 0, 0), "1.1.0"),
    ),
    "singularity": (  # SingularityCE, PR 1459
        ((4, 0, 0), "0.6.1"),
        ((4, 0, 2), "0.6.2"),
        ((4, 1, 3), "0.7.2"),
        ((4, 1, 5), "0.8.0"),
        ((4, 3, 0), "1.0.0"),
        ((4, 3, 1), "1.0.1"),
        ((4, 3, 7), "1.1.0"),
    ),
}

# Runtime -> major version -> its last minor version, if a later major version exists. Source: the tags, as
# of 2026-11.
LAST_SERIES: dict[str, dict[int, int]] = {
    "containerd": {1: 7},
    "docker": {25: 0, 26: 1, 27: 5, 28: 5},
    "podman": {4: 9, 5: 8},
}

# Runtime -> the newest release that was examined for this file, if it has no row of its own in LIBRARIES.
# Source: the tags, as of 2026-11.
NEWEST: dict[str, Release] = {
    "containerd": (2, 3, 5), "cri-o": (1, 36, 3), "docker": (29, 7, 2), "singularity": (4, 5, 1),
}  # fmt: skip
# The assumed release of a runtime whose release is unknown. It has the values of the last row of every table.
UNKNOWN: Release = (99999, 0, 0)

# Runtime -> the first release with an NRI version, and this version. Source: go.mod at the tags, as of
# 2026-11.
NRI: dict[str, tuple[tuple[Release, tuple[int, int]], ...]] = {
    "containerd": (
        ((1, 7, 0), (0, 3)),
        ((1, 7, 14), (0, 6)),  # Debian 13 has 1.7.24
        ((1, 7, 26), (0, 8)),
        ((2, 2, 0), (0, 10)),
        ((2, 2, 1), (0, 11)),
        ((2, 3, 0), (0, 12)),
    ),
    "cri-o": (
        ((1, 26, 0), (0, 3)),
        ((1, 29, 0), (0, 6)),
        ((1, 32, 0), (0, 9)),
        ((1, 34, 0), (0, 10)),
        ((1, 35, 0), (0, 11)),
    ),
    "docker": (((29, 2, 0), (0, 11)),),  # moby 51634, off by default
}


# The usual names of the runtimes that start containers -> the names in this table.
RUNTIME_NAMES = {"podman": "podman", "docker": "docker", "containerd": "containerd", "crio": "cri-o"}


class RuntimeBehaviour(Enum):
    """A behaviour of only some releases of a runtime; the value is the last part of a known issue's name."""

    NO_CDI = "no-cdi"
    CDI_OFF = "cdi-off"
    FIXED_SPEC_DIRS = "fixed-dirs"
    NO_RUN_CDI = "no-run-cdi"
    ROOTLESS_DIRS = "rootless-dirs"
    ROOTLESS_NO_DIRS = "rootless-no-dirs"
    NO_MINIMUM_VERSION = "no-minimum-version"
    NO_ADDITIONAL_GIDS = "no-additional-gids"
    FORGETS_GIDS = "forgets-gids"
    GPUS_OPTION_IGNORED = "gpus-ignored"
    API_WITHOUT_CDI = "api-without-cdi"
    BUILD_WITHOUT_CDI = "build-without-cdi"
    CTR_WITHOUT_CDI = "ctr-without-cdi"
    RESTART_WITHOUT_DEVICES = "restart-without-devices"
    EDITS_OVERWRITTEN = "edits-overwritten"
    NRI_OFF = "nri-off"
    NRI_WITHOUT_CDI = "nri-without-cdi"
    NO_HOOKS = "no-hooks"
    HOOK_ENVIRONMENT = "hook-environment"
    HOOKS_READ_ONLY = "hooks-read-only"
    HOOK_USERNS = "hook-userns"
    NESTED_DEVICES = "nested-devices"
    # These behaviours concern how a runtime reads its configuration.
    VALIDATES_CONFIG = "validates-config"
    ROOT_READS_HOME = "root-reads-home"
    READS_ROOTLESS_FILES = "reads-rootless-files"
    ONE_MAIN_FILE = "one-main-file"
    NEW_PLUGIN_NAMES = "new-plugin-names"
    SECTIONS_REPLACED = "sections-replaced"
    CHECKS_VERSION = "checks-version"
    MIXED_VERSIONS = "mixed-versions"
    NO_HIGHER_IMPORTS = "no-higher-imports"


B = RuntimeBehaviour
# The runtimes that hints mention.
_COMMON = ("podman", "cri-o", "containerd", "docker")
# The known issue whose name does not begin with the name of the runtime.
_NAMES = {B.CTR_WITHOUT_CDI: "ctr-without-cdi"}


@frozen
class BehaviourRow:
    """A behaviour of the releases of ``runtime`` from ``since`` to before ``until``; None means no limit.

    ``references`` are threads such as ``podman 26569``, or other sources or tests. A row with a ``text`` is a
    known issue. ``text`` describes the issue. ``remedy`` is the fix, if possible a command.
    """

    runtime: str
    behaviour: RuntimeBehaviour
    since: Release | None
    until: Release | None
    references: tuple[str, ...] = ()
    text: str = ""
    remedy: str = ""

    @property
    def name(self) -> str:
        """The stable name of the issue, such as ``podman-no-run-cdi``."""
        return _NAMES.get(self.behaviour, f"{self.runtime.replace('-', '')}-{self.behaviour.value}")

    def holds(self, release: Release) -> bool:
        """Return whether RELEASE of the runtime has this behaviour."""
        return (self.since is None or self.since <= release) and (self.until is None or release < self.until)


def _row(  # noqa: PLR0913, PLR0917 - the columns of the table
    runtime: str,
    behaviour: RuntimeBehaviour,
    since: Release | None,
    until: Release | None,
    references: str,
    text: str = "",
    remedy: str = "",
) -> BehaviourRow:
    return BehaviourRow(
        runtime=runtime,
        behaviour=behaviour,
        since=since,
        until=until,
        references=tuple(references.split(", ")) if references else (),
        text=text,
        remedy=remedy,
    )


# Sources: the references of each row, and docs/reference/cdi-loaders.md. Users reported all these issues.
BEHAVIOURS: tuple[BehaviourRow, ...] = (
    _row("podman", B.NO_CDI, None, (4, 1, 0), "podman 12825",
         "this release reads no CDI specs, or uses an older interface", "install podman 4.3 or newer"),
    _row("podman", B.FIXED_SPEC_DIRS, (4, 1, 0), (5, 5, 0),
         "podman 25691, podman 18292, containers/common 2391",
         "reads only /etc/cdi and /var/run/cdi, and ignores cdi_spec_dirs in containers.conf",
         "keep specs in /etc/cdi or /var/run/cdi"),
    _row("podman", B.NO_RUN_CDI, (5, 5, 0), (5, 6, 0), "podman 26569, containers/common 2460",
         "reads only /etc/cdi, and not /var/run/cdi, if containers.conf does not set cdi_spec_dirs",
         "cdigen configure podman"),
    _row("podman", B.NO_MINIMUM_VERSION, (4, 1, 0), (4, 5, 0), "kubernetes 116279",
         "accepts a file with a cdiVersion that is too low for the content; newer releases refuse the file",
         "cdigen validate FILE"),
    _row("podman", B.NO_ADDITIONAL_GIDS, (4, 1, 0), (5, 1, 0),
         "nvidia-container-toolkit 1860, nvidia-container-toolkit 1853",
         "refuses a file with additionalGids, which newer releases of nvidia-ctk write",
         "cdigen generate --write"),
    _row("podman", B.GPUS_OPTION_IGNORED, None, (5, 0, 0), "",
         "--gpus has no effect", "podman run --device nvidia.com/gpu=all"),
    _row("podman", B.API_WITHOUT_CDI, (4, 1, 0), (5, 4, 0), "podman 17833, podman 19338",
         "the Docker-compatible interface and 'podman kube play' accept no CDI names",
         "podman run --device nvidia.com/gpu=all"),
    # podman 5.1.0 has buildah 1.36.0 (go.mod).
    _row("podman", B.BUILD_WITHOUT_CDI, (4, 1, 0), (5, 1, 0), "buildah 5443, buildah 5556, podman 21158",
         "'podman build --device' and buildah before 1.36 accept no CDI names, only paths of device nodes",
         "install podman 5.1 or newer for builds with a GPU"),
    _row("podman", B.ROOT_READS_HOME, (5, 0, 0), None, "observed in 5.8, not in 4.3"),
    _row("podman", B.READS_ROOTLESS_FILES, (5, 7, 0), None, "containers/common 2499"),
    _row("podman", B.ONE_MAIN_FILE, (6, 0, 0), None, "contrib/design-docs/config-file-parsing.md"),
    _row("docker", B.NO_CDI, None, (25, 0, 0), "moby 45134",
         "this release reads no CDI specs", "install Docker 25 or newer"),
    _row("docker", B.VALIDATES_CONFIG, (23, 0, 0), None, "moby 42393"),
    _row("docker", B.CDI_OFF, (25, 0, 0), (28, 2, 0), "moby 49963",
         "CDI is off unless daemon.json sets features.cdi: true", "cdigen configure docker"),
    _row("docker", B.RESTART_WITHOUT_DEVICES, (25, 0, 0), (28, 2, 0), "moby 49989",
         "containers with --restart=always and a CDI device fail when the daemon starts",
         "start the containers again after dockerd has started, or install Docker 28.2 or newer"),
    _row("docker", B.FORGETS_GIDS, (25, 0, 0), (29, 5, 0), "moby 52579",
         "additionalGids of a spec are lost when the container's user is set up",
         "docker run --group-add render"),
    _row("docker", B.ROOTLESS_DIRS, (25, 0, 0), (29, 2, 0), "moby 51624, moby 47676, moby 48541",
         "a rootless dockerd ignores the user's own spec directories and linked spec directories",
         "install Docker 29.2 or newer, or write the specs to /etc/cdi"),
    # Source: contrib/dockerd-rootless.sh at each tag. No release of 26.0 and 26.1 has the backport 49028.
    _row("docker", B.ROOTLESS_NO_DIRS, (25, 0, 0), (25, 0, 8), "moby 47676, moby 49029",
         "a rootless dockerd does not see /etc/cdi and /var/run/cdi", "install Docker 27.4 or newer"),
    _row("docker", B.ROOTLESS_NO_DIRS, (26, 0, 0), (27, 4, 0), "moby 47676, moby 48541",
         "a rootless dockerd does not see /etc/cdi and /var/run/cdi", "install Docker 27.4 or newer"),
    _row("docker", B.NRI_WITHOUT_CDI, (29, 2, 0), None, "moby 51511",
         "a container is not created if an NRI plugin adds CDI devices, device nodes or hooks",
         "docker run --device nvidia.com/gpu=all"),
    _row("containerd", B.NO_CDI, None, (1, 7, 0), "containerd 6654",
         "this release has no CDI", "install containerd 1.7 or newer"),
    _row("containerd", B.CDI_OFF, (1, 7, 0), (2, 0, 0), "containerd 6654",
         "CDI is off unless the configuration sets enable_cdi = true: devices are silently ignored",
         "cdigen configure containerd"),
    _row("containerd", B.NRI_OFF, (1, 7, 0), (2, 0, 0), "containerd 6654"),
    _row("containerd", B.NEW_PLUGIN_NAMES, (2, 0, 0), None, "containerd config dump of 1.7.24 and 2.1.9"),
    _row("containerd", B.SECTIONS_REPLACED, (1, 7, 0), (2, 0, 0), "containerd 9982",
         "a plugin's table in an imported file replaces the whole table of the main file, not single keys",
         "set CDI in the main file"),
    _row("containerd", B.CTR_WITHOUT_CDI, (1, 7, 0), (2, 0, 0), "containerd 8525",
         "ctr run --device accepts only device paths, no CDI names", "install containerd 2.0 or newer"),
    # Observed with 1.7.24. NVIDIA's operator requires 1.7.30 for its plugin. No release of 2.0 has the fix.
    _row("containerd", B.NRI_WITHOUT_CDI, (1, 7, 0), (1, 7, 30), "gpu-operator 26.3",
         "CDI devices that an NRI plugin adds are silently ignored", "install containerd 2.1 or newer"),
    _row("containerd", B.NRI_WITHOUT_CDI, (2, 0, 0), (2, 1, 0), "gpu-operator 26.3",
         "CDI devices that an NRI plugin adds are silently ignored", "install containerd 2.1 or newer"),
    # Before, a version that is too new has no effect.
    _row("containerd", B.CHECKS_VERSION, (1, 6, 32), (1, 7, 0), "containerd 10234"),
    _row("containerd", B.CHECKS_VERSION, (1, 7, 17), None, "containerd 10165"),
    _row("containerd", B.MIXED_VERSIONS, (2, 0, 0), (2, 3, 0), "containerd 12891, containerd 11747",
         "an imported file with another version than the main file hides tables of the CRI plugin",
         "use one version in all configuration files"),
    # PR 12891 is in the first release of 2.3. PR 13939 reverts it.
    _row("containerd", B.NO_HIGHER_IMPORTS, (2, 3, 0), (2, 3, 5),
         "containerd 12891, containerd 13939, aicr 1688",
         "containerd does not start if an imported file has a higher version than the main file",
         "install containerd 2.3.5 or newer, or use one version in all configuration files"),
    _row("cri-o", B.NO_CDI, None, (1, 24, 0), "cri-o 5571",
         "this release reads no CDI specs", "install CRI-O 1.25 or newer"),
    _row("cri-o", B.NRI_OFF, (1, 26, 0), (1, 30, 0), "crio.conf(5)"),
    # Source: the code of each tag. From 1.34.0 on, the code calls WithCDIDeviceInjector.
    _row("cri-o", B.NRI_WITHOUT_CDI, (1, 26, 0), (1, 34, 0), "cri-o 1.34.0"),
    _row("cri-o", B.EDITS_OVERWRITTEN, (1, 24, 0), (1, 34, 0), "cri-o 64a94f231f",
         "CRI-O may overwrite the edits of a spec", "install CRI-O 1.34 or newer"),
    _row("buildkit", B.NO_CDI, None, (0, 20, 0), "buildkit 4056",
         "this release reads no CDI specs", "install buildkit 0.20 or newer"),
    _row("nerdctl", B.NO_CDI, None, (2, 1, 0), "",
         "this release reads no CDI specs", "install nerdctl 2.1 or newer"),
    _row("apptainer", B.NO_CDI, None, (1, 5, 0), "",
         "this release reads no CDI specs", "install Apptainer 1.5 or newer"),
    _row("apptainer", B.NO_HOOKS, (1, 5, 0), None, "apptainer 3738",
         "hooks of specs are ignored: only mounts add libraries", "set 'hook: none' in the profile"),
    # Only the OCI mode reads specs (singularity 1395).
    _row("singularity", B.NO_CDI, None, (4, 0, 0), "singularity 1394",
         "this release reads no CDI specs",
         "install SingularityCE 4.0 or newer, and request devices with 'singularity exec --oci --device'"),
    _row("crun", B.NESTED_DEVICES, None, (1, 7, 0), "crun 1047",
         "users other than root cannot reach device nodes in folders below /dev",
         "install crun 1.7 or newer"),
    _row("crun", B.HOOKS_READ_ONLY, None, (1, 26, 0), "crun NEWS 1.26",
         "createContainer hooks run after a read-only root has become read-only, and fail",
         "install crun 1.26 or newer, or set 'hook: none' in the profile"),
    _row("crun", B.HOOK_USERNS, None, (1, 27, 0), "crun 2035",
         "with --userns=auto or nomap, createContainer hooks fail, because a folder is not accessible",
         "install crun 1.27 or newer"),
    _row("runc", B.HOOK_ENVIRONMENT, None, (1, 3, 0), "runc 4325, CVE-2025-23266",
         "a createContainer hook without env gets the environment of the image, with LD_PRELOAD",
         "set env in every hook; specs of cdigen set env"),
)  # fmt: skip


def behaves(runtime: str, release: Release, behaviour: RuntimeBehaviour) -> bool:
    """Return whether RELEASE of RUNTIME has BEHAVIOUR; false for an unknown runtime."""
    return any(
        row.behaviour is behaviour and row.runtime == runtime and row.holds(release) for row in BEHAVIOURS
    )


def known_issues(runtime: str, release: Release) -> tuple[BehaviourRow, ...]:
    """Return the known issues of RELEASE of RUNTIME, in the order of the table.

    RUNTIME may also be runc or crun.
    """
    return tuple(row for row in BEHAVIOURS if row.text and row.runtime == runtime and row.holds(release))


def library_of(runtime: str, release: Release) -> tuple[str, str]:
    """Return the CDI library of RELEASE of RUNTIME and the newest spec version that the library accepts.

    Both are empty if the release has no CDI library.
    """
    held = [library for since, library in LIBRARIES.get(runtime, ()) if since <= release]
    return (held[-1], newest_version(held[-1])) if held else ("", "")


def first_releases_with(version: str) -> tuple[str, ...]:
    """Return the first release of each common runtime that supports the spec version VERSION.

    A release is a text such as ``podman-4.3``. From VERSION 0.7.0 on, a release must also apply additional
    groups. Some releases read additional groups, but do not apply the groups.
    """
    forgetting = B.FORGETS_GIDS if release_order(version) >= (0, 7, 0) else None
    found = []
    for runtime in _COMMON:
        rows = [row for row in BEHAVIOURS if row.runtime == runtime and row.behaviour is forgetting]
        changes = sorted(
            {since for since, _ in LIBRARIES[runtime]} | {row.until for row in rows if row.until}
        )
        first = next(
            release
            for release in changes
            if not is_newer(version, library_of(runtime, release)[1])
            and not any(row.holds(release) for row in rows)
        )
        found.append(f"{runtime}-{'.'.join(map(str, first)).removesuffix('.0')}")
    return tuple(found)


def nri_of(runtime: str, release: Release) -> tuple[int, int] | None:
    """Return the version of NRI in RELEASE of RUNTIME; None if the release has no NRI."""
    held = [version for since, version in NRI.get(runtime, ()) if since <= release]
    return held[-1] if held else None


def has_validator(runtime: str, release: Release) -> bool:
    """Return whether RELEASE of RUNTIME has NRI's validator, which can require plugins (NRI 0.10)."""
    return (nri_of(runtime, release) or (0, 0)) >= (0, 10)


def newest_release(runtime: str) -> Release:
    """Return the newest examined release of RUNTIME; raise KeyError if RUNTIME is not in LIBRARIES."""
    return max(LIBRARIES[runtime][-1][0], NEWEST.get(runtime, (0, 0, 0)))


def is_examined(runtime: str, release: Release) -> bool:
    """Return whether RELEASE is in a series of RUNTIME that is not newer than all examined series."""
    return release[:2] <= newest_release(runtime)[:2]
