"""Docker, containerd, podman and crun of Debian's next release start containers with the specs of cdigen.

The tests check the features of these runtimes; a failing test prints their versions.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, Host
from support.containers.engine_sockets import daemon_page
from support.containers.forky_host import KINDS, REQUIRED, RUNTIMES, running_forky
from support.containers.gpu_hosts import GPUS, cache_entries
from support.hosts.nvidia_kernel import Node, control_nodes

pytestmark = pytest.mark.e2e

DEVICES = {
    "0": GPUS[0].nodes,
    "1": GPUS[1].nodes,
    "none": (),
    "all": (*GPUS[0].nodes, *GPUS[1].nodes),
}
RUNC = tuple(name for name in RUNTIMES if "crun" not in name)
USER_NAMESPACE = "--uidmap 0:100000:65536"
REFUSED = "cdigen-hook: update-ldcache: /etc: is on another mount than the container's root"
LIST_NODES = (
    "find /dev -type c '(' -name 'nvidia*' -o -path '/dev/dri/*' ')' -not -path '*/by-path/*' "
    "-exec stat -c '%n %t %T' '{}' +"
)


@pytest.fixture(scope="module")
def forky(cache: Path, driver_tree: Path, images: Path) -> Iterator[Host]:
    """Run a GPU host with all runtimes of RUNTIMES."""
    with running_forky(cache / "runtimes-forky", driver_tree=driver_tree, images=images) as host:
        yield host


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_container_has_only_the_requested_nodes(forky: Host, runtime: str, device: str) -> None:
    starter = RUNTIMES[runtime]
    listed = starter.on(forky, device=device).run(starter.image, LIST_NODES)
    rows = [line.split() for line in listed.splitlines()]
    nodes = {Node(path=path, major=int(major, 16), minor=int(minor, 16)) for path, major, minor in rows}
    assert nodes == {*DEVICES[device], *control_nodes()}


@pytest.mark.parametrize("runtime", RUNC)
def test_a_container_can_open_the_nodes_of_its_gpu_and_of_no_other_gpu(forky: Host, runtime: str) -> None:
    """The kernel first checks the cgroup (EPERM), then searches the driver, which is missing here (ENXIO)."""
    own, other = GPUS[0].nodes[0], GPUS[1].nodes[0]
    script = f"mknod /tmp/other c {other.major} {other.minor}; cat {own.path}; cat /tmp/other"
    starter = RUNTIMES[runtime]
    options = "--cap-add CAP_MKNOD"  # podman does not set it by default
    answer = starter.on(forky).attempt(starter.image, f'sh -c "{script}"', options=options)
    assert answer.stderr == (
        f"cat: {own.path}: No such device or address\ncat: /tmp/other: Operation not permitted\n"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_library_of_the_driver_loads_by_its_soname(forky: Host, runtime: str, kind: str) -> None:
    starter = RUNTIMES[runtime]
    driven = starter.on(forky, KINDS[kind])
    assert {"libcuda.so.1", "libnvidia-ml.so.1"} < driven.driver.keys()
    assert driven.loaded(starter.image) == driven.driver


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_ldconfig_lists_the_driver_in_a_container_with_the_hook(forky: Host, runtime: str) -> None:
    starter = RUNTIMES[runtime]
    entries = cache_entries(starter.on(forky).run(starter.image, "ldconfig -p"))
    paths = [entry.split()[-1] for entry in entries if entry.startswith("libcuda.so.1 ")]
    assert paths == ["/usr/local/nvidia/lib64/libcuda.so.1"]


@pytest.mark.parametrize("options", ["--read-only", "--user 1000"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_library_loads_in_a_read_only_container_and_for_a_user_other_than_root(
    forky: Host, runtime: str, options: str
) -> None:
    starter = RUNTIMES[runtime]
    driven = starter.on(forky)
    assert driven.loaded(starter.image, options=options) == driven.driver


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("runtime", ["podman, runc", "podman, crun"])
def test_every_library_loads_in_a_user_namespace(forky: Host, runtime: str, kind: str) -> None:
    starter = RUNTIMES[runtime]
    driven = starter.on(forky, KINDS[kind])
    assert driven.loaded(starter.image, options=USER_NAMESPACE) == driven.driver


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_nvidia_smi_starts_and_cannot_communicate_with_the_driver(forky: Host, runtime: str) -> None:
    starter = RUNTIMES[runtime]
    answer = starter.on(forky).attempt(starter.image, "nvidia-smi")
    assert "couldn't communicate with the NVIDIA driver" in answer.stdout, answer.stderr


@pytest.mark.parametrize("mode", ["rw", "ro"])
@pytest.mark.parametrize("runtime", RUNC)
def test_the_runtime_prints_the_error_of_a_failed_required_hook(forky: Host, runtime: str, mode: str) -> None:
    starter = RUNTIMES[runtime]
    options = starter.host_folder("/etc", mode)
    answer = starter.on(forky, REQUIRED).attempt(starter.image, "echo started", options=options)
    assert answer.returncode != 0
    assert answer.stdout == ""
    assert REFUSED in answer.stderr


def test_crun_writes_the_error_of_a_required_hook_to_the_file_in_an_annotation(forky: Host) -> None:
    starter = RUNTIMES["podman, crun"]
    options = f"{starter.host_folder('/etc', 'rw')} --annotation run.oci.hooks.stderr=/run/hook.log"
    answer = starter.on(forky, REQUIRED).attempt(starter.image, "echo started", options=options)
    assert answer.returncode != 0
    assert answer.stdout == ""
    assert "error executing hook" in answer.stderr
    assert REFUSED in forky.run("cat /run/hook.log")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_container_starts_if_its_required_hook_succeeds(forky: Host, runtime: str) -> None:
    starter = RUNTIMES[runtime]
    assert starter.on(forky, REQUIRED).run(starter.image, "echo started") == "started\n"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_hosts_loader_cache_is_unchanged_if_the_hosts_etc_is_a_volume(forky: Host, runtime: str) -> None:
    starter = RUNTIMES[runtime]
    listing = "find /etc -name '*ld.so*' -type f -exec stat -c '%n %i %s %y' {} +; md5sum /etc/ld.so.cache"
    before = forky.run(listing)
    options = starter.host_folder("/etc", "rw")
    assert starter.on(forky).run(starter.image, "echo started", options=options) == "started\n"
    assert forky.run(listing) == before


def test_docker_lists_the_devices_of_every_kind(forky: Host) -> None:
    listed = forky.run("docker info --format '{{range .DiscoveredDevices}}{{.ID}}\n{{end}}'").split()
    names = [*DEVICES, *(gpu.uuid for gpu in GPUS)]
    assert sorted(listed) == sorted(
        f"nvidia.com/{kind}={name}" for kind in (*KINDS.values(), REQUIRED) for name in names
    )


def test_a_restarted_docker_container_has_the_same_loader_cache(forky: Host) -> None:
    starter = RUNTIMES["docker"]
    create = f"docker create --network none --device nvidia.com/gpu=0 {starter.image}"
    sums = forky.run(
        f"""id=$({create} sh -c 'md5sum </etc/ld.so.cache')
        for _ in 1 2 3; do docker start --attach $id; done
        docker rm $id >/dev/null"""
    )
    assert len(sums.splitlines()) == 3
    assert len(set(sums.splitlines())) == 1


@pytest.mark.usefixtures("real_nodes")
def test_the_daemons_page_lists_docker_containers_until_they_end(forky: Host, tmp_path: Path) -> None:
    run = "docker run --network none --detach --env SECRET=hunter2"
    with daemon_page(tmp_path, forky, "/run/docker.sock") as page:
        page.comes_to([])
        forky.run(f"{run} --name web --device nvidia.com/gpu=0 {DEBIAN_IMAGE} sleep 600")
        page.comes_to(["container web (Docker)"])
        assert page.users(1) == []
        forky.run("docker rm --force web")
        page.comes_to([])
