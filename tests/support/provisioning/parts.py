"""The parts of the cache, what each is made of, and the Debian packages that this machine needs."""

import hashlib
from dataclasses import dataclass

from support.paths import TESTS

E2E = TESTS / "e2e"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file or folder of the cache, made by recipes/NAME from its sources and the parts that it needs.

    One that `is_apart` is made beside the others, since it is built for minutes, and only the tests that ask
    for it are skipped without it.
    """

    name: str
    what: str
    sources: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    is_apart: bool = False


# In the order in which they are made.
PARTS = (
    Part(
        name="driver-trixie",
        what="root of a Debian 13 host: NVIDIA driver 550.163.01, podman and python3",
        sources=("recipes/debian-root",),
    ),
    Part(name="dlopen-all", what="program that loads libraries by name", sources=("dlopen-all.c",)),
    Part(
        name="image-debian.tar",
        what="image with its libraries in /usr/lib/x86_64-linux-gnu",
        sources=("recipes/debian-root",),
        needs=("dlopen-all",),
    ),
    Part(
        name="image-redhat.tar",
        what="image with its libraries in /usr/lib64",
        sources=("recipes/debian-root",),
        needs=("dlopen-all", "image-debian.tar"),
    ),
    Part(
        name="image-bullseye.tar",
        what="image of Debian 11: glibc 2.31",
        sources=("recipes/debian-root", "dlopen-all.c"),
    ),
    Part(
        name="image-musl.tar",
        what="image with musl's dynamic loader",
        sources=("dlopen-all.c",),
        needs=("image-redhat.tar",),
    ),
    Part(
        name="old-driver",
        what="libcuda and libnvidia-ml of Debian 12's driver",
        sources=("recipes/debian-root",),
    ),
    Part(
        name="images",
        what="podman's store of all images",
        sources=("recipes/many-libraries",),
        needs=("image-debian.tar", "image-redhat.tar", "image-bullseye.tar", "image-musl.tar", "old-driver"),
    ),
    Part(
        name="runtimes-forky",
        what="root with Docker, containerd, podman, runc and crun of Debian's next release",
        sources=("recipes/debian-root",),
    ),
    Part(
        name="tools-forky",
        what="runtimes-forky with Compose, buildah, Slurm and systemd-nspawn, for the examples",
        sources=("recipes/runtimes-forky", "recipes/debian-root"),
    ),
    Part(
        name="containerd-trixie",
        what="containerd of Debian 13",
        sources=("recipes/debian-root",),
    ),
    Part(
        name="driver-bookworm",
        what="root of a Debian 12 host: NVIDIA driver 535, and the packages to upgrade it to and fro",
        sources=("recipes/debian-root",),
    ),
    Part(
        name="host-trixie",
        what="driver-trixie with systemd, to boot it, and what installs cdigen there",
        sources=("recipes/bootable-host", "recipes/debian-root"),
        needs=("driver-trixie",),
    ),
    Part(
        name="host-bookworm",
        what="driver-bookworm with the same",
        sources=("recipes/bootable-host", "recipes/debian-root"),
        needs=("driver-bookworm",),
    ),
    Part(
        name="python-trixie",
        what="Debian 13's own Python with the modules that it has for cdigen and its tests",
        sources=("recipes/debian-root",),
    ),
    Part(
        name="packager-trixie",
        what="root to build Debian 13's packages in, and what these need",
        sources=("recipes/debian-root",),
    ),
    Part(
        name="packager-bookworm",
        what="root to build Debian 12's packages in",
        sources=("recipes/debian-root",),
    ),
    Part(
        name="cdigen-base.tar",
        what="lower layer of cdigen's image",
        sources=(
            "../../packaging/debian/control",
            "../../packaging/image-base",
        ),
    ),
    Part(
        name="kubernetes",
        what="Kubernetes 1.20.2, built from Debian 12's sources, with etcd and CNI plugins",
        sources=("kubernetes.go", "recipes/debian-root"),
        is_apart=True,
    ),
    Part(
        name="kubectl",
        what="Debian 13's kubectl, which renders overlays of today's form",
        sources=("recipes/debian-root",),
        is_apart=True,
    ),
)

# What the recipes and the tests run on this machine.
PACKAGES = (
    "arch-test",  # mmdebstrap
    "bash-completion",
    "btrfs-progs",
    "chromium",  # looks at the daemon's page
    "cpio",  # with rpm: what the RPM packages are built and looked into with
    "crun",
    "fish",
    "gcc",
    "gpg",  # mmdebstrap
    "groff-base",  # with man-db and mandoc: what judges man pages
    "iproute2",
    "libc6-dev",
    "man-db",
    "mandoc",
    "mmdebstrap",
    "mount",
    "musl-tools",
    "podman",
    "procps",
    "rpm",
    "runc",
    "systemd",  # systemd-analyze, and as the first process of a test's own namespace
    "uidmap",
    "xfsprogs",
    "zsh",
    "zstd",
)


def with_needs(name: str) -> tuple[Part, ...]:
    """Return the part of that name and all that it needs, in the order in which they are made."""
    (part,) = (part for part in PARTS if part.name == name)
    names = {name} | {needed.name for need in part.needs for needed in with_needs(need)}
    return tuple(part for part in PARTS if part.name in names)


def digest(part: Part) -> str:
    """Compute a part's recipe digest: its recipe, its sources and the digests of what it needs."""
    state = hashlib.sha256()
    for source in (f"recipes/{part.name}", *part.sources):
        state.update((E2E / source).read_bytes())
    for needed in PARTS:
        if needed.name in part.needs:
            state.update(digest(needed).encode())
    return state.hexdigest()
