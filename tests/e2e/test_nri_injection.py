"""`cdigen nri` adds CDI devices to containers of a real containerd, which injects these devices.

The tests send the requests of a kubelet. containerd is from Debian's next release (NRI 0.8 in 2026-11). Its
version is printed.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.containers.containerd_host import Containerd, eventually
from support.containers.cri_client import CriError
from support.nri.containerd_plugins import (
    DEAD,
    DEVICES,
    INJECTED_ANNOTATION,
    KIND,
    LIBRARY,
    Plugin,
    numbers,
    running_plugin,
    write_inventory,
    write_specs,
)
from support.nri.host import UUID

from cdigen.device_users.cgroups import running_containers

pytestmark = pytest.mark.e2e

OWN, NVIDIA, NODERESOURCE = "devices.cdigen.dev", "nvidia.cdi.k8s.io", "cdi-devices.noderesource.dev"
GPU0, GPU1 = numbers("/dev/nvidia0"), numbers("/dev/nvidia1")


@pytest.fixture(scope="module")
def plugin(containerd: Containerd) -> Iterator[Plugin]:
    """Run the plugin with a policy that permits all sources in the namespace ml."""
    with running_plugin(containerd) as plugin:
        yield plugin


@pytest.fixture
def host(containerd: Containerd, plugin: Plugin) -> Iterator[Containerd]:
    """Return the containerd with its specs and the plugin; remove all containers after the test."""
    assert plugin.is_registered()
    yield containerd
    containerd.remove_all()


@pytest.mark.parametrize("value", [*DEVICES, "0,1", f"1,{UUID}"])
def test_a_container_gets_the_devices_of_its_environment(host: Containerd, value: str) -> None:
    nodes = numbers(*(node for token in value.split(",") for node in DEVICES[token]))
    container = host.container(f"NVIDIA_VISIBLE_DEVICES={value}")
    assert container.nodes() == nodes
    assert container.sh(f"cat {LIBRARY}") == "the driver\n"


@pytest.mark.parametrize(
    "annotations",
    [
        {OWN: f"{KIND}=1"},
        {f"{OWN}/pod": f"[{KIND}=1]"},
        {f"{OWN}/container.main": f"{KIND}=1", f"{OWN}/pod": f"{KIND}=all"},
        {NVIDIA: f"{KIND}=1"},
        {f"{NVIDIA}/container.main": f"{KIND}=1", f"{NVIDIA}/container.other": f"{KIND}=0"},
        {NODERESOURCE: f"- {KIND}=1\n"},
        {f"{NODERESOURCE}/container.main": f"[{KIND}=1]"},
        {"cdi-devices.nri.io/pod": f"[{KIND}=1]"},
    ],
    ids=lambda annotations: next(iter(annotations)),
)
def test_a_container_gets_the_devices_of_its_pods_annotations(
    host: Containerd, annotations: dict[str, str]
) -> None:
    assert host.container("NVIDIA_VISIBLE_DEVICES=0", annotations=annotations).nodes() == GPU1


def test_a_container_can_read_from_its_gpu_and_not_from_another_gpu(host: Containerd) -> None:
    container = host.container("NVIDIA_VISIBLE_DEVICES=0")
    assert container.sh("head -c 7 /dev/nvidia0 | wc -c") == "7\n"
    assert "No such file" in container.sh("head -c 7 /dev/nvidia1")


def test_the_cgroup_permits_only_the_gpu_of_the_container(host: Containerd) -> None:
    """The kernel first checks the cgroup, and then searches the driver. This machine lacks the driver."""
    write_specs(host.specs, {"dead": (DEAD,)})
    container = host.container("NVIDIA_VISIBLE_DEVICES=dead")
    write_specs(host.specs)
    assert container.sh(f"cat {DEAD}") == f"cat: can't open '{DEAD}': No such device or address\n"
    other = "mknod /tmp/other c 195 9 && cat /tmp/other"
    assert container.sh(other) == "cat: can't open '/tmp/other': Operation not permitted\n"


def test_an_annotation_lists_the_injected_devices(host: Containerd) -> None:
    container = host.container("NVIDIA_VISIBLE_DEVICES=0,1")
    assert container.spec()["annotations"][INJECTED_ANNOTATION] == f"{KIND}=0,{KIND}=1"


def test_the_status_lists_an_injected_container_until_its_removal(host: Containerd, plugin: Plugin) -> None:
    container = host.container("NVIDIA_VISIBLE_DEVICES=0,1")
    host.container()

    def listed() -> list[tuple[str, list[str]]]:
        return [(row["id"], row["devices"]) for row in plugin.status()["injected_containers"]]

    eventually(
        lambda: listed() == [(container.id, [f"{KIND}=0", f"{KIND}=1"])] or None,
        "the list of injected containers",
    )
    alive = running_containers()
    assert alive is None or container.id in alive
    host.remove_all()
    eventually(lambda: listed() == [] or None, "the list without the container")
    assert container.id not in (running_containers() or ())


@pytest.mark.parametrize("env", [(), ("NVIDIA_VISIBLE_DEVICES=void",), ("NVIDIA_VISIBLE_DEVICES=",)])
def test_a_container_without_a_request_is_unchanged(host: Containerd, env: tuple[str, ...]) -> None:
    container = host.container(*env)
    assert container.nodes() == {}
    assert INJECTED_ANNOTATION not in container.spec()["annotations"]
    assert [f"{key}={value}" for key, value in container.environment().items() if key[:2] == "NV"] == [*env]


def test_no_request_is_permitted_in_a_namespace_without_a_rule(host: Containerd) -> None:
    annotations = {OWN: f"{KIND}=0"}
    container = host.container("NVIDIA_VISIBLE_DEVICES=all", namespace="default", annotations=annotations)
    assert container.nodes() == {}


@pytest.mark.parametrize(
    ("env", "annotations", "reason"),
    [
        ("NVIDIA_VISIBLE_DEVICES=7", {}, "NVIDIA_VISIBLE_DEVICES requests '7': nvidia.com/gpu has 0, 1,"),
        ("A=B", {OWN: f"{KIND}=7"}, f"annotation {OWN} requests '{KIND}=7': nvidia.com/gpu has 0, 1,"),
        ("A=B", {NVIDIA: "gpu0"}, f"annotation {NVIDIA} contains 'gpu0', which is not of the form"),
        ("A=B", {NVIDIA: "nvidia.com/management=all"}, "no rule in nri.management_namespaces permits"),
        ("NVIDIA_REQUIRE_CUDA=cuda>=99.0", {OWN: f"{KIND}=0"}, "NVIDIA_REQUIRE_CUDA='cuda>=99.0' is not met"),
        ("NVIDIA_REQUIRE_CUDA=cuda>=", {OWN: f"{KIND}=0"}, "NVIDIA_REQUIRE_CUDA cannot be parsed"),
    ],
)
def test_the_error_of_a_refused_container_has_the_reason(
    host: Containerd, plugin: Plugin, env: str, annotations: dict[str, str], reason: str
) -> None:
    with pytest.raises(CriError) as refused:
        host.container(env, annotations=annotations)
    assert reason in str(refused.value)
    assert plugin.is_registered()


def test_a_container_with_a_met_requirement_starts(host: Containerd) -> None:
    container = host.container(
        "NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_REQUIRE_CUDA=cuda>=12.0 brand=tesla,driver>=535,driver<536"
    )
    assert container.nodes() == GPU0


def test_cdi_devices_of_the_kubelet_are_not_injected_again(host: Containerd) -> None:
    """The plugin ignores the image's variable if a device plugin or DRA has selected devices."""
    container = host.container("NVIDIA_VISIBLE_DEVICES=all", cdi_devices=[{"name": f"{KIND}=0"}])
    assert container.nodes() == GPU0
    assert INJECTED_ANNOTATION not in container.spec()["annotations"]


def test_a_container_with_a_node_of_a_device_plugin_gets_no_other_nodes(host: Containerd) -> None:
    node = {"container_path": "/dev/nvidia1", "host_path": "/dev/null", "permissions": "rw"}
    container = host.container("NVIDIA_VISIBLE_DEVICES=all", devices=[node])
    assert container.nodes() == GPU1


def test_ten_containers_that_start_at_once_get_all_gpus(host: Containerd) -> None:
    pods = [host.pod() for _ in range(10)]
    with ThreadPoolExecutor(len(pods)) as threads:
        containers = list(threads.map(lambda pod: pod.container("NVIDIA_VISIBLE_DEVICES=all"), pods))
    assert [container.nodes() for container in containers] == [GPU0 | GPU1] * len(pods)


def test_a_response_longer_than_the_buffer_of_the_runtime_arrives_complete(host: Containerd) -> None:
    """The runtime (in Go) reads the first frame with a buffer of 4,096 bytes. This response has 50,000."""
    names = [f"GPU-{number:03}-{'x' * 190}" for number in range(250)]
    write_specs(host.specs, {**dict.fromkeys(names, ("/dev/nvidia1",)), **DEVICES})
    container = host.container(annotations={OWN: ",".join(f"{KIND}={name}" for name in names)})
    assert container.nodes() == GPU1
    write_specs(host.specs)


def test_the_next_container_gets_devices_of_the_changed_specs(host: Containerd) -> None:
    write_specs(host.specs, {"0": ("/dev/nvidia1",), "new": ("/dev/nvidia0",)})
    assert host.container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU1
    assert host.container("NVIDIA_VISIBLE_DEVICES=new").nodes() == GPU0
    write_specs(host.specs)
    assert host.container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU0
    with pytest.raises(CriError, match="requests 'new'"):
        host.container("NVIDIA_VISIBLE_DEVICES=new")


def test_a_container_is_refused_after_the_removal_of_its_spec(host: Containerd) -> None:
    (host.specs / "nvidia.com-gpu.json").unlink()
    with pytest.raises(CriError, match=r"requests 'all': there are no specs in"):
        host.container("NVIDIA_VISIBLE_DEVICES=all")
    write_specs(host.specs)
    assert host.container("NVIDIA_VISIBLE_DEVICES=all").nodes() == GPU0 | GPU1


def test_containers_get_their_gpu_while_the_specs_are_rewritten(host: Containerd) -> None:
    """The plugin selects names of devices. The runtime then resolves these names again."""
    pods = [host.pod() for _ in range(4)]
    with ThreadPoolExecutor(len(pods)) as threads:
        made = threads.map(lambda pod: pod.container("NVIDIA_VISIBLE_DEVICES=all"), pods)
        for _ in range(200):
            write_specs(host.specs)
        assert [container.nodes() for container in made] == [GPU0 | GPU1] * len(pods)


def test_requirements_need_the_current_inventory_of_the_daemon(host: Containerd, plugin: Plugin) -> None:
    variables = ("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_REQUIRE_CUDA=cuda>=11.0")
    (host.folder / "daemon/inventory.json").unlink()
    eventually(lambda: refusal(host, *variables) or None, "the inventory is missing")
    assert "NVIDIA_REQUIRE_CUDA cannot be checked: there is no inventory" in refusal(host, *variables)
    write_inventory(host)
    eventually(lambda: not refusal(host, *variables) or None, "the inventory is found")
    assert plugin.is_registered()


def test_decisions_are_counted_and_logged(host: Containerd, plugin: Plugin) -> None:
    rows = [f'cdigen_nri_containers_total{{outcome="{name}"}}' for name in ("inject", "refuse", "served")]
    before = [plugin.metric(row) for row in rows]
    container = host.container("NVIDIA_VISIBLE_DEVICES=0")
    refusal(host, "NVIDIA_VISIBLE_DEVICES=nonsense")
    host.container("NVIDIA_VISIBLE_DEVICES=all", cdi_devices=[{"name": f"{KIND}=0"}])
    assert [plugin.metric(row) - count for row, count in zip(rows, before, strict=True)] == [1, 1, 1]
    lines = eventually(
        lambda: [row for row in plugin.log if row.get("pod") == container.pod.name] or None,
        "the log has the container",
    )
    assert lines[0]["devices"] == f"{KIND}=0"


def test_the_status_has_the_runtime(host: Containerd, plugin: Plugin) -> None:
    status = plugin.status()
    assert status["runtime"]["name"] == "containerd"
    assert status["runtime"]["version"] == host.version()
    assert status["runtime"]["cdi"] == "injects"
    assert plugin.metric("cdigen_nri_registered") == 1


def refusal(host: Containerd, *env: str) -> str:
    """Return the error of a container with ENV, or "" if the container starts."""
    try:
        host.container(*env)
    except CriError as error:
        return str(error)
    return ""
