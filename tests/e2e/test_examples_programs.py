"""Real programs run the examples as the example files describe, on a host with two GPUs.

The programs are from Debian's next release (tools-forky). test_examples_quadlet.py tests Debian 13's Quadlet.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, Host
from support.containers.forky_host import KINDS, running_forky
from support.containers.gpu_hosts import LONE_CGROUP2
from support.paths import REPOSITORY

pytestmark = pytest.mark.e2e

EXAMPLES = REPOSITORY / "examples"
# The image in the examples.
IMAGE = "docker.io/library/debian:stable"
CONTROL = {"/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
NETWORKLESS = "services:\n  devices: {network_mode: none}\n  reservation: {network_mode: none}\n"
# The host is the only node of the cluster. Slurm uses no control groups for jobs.
CLUSTER = """
AuthType=auth/munge
ClusterName=test
MpiDefault=none
PartitionName=all Nodes=ALL Default=YES
ProctrackType=proctrack/linuxproc
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmUser=root
SlurmctldHost={name}(127.0.0.1)
SlurmdSpoolDir=/var/spool/slurmd
StateSaveLocation=/var/spool/slurmctld
TaskPlugin=task/none
"""
START_SLURM = """
mkdir --parents /run/munge /var/spool/slurmd /var/spool/slurmctld
chown munge /run/munge
echo CgroupPlugin=disabled >/etc/slurm/cgroup.conf
setsid setpriv --reuid=munge --regid=munge --clear-groups munged </dev/null >/run/munged.log 2>&1
for daemon in slurmctld slurmd; do setsid $daemon -D </dev/null >/run/$daemon.log 2>&1 & done
for _ in $(seq 200); do
    if sinfo --noheader --format=%T 2>/dev/null | grep --quiet --line-regexp idle; then exit; fi
    sleep 0.1
done
tail /run/munged.log /run/slurmctld.log /run/slurmd.log >&2
exit 1
"""


@pytest.fixture(scope="module")
def host(cache: Path, driver_tree: Path, images: Path) -> Iterator[Host]:
    with running_forky(cache / "tools-forky", driver_tree=driver_tree, images=images) as running:
        running.run(f"docker tag {DEBIAN_IMAGE} {IMAGE}")
        running.run(
            f"podman save --quiet {DEBIAN_IMAGE} | podman load --quiet; podman tag {DEBIAN_IMAGE} {IMAGE}"
        )
        for file in EXAMPLES.rglob("*"):
            if file.is_file() and (file.parent != EXAMPLES or not file.suffix):
                running.put(f"/examples/{file.relative_to(EXAMPLES)}", file.read_text())
        running.run("chmod +x /examples/cdi-options /examples/*/*.sh")
        yield running


def gpus(output: str) -> set[str]:
    """Return the GPU nodes in OUTPUT; check that OUTPUT also contains all control nodes."""
    found = {word for word in output.split() if word.startswith("/dev/nvidia")}
    assert found >= CONTROL
    return found - CONTROL


@pytest.mark.parametrize("compose", ["docker compose", "podman-compose"])
def test_a_compose_service_has_the_gpu_of_its_devices_key(host: Host, compose: str) -> None:
    host.put("/examples/compose/compose.override.yaml", NETWORKLESS)
    output = host.run(f"cd /examples/compose; {compose} run --rm -T devices 2>&1")
    assert gpus(output) == {"/dev/nvidia0"}


def test_a_docker_compose_service_has_the_gpu_of_its_reservation(host: Host) -> None:
    host.put("/examples/compose/compose.override.yaml", NETWORKLESS)
    output = host.run("cd /examples/compose; docker compose run --rm -T reservation 2>&1")
    assert gpus(output) == {"/dev/nvidia1"}


def test_a_pod_of_podman_kube_play_has_the_gpu_of_its_limits(host: Host) -> None:
    host.run("podman kube play --network none /examples/kube-play/pod.yaml && podman wait gpu-cuda")
    assert gpus(host.run("podman logs gpu-cuda")) == {"/dev/nvidia0"}


@pytest.mark.parametrize("build", ["buildah build", "podman build"])
def test_an_image_build_has_the_requested_gpu(host: Host, build: str) -> None:
    # Debian's podman uses crun by default; this host is configured for runc. A network would need nftables.
    with_crun = (
        f"{LONE_CGROUP2} {build.replace(' build', ' --runtime crun build')} --isolation=oci --network none"
    )
    host.run(f"cd /examples/build; {with_crun} --device nvidia.com/gpu=0 --tag built . 2>&1")
    assert gpus(host.run("podman run --rm localhost/built cat /found")) == {"/dev/nvidia0"}


def test_each_job_of_slurm_has_its_allocated_gpu(host: Host) -> None:
    name = host.run("hostname").strip()
    cluster = (EXAMPLES / "slurm/slurm.conf").read_text().replace("node1", f"{name} NodeAddr=127.0.0.1")
    host.put("/etc/slurm/slurm.conf", cluster + CLUSTER.format(name=name))
    host.put("/etc/slurm/gres.conf", (EXAMPLES / "slurm/gres.conf").read_text())
    host.run(START_SLURM)
    # The first job holds one GPU until the second job, which gets the other GPU, has ended.
    host.run("cd /tmp; sbatch --gres=gpu:1 --wrap 'until [ -e /tmp/done ]; do sleep 0.1; done'")
    try:
        host.run("cd /tmp; sbatch --wait --output=/tmp/job.out /examples/slurm/job.sh")
    finally:
        host.run("touch /tmp/done")
    assert gpus(host.run("cat /tmp/job.out")) == {"/dev/nvidia1"}


def test_a_systemd_nspawn_container_has_the_gpu_and_loads_the_driver(host: Host) -> None:
    host.put("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    host.run(
        f"mkdir /srv/box; podman export $(podman create {IMAGE} true) | tar --extract --directory /srv/box"
    )
    spec = f"SPEC=/run/cdi/nvidia.com-{KINDS['files']}.json"
    options = "NSPAWN_OPTIONS='--register=no --keep-unit --as-pid2'"
    started = f"{LONE_CGROUP2} env {spec} {options} DEVICE=1 /examples/systemd-nspawn/run.sh /srv/box"
    assert gpus(host.run(f"{started} find /dev -name 'nvidia*' 2>&1")) == {"/dev/nvidia1"}
    assert host.run(f"{started} dlopen-all libcuda.so.1 libnvidia-ml.so.1").count("ok") == 2
