"""A GPU host with the newest container runtimes of Debian, on which Docker and containerd run.

Use `running_forky`. `RUNTIMES` has each runtime's command that starts a container. The host has one spec
for each of `KINDS`. Its daemons, containers and storage are in the host's namespaces and end with it.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.containers.chroot_host import DEBIAN_IMAGE, Host, running_host
from support.containers.gpu_hosts import GPUS, LONE_CGROUP2, Driven, generate, install_hook, succeed
from support.hosts.nvidia_kernel import write_kernel_side
from support.own_trees import copied_tree

# The class of the kind nvidia.com/CLASS for each delivery of the driver.
KINDS = {"view+hook": "gpu", "files": "gpu-files", "hwcaps": "gpu-hwcaps"}
REQUIRED = "gpu-required"  # view+hook; a container does not start if the hook fails
PROFILES = f"""\
profiles:
  - {{name: view, class: {KINDS["view+hook"]}, layout: view, hook: cdigen}}
  - {{name: files, class: {KINDS["files"]}, layout: files, hook: none}}
  - {{name: required, class: {REQUIRED}, layout: view, hook: cdigen, required_hook_steps: [update-ldcache]}}
"""

# cdigen permits the layout hwcaps only for the default kind. `write_specs` changes the kind and the file name
# of this spec.
HWCAPS_PROFILE = "profiles:\n  - {name: hwcaps, class: gpu, layout: hwcaps, hook: none}\n"

# The source packages of the driver's files in driver-trixie.
DRIVER_SOURCES = ("egl-wayland", "nvidia-graphics-drivers", "nvidia-persistenced")

# Docker's namespace in containerd. ctr starts Docker's image from this namespace.
NAMESPACE = "moby"

# The storage has its own file systems, because an overlay (the host's root) cannot contain another overlay.
# Docker's network would need iptables. Docker's older image store would copy the image for each container.
START_DAEMONS = """
mkdir --parents /etc/docker /var/lib/docker /var/lib/containerd
mount -t tmpfs docker /var/lib/docker
mount -t tmpfs containerd /var/lib/containerd
cat >/etc/docker/daemon.json <<JSON
{
    "bridge": "none", "iptables": false, "ip6tables": false,
    "containerd": "/run/containerd/containerd.sock",
    "exec-opts": ["native.cgroupdriver=cgroupfs"],
    "features": {"containerd-snapshotter": true}
}
JSON
setsid containerd </dev/null >/run/containerd.log 2>&1 &
setsid dockerd </dev/null >/run/dockerd.log 2>&1 &
for _ in $(seq 300); do
    if docker version >/dev/null 2>&1; then exit; fi
    sleep 0.1
done
tail --lines 20 /run/containerd.log /run/dockerd.log >&2
exit 1
"""

# The containers' cgroups do not end with the host's namespaces.
REMOVE_CONTAINERS = f"""
docker ps --all --quiet | xargs --no-run-if-empty docker rm --force
ctr --namespace {NAMESPACE} tasks list --quiet |
    xargs --no-run-if-empty ctr --namespace {NAMESPACE} tasks delete --force
"""

# ctr discards the output of a container that ends before ctr has opened its pipes, and what ctr has not
# read before the container ends. Therefore the container first writes an empty line to each pipe, and its
# command begins after ctr has forwarded both lines. After the command, the container writes EOT to each pipe,
# and ends after ctr has forwarded both.
HANDSHAKES = (
    "echo; echo >&2; read -r _; read -r _; "
    r'"$@"; status=$?; printf "\004\n"; printf "\004\n" >&2; read -r _; read -r _; exit $status'
)
INSTALL_CTR_RUN = rf"""
cat >/usr/local/bin/ctr-run <<'SCRIPT'
#!/bin/bash
passed_on() {{
    IFS= read -r line || return
    if [ -z "$line" ]; then echo >&3; else printf '%s\n' "$line"; fi
    while IFS= read -r line; do
        if [[ $line = *$'\004' ]]; then printf %s "${{line%?}}"; echo >&3; else printf '%s\n' "$line"; fi
    done
    printf %s "$line"
}}
input=$(mktemp --dry-run)
mkfifo "$input"
exec 3<>"$input"
rm "$input"
ctr --namespace {NAMESPACE} run --rm "$@" <&3 > >(passed_on) 2> >(passed_on >&2)
SCRIPT
chmod 755 /usr/local/bin/ctr-run
"""

VERSIONS = "podman --version; docker --version; containerd --version; runc --version; crun --version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A command that starts a container: `run` is before the options, `image` (and ctr's name) after them."""

    run: str
    image: str = DEBIAN_IMAGE
    volume: str = "--volume {path}:{path}:{mode}"

    def on(self, host: Host, kind: str = KINDS["view+hook"], device: str = "0") -> Driven:
        """Return a `Driven` whose containers have the DEVICE of nvidia.com/KIND."""
        return Driven(host=host, podman=f"{self.run} --device nvidia.com/{kind}={device}")

    def host_folder(self, path: str, mode: str) -> str:
        """Return the option that mounts the host's folder at the same path; mode is rw or ro."""
        return self.volume.format(path=path, mode=mode)


RUNTIMES = {
    "podman, runc": Runtime(run="podman run --rm"),
    "podman, crun": Runtime(run=f"{LONE_CGROUP2} podman --runtime crun run --cgroups=disabled --rm"),
    "docker": Runtime(run="docker run --network none --rm"),
    "containerd": Runtime(
        run="ctr-run",
        image=f"{DEBIAN_IMAGE}:latest test-$RANDOM-$RANDOM sh -c '{HANDSHAKES}' sh",
        volume="--mount type=bind,src={path},dst={path},options=rbind:{mode}",
    ),
}


@contextmanager
def running_forky(tree: Path, *, driver_tree: Path, images: Path) -> Iterator[Host]:
    """Run a host with the runtimes of TREE and the driver's files until the context ends.

    The function prints the runtimes' versions, because the versions in forky change.
    """
    with copied_tree(tree, tree.parent) as root:
        lay_driver(root, driver_tree)
        write_kernel_side(root, GPUS)
        install_hook(root)
        write_specs(root)
        with running_host(root, images=images) as host, running_daemons(host):
            yield host


@contextmanager
def running_daemons(host: Host) -> Iterator[None]:
    """Run Docker and containerd on HOST, with the image of Debian, until the context ends."""
    print(host.run(VERSIONS))
    host.run(INSTALL_CTR_RUN)
    host.run(START_DAEMONS)
    archive = f"podman save --quiet --uncompressed --format oci-archive {DEBIAN_IMAGE}"
    host.run(f"{archive} | docker load --quiet")
    try:
        yield
    finally:
        host.attempt(REMOVE_CONTAINERS)


def write_specs(root: Path) -> None:
    """Write the specs of PROFILES, and the spec of HWCAPS_PROFILE with a kind of its own."""
    config = root / "etc/cdigen/config.yaml"
    config.parent.mkdir()
    config.write_text(HWCAPS_PROFILE)
    generate(root, "--write")
    written = root / "run/cdi/nvidia.com-gpu.json"
    hwcaps = {**json.loads(written.read_text()), "kind": f"nvidia.com/{KINDS['hwcaps']}"}
    config.write_text(PROFILES)
    generate(root, "--write")
    (root / f"run/cdi/nvidia.com-{KINDS['hwcaps']}.json").write_text(json.dumps(hwcaps))


def lay_driver(root: Path, driver_tree: Path) -> None:
    """Hard-link the driver's files of one tree into another, at the same paths.

    The driver's packages of forky cannot be installed, because their versions change, and they may be
    missing. dpkg of DRIVER_TREE lists the driver's files. Links of update-alternatives are found by their
    paths and targets.
    """
    in_tree = ("chroot", str(driver_tree))
    shown = succeed(*in_tree, "dpkg-query", "--show", "--showformat=${source:Package} ${Package}\n")
    rows = [line.split() for line in shown.splitlines()]
    packages = [package for source, package in rows if source in DRIVER_SOURCES]
    listed = succeed(*in_tree, "dpkg-query", "--listfiles", *packages)
    leads = "-lname /etc/alternatives/nvidia* -o -lname /etc/alternatives/glx*"
    named = "-path /etc/alternatives/nvidia* -o -path /etc/alternatives/glx*"
    links = succeed(*in_tree, "find", "/etc", "/usr", "-type", "l", *f"( {leads} -o {named} )".split())
    for path in {*listed.splitlines(), *links.splitlines()}:
        source, target = (folder / path.lstrip("/") for folder in (driver_tree, root))
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(source, target, follow_symlinks=False)
    succeed("chroot", str(root), "/usr/sbin/ldconfig")
