"""`podman run --device` starts containers with the specs of `cdigen generate --write` for Debian 13's driver.

The host has Debian's driver packages, podman and runc, and real device nodes. The test writes the files of
/proc and /sys. Only the GPU is missing, so nvidia-smi starts and cannot communicate with the driver.
"""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, MACHINE, REDHAT_IMAGE, Host, running_host
from support.hosts.nvidia_kernel import Node, control_nodes, example_gpus, write_kernel_side
from support.own_trees import copy_tree
from support.processes import succeeded

pytestmark = pytest.mark.e2e

GPUS = example_gpus(2)
VERSION = "550.163.01"
SPEC = "run/cdi/nvidia.com-gpu.json"
FOLDERS = {DEBIAN_IMAGE: "/usr/lib/x86_64-linux-gnu", REDHAT_IMAGE: "/usr/lib64"}
IMAGES = tuple(FOLDERS)

# The libraries that programs and the driver's own libraries load.
NAMES = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-opencl.so.1",
    "libnvidia-allocator.so.1",
    "libnvcuvid.so.1",
    "libnvidia-encode.so.1",
    "libGLX_nvidia.so.0",
    f"libnvidia-glcore.so.{VERSION}",
    f"libnvidia-eglcore.so.{VERSION}",
    "libnvoptix.so.1",
)

# Other names of files in NAMES. A second process loads them, because a process loads each file only once.
ALIASES = ("libcuda.so", f"libnvidia-nvvm.so.{VERSION}", "libGLX_indirect.so.0", "libnvidia-ml.so")

REQUESTS: dict[str, set[Node]] = {
    "0": {*GPUS[0].nodes},
    "1": {*GPUS[1].nodes},
    GPUS[1].uuid: {*GPUS[1].nodes},
    "all": {*GPUS[0].nodes, *GPUS[1].nodes},
    "none": set(),
}


def cdigen(*arguments: str | Path) -> str:
    """Run the command, which must succeed, and return its standard output."""
    command = [sys.executable, "-m", "cdigen", *map(str, arguments)]
    return succeeded(command)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory, driver_tree: Path) -> Path:
    """Return a copy of the host with the kernel's files of two GPUs and cdigen's specs."""
    folder = tmp_path_factory.mktemp("state")
    root = folder / "root"
    copy_tree(driver_tree, root)
    write_kernel_side(root, GPUS)
    config = folder / "config.yaml"
    config.write_text("nri: {management_namespaces: [gpu-operator]}\n")
    cdigen("generate", "--root", root, "--write", "--config", config)
    return root


@pytest.fixture(scope="module")
def debian_13(driver_tree: Path, images: Path, state: Path) -> Iterator[Host]:
    with running_host(driver_tree, images=images, state=state) as host:
        yield host


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("device", REQUESTS)
def test_a_container_has_only_the_requested_nodes_with_their_major_and_minor_numbers(
    debian_13: Host, image: str, device: str
) -> None:
    assert debian_13.gpu_nodes(image, f"nvidia.com/gpu={device}") == {*REQUESTS[device], *control_nodes()}


def test_a_container_has_udevs_names_of_the_requested_gpu(debian_13: Host) -> None:
    command = "find /dev/dri/by-path -type c -exec stat -c '%n %T' {} +"
    listed = debian_13.run(f"podman run --rm --device nvidia.com/gpu=1 {DEBIAN_IMAGE} {command}")
    gpu = GPUS[1]
    assert sorted(listed.splitlines()) == [
        f"/dev/dri/by-path/pci-{gpu.bdf}-card {gpu.card:x}",
        f"/dev/dri/by-path/pci-{gpu.bdf}-render {gpu.render:x}",
    ]


def test_the_management_kind_injects_all_nodes_and_files_of_the_driver(debian_13: Host) -> None:
    device = "management.nvidia.com/gpu=all"
    drivers = {node for gpu in GPUS for node in gpu.nodes if node.path.startswith("/dev/nvidia")}
    assert debian_13.gpu_nodes(DEBIAN_IMAGE, device) == {*drivers, *control_nodes()}
    answer = debian_13.attempt(f"podman run --rm --device {device} {DEBIAN_IMAGE} nvidia-smi")
    assert "couldn't communicate with the NVIDIA driver" in answer.stdout


@pytest.mark.parametrize("image", IMAGES)
def test_every_library_loads_by_name_from_the_folder_that_the_image_searches(
    debian_13: Host, image: str
) -> None:
    run = f"podman run --rm --device nvidia.com/gpu=0 {image}"
    for names in (NAMES, ALIASES):
        loaded = debian_13.run(f"{run} dlopen-all {' '.join(names)}").splitlines()
        assert loaded == [f"ok {FOLDERS[image]}/{name}" for name in names]


@pytest.mark.parametrize("image", IMAGES)
def test_nvidia_smi_starts_and_cannot_communicate_with_the_driver(debian_13: Host, image: str) -> None:
    answer = debian_13.attempt(f"podman run --rm --device nvidia.com/gpu=all {image} nvidia-smi")
    assert "couldn't communicate with the NVIDIA driver" in answer.stdout


@pytest.mark.parametrize("image", IMAGES)
def test_every_mount_of_the_spec_is_read_only_in_the_container(
    debian_13: Host, state: Path, image: str
) -> None:
    spec = json.loads((state / SPEC).read_text())
    run = f"podman run --rm --device nvidia.com/gpu=0 {image}"
    rows = [line.split() for line in debian_13.run(f"{run} cat /proc/self/mountinfo").splitlines()]
    options = {row[4]: set(row[5].split(",")) for row in rows}
    targets = " ".join(mount["containerPath"] for mount in spec["containerEdits"]["mounts"])
    resolved = debian_13.run(f"{run} sh -c 'for path in {targets}; do readlink -f $path; done'")
    for path in resolved.splitlines():
        assert {"ro", "nosuid", "nodev"} <= options[path], path


@pytest.mark.parametrize("image", IMAGES)
def test_a_container_cannot_change_the_driver(debian_13: Host, image: str) -> None:
    script = f"echo spoilt > {FOLDERS[image]}/libcuda.so.1"
    answer = debian_13.attempt(
        f"podman run --rm --device nvidia.com/gpu=0 {image} sh -c {shlex.quote(script)}"
    )
    assert answer.returncode != 0
    assert "Read-only file system" in answer.stderr


def test_the_device_none_injects_the_driver_without_a_gpu(debian_13: Host) -> None:
    run = f"podman run --rm --device nvidia.com/gpu=none {DEBIAN_IMAGE}"
    assert debian_13.run(f"{run} dlopen-all libcuda.so.1").startswith("ok ")


def test_the_spec_sets_nvidia_visible_devices_to_void(debian_13: Host) -> None:
    run = f"podman run --rm --env NVIDIA_VISIBLE_DEVICES=all --device nvidia.com/gpu=0 {DEBIAN_IMAGE}"
    assert debian_13.run(f"{run} sh -c 'echo $NVIDIA_VISIBLE_DEVICES'") == "void\n"


@pytest.mark.parametrize("image", IMAGES)
def test_a_read_only_container_starts(debian_13: Host, image: str) -> None:
    run = f"podman run --rm --read-only --device nvidia.com/gpu=0 {image}"
    assert debian_13.run(f"{run} dlopen-all libcuda.so.1").startswith("ok ")


def test_the_machines_podman_starts_containers_with_the_files_of_a_driver_container(
    images: Path, driver_tree: Path, tmp_path: Path
) -> None:
    """`--driver-root` is the root of a driver container on this machine, which has podman 4.3."""
    kernel_side = tmp_path / "kernel-side"
    write_kernel_side(kernel_side, GPUS)
    python = shlex.quote(sys.executable)
    repository = Path(__file__).resolve().parents[2]
    with running_host(MACHINE, images=images, state=kernel_side) as host:
        # Only the kernel adds files to /proc/driver, so a tmpfs with the GPUs' entries is mounted over it.
        host.run(f"mount -t tmpfs none /proc/driver && cp -r {kernel_side}/proc/driver/nvidia /proc/driver/")
        host.run(f"cd {repository} && {python} -m cdigen generate --driver-root {driver_tree} --write")
        spec = json.loads(host.run("cat /var/run/cdi/nvidia.com-gpu.json"))
        run = f"podman run --rm --device nvidia.com/gpu=1 {DEBIAN_IMAGE}"
        loaded = host.run(f"{run} dlopen-all libcuda.so.1 libnvidia-ml.so.1").splitlines()
        nodes = host.gpu_nodes(DEBIAN_IMAGE, "nvidia.com/gpu=1")
    assert all(mount["hostPath"].startswith(f"{driver_tree}/") for mount in spec["containerEdits"]["mounts"])
    assert loaded == [f"ok {FOLDERS[DEBIAN_IMAGE]}/{name}" for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    assert {*control_nodes(), GPUS[1].nodes[0]} <= nodes
    assert GPUS[0].nodes[0] not in nodes
