"""The parts of the cache, their sources, and the Debian packages that this machine needs."""

import hashlib
from dataclasses import dataclass

from support.paths import TESTS

E2E = TESTS / "e2e"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file or folder of the cache, made by recipes/NAME from its sources and the parts that it needs.

    A part that `is_optional` is made in parallel with other parts, because its build takes minutes. If it is
    missing, only the tests that use it are skipped.
    """

    name: str
    what: str
    sources: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    is_optional: bool = False


# The parts, in the order in which they are made.
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
        what="runtimes-forky with Compose, buildah, Slurm, systemd-nspawn and udevadm",
        sources=("recipes/runtimes-forky", "recipes/debian-root"),
    ),
    Part(
        name="containerd-trixie",
        what="containerd of Debian 13",
        sources=("recipes/debian-root",),
    ),
    Part(
        name="driver-bookworm",
        what="root of a Debian 12 host: NVIDIA driver 535, and packages to upgrade and downgrade it",
        sources=("recipes/debian-root",),
    ),
    Part(
        name="host-trixie",
        what="driver-trixie with systemd to boot it, and with the tools that install cdigen",
        sources=("recipes/bootable-host", "recipes/debian-root"),
        needs=("driver-trixie",),
    ),
    Part(
        name="host-bookworm",
        what="driver-bookworm with systemd to boot it, and with the tools that install cdigen",
        sources=("recipes/bootable-host", "recipes/debian-root"),
        needs=("driver-bookworm",),
    ),
    Part(
        name="python-trixie",
        what="Debian 13's own Python with its packages of the modules that cdigen and the tests import",
        sources=("recipes/debian-root",),
    ),
    Part(
        name="packager-trixie",
        what="root to build Debian packages in, and what these depend on in Debian 12 and 13",
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
        is_optional=True,
    ),
    Part(
        name="kubectl",
        what="Debian 13's kubectl, whose kustomize supports components",
        sources=("recipes/debian-root",),
        is_optional=True,
    ),
)

# The programs that the recipes and the tests run on this machine.
PACKAGES = (
    "arch-test",  # mmdebstrap
    "bash-completion",
    "btrfs-progs",
    "chromium",  # displays the daemon's page
    "cpio",  # with rpm: builds and examines the RPM packages
    "crun",
    "fish",
    "gcc",
    "gpg",  # mmdebstrap
    "groff-base",  # with man-db and mandoc: checks man pages
    "iproute2",
    "kmod",  # modprobe
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
    """Return the part NAME and all parts that it needs, in the order in which they are made."""
    (part,) = (part for part in PARTS if part.name == name)
    names = {name} | {needed.name for need in part.needs for needed in with_needs(need)}
    return tuple(part for part in PARTS if part.name in names)


def digest(part: Part) -> str:
    """Return the digest of a part's recipe, its sources and the digests of the parts that it needs."""
    state = hashlib.sha256()
    for source in (f"recipes/{part.name}", *part.sources):
        state.update((E2E / source).read_bytes())
    for needed in PARTS:
        if needed.name in part.needs:
            state.update(digest(needed).encode())
    return state.hexdigest()
