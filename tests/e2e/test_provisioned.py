"""The provisioned parts work: the hosts run containers with CDI devices, and the images differ.

The tests write the specs without cdigen, so that a failed test shows a fault of a part.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, MACHINE, REDHAT_IMAGE, Host, running_host
from support.hosts.nvidia_kernel import Gpu, Node, control_nodes, example_gpus, write_kernel_side
from support.provisioning.parts import PARTS

pytestmark = pytest.mark.e2e

GPUS = example_gpus(2)
DRIVER_VERSION = "550.163.01"
MULTIARCH = "/usr/lib/x86_64-linux-gnu"
IMAGES = (DEBIAN_IMAGE, REDHAT_IMAGE)
LIBRARY_FOLDER = {DEBIAN_IMAGE: MULTIARCH, REDHAT_IMAGE: "/usr/lib64"}

# Paths of a few files of the Debian 13 driver packages, and the names that the dynamic loader searches.
DRIVER_LIBRARIES = {
    f"{MULTIARCH}/nvidia/current/libGLX_nvidia.so.{DRIVER_VERSION}": "libGLX_nvidia.so.0",
    f"{MULTIARCH}/nvidia/current/libcuda.so.{DRIVER_VERSION}": "libcuda.so.1",
    f"{MULTIARCH}/nvidia/current/libnvidia-ml.so.{DRIVER_VERSION}": "libnvidia-ml.so.1",
    f"{MULTIARCH}/libnvidia-glcore.so.{DRIVER_VERSION}": f"libnvidia-glcore.so.{DRIVER_VERSION}",
    f"{MULTIARCH}/libnvidia-glsi.so.{DRIVER_VERSION}": f"libnvidia-glsi.so.{DRIVER_VERSION}",
    f"{MULTIARCH}/libnvidia-gpucomp.so.{DRIVER_VERSION}": f"libnvidia-gpucomp.so.{DRIVER_VERSION}",
    f"{MULTIARCH}/libnvidia-tls.so.{DRIVER_VERSION}": f"libnvidia-tls.so.{DRIVER_VERSION}",
}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the kernel's files of two GPUs."""
    folder = tmp_path_factory.mktemp("state")
    write_kernel_side(folder, GPUS)
    return folder


@pytest.fixture(scope="module")
def debian_13(driver_tree: Path, images: Path, state: Path) -> Iterator[Host]:
    with running_host(driver_tree, images=images, state=state) as host:
        yield host


@pytest.fixture(scope="module")
def machine(images: Path, state: Path) -> Iterator[Host]:
    with running_host(MACHINE, images=images, state=state) as host:
        yield host


@pytest.fixture(params=["debian_13", "machine"])
def host(request: pytest.FixtureRequest, cache: Path) -> Host:  # noqa: ARG001 - both hosts need it
    """Return each of the hosts, with a spec for its GPUs' nodes."""
    host: Host = request.getfixturevalue(request.param)
    host.put("/etc/cdi/nodes.json", nodes_spec(GPUS))
    return host


def nodes_spec(gpus: tuple[Gpu, ...]) -> str:
    """Return a minimal spec with the nodes of each GPU and the control nodes."""
    return json.dumps(
        {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": [{"name": str(gpu.minor), "containerEdits": node_edits(gpu.nodes)} for gpu in gpus],
            "containerEdits": node_edits(control_nodes()),
        }
    )


def node_edits(nodes: tuple[Node, ...]) -> dict[str, list[dict[str, str]]]:
    return {"deviceNodes": [{"path": node.path} for node in nodes]}


def driver_spec(library_folder: str) -> str:
    """Return a spec that mounts a few files of the Debian 13 driver into an image's library folder."""
    files = {path: f"{library_folder}/{name}" for path, name in DRIVER_LIBRARIES.items()}
    files["/usr/lib/nvidia/current/nvidia-smi"] = "/usr/bin/nvidia-smi"
    mounts = [
        {"hostPath": source, "containerPath": target, "type": "bind", "options": ["ro", "bind"]}
        for source, target in files.items()
    ]
    return json.dumps(
        {
            "cdiVersion": "0.5.0",
            "kind": "example.com/driver",
            "devices": [{"name": "all", "containerEdits": {"mounts": mounts}}],
        }
    )


def missing(cache: Path, *options: str) -> str:
    """Return the output of `provision --check` for the folder CACHE."""
    command = (f"{Path(__file__).with_name('provision')}", "--check", *options, f"{cache}")
    return subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True).stdout


def test_an_optional_part_is_checked_only_on_request(tmp_path: Path) -> None:
    everything = missing(tmp_path)
    assert "driver-trixie" in everything
    assert "kubernetes" not in everything
    alone = missing(tmp_path, "--part", "kubernetes")
    assert "kubernetes" in alone
    assert "driver-trixie" not in alone


def test_a_part_is_checked_with_the_parts_that_it_needs(tmp_path: Path) -> None:
    output = missing(tmp_path, "--part", "image-redhat.tar").removesuffix(" (run tests/e2e/provision)\n")
    # The output may also contain Debian packages that this machine lacks.
    named = set(output.partition(": ")[2].split(", ")) & {part.name for part in PARTS}
    assert named == {"dlopen-all", "image-debian.tar", "image-redhat.tar"}


@pytest.mark.parametrize("image", IMAGES)
def test_a_container_has_its_gpu_and_no_other_gpu(host: Host, image: str) -> None:
    gpu = GPUS[1]
    nodes = host.gpu_nodes(image, f"nvidia.com/gpu={gpu.minor}")
    assert nodes == {*gpu.nodes, *control_nodes()}


@pytest.mark.parametrize("image", IMAGES)
def test_the_real_driver_loads_in_both_images(debian_13: Host, image: str) -> None:
    folder = LIBRARY_FOLDER[image]
    debian_13.put("/etc/cdi/driver.json", driver_spec(folder))
    names = sorted(DRIVER_LIBRARIES.values())
    run = f"podman run --rm --device example.com/driver=all {image}"

    loaded = debian_13.run(f"{run} dlopen-all {' '.join(names)}")
    assert loaded.splitlines() == [f"ok {folder}/{name}" for name in names]

    answer = debian_13.attempt(f"{run} nvidia-smi")
    assert "couldn't communicate with the NVIDIA driver" in answer.stdout


def test_dlopen_all_prints_the_reason_if_a_library_cannot_be_loaded(debian_13: Host) -> None:
    answer = debian_13.attempt(f"podman run --rm {DEBIAN_IMAGE} dlopen-all libX11.so.6 libcuda.so.1")
    loaded, failed = answer.stdout.splitlines()
    assert answer.returncode == 1
    assert loaded.startswith(f"ok {MULTIARCH}/libX11.so.6.")
    assert failed.startswith("fail libcuda.so.1: cannot open shared object file")


@pytest.mark.parametrize(
    ("folder", "is_searched"),
    [("/usr/lib64", True), ("/usr/lib", False), (MULTIARCH, False), ("/usr/local/lib64", False)],
)
def test_the_loader_of_the_redhat_image_searches_only_lib64(
    debian_13: Host, folder: str, *, is_searched: bool
) -> None:
    script = f"mkdir -p {folder} && cp /usr/lib64/libm.so.6 {folder}/libcopy.so && dlopen-all libcopy.so"
    answer = debian_13.attempt(f"podman run --rm {REDHAT_IMAGE} sh -c '{script}'")
    assert answer.stdout.startswith("ok " if is_searched else "fail libcopy.so: cannot open"), answer.stderr


def test_the_first_command_of_a_host_runs_inside_the_host(driver_tree: Path, images: Path) -> None:
    for _ in range(10):  # if a host is reported ready too soon, some of these runs fail
        with running_host(driver_tree, images=images) as host:
            host.run("test -e /var/lib/containers/images/overlay-images/images.json")


def test_a_host_leaves_no_files_processes_or_mounts_on_the_machine(
    driver_tree: Path, images: Path, state: Path
) -> None:
    with running_host(driver_tree, images=images, state=state) as host:
        host.put("/etc/cdi/trace.json", "{}")
        host.put("/var/run/cdi/trace.json", "{}")
        container = host.run(f"podman run --detach {DEBIAN_IMAGE} sleep 1000").strip()
        sleepers = host.run("pgrep --count sleep").strip()
    assert sleepers == "1"
    assert not list(Path("/sys/fs/cgroup").glob(f"**/libpod-{container}"))
    assert not (driver_tree / "etc/cdi/trace.json").exists()
    assert not Path("/var/run/cdi/trace.json").exists()
    assert not Path(f"/proc/{host.pid}").exists()
    assert "cdigen-host-" not in Path("/proc/self/mounts").read_text()


def test_a_host_has_the_files_that_were_written_into_its_tree(host_root: Path, images: Path) -> None:
    write_kernel_side(host_root, GPUS)
    spec = host_root / "run/cdi/nodes.json"
    spec.parent.mkdir()
    spec.write_text(nodes_spec(GPUS))
    with running_host(host_root, images=images) as host:
        assert host.gpu_nodes(DEBIAN_IMAGE, "nvidia.com/gpu=0") == {*GPUS[0].nodes, *control_nodes()}
