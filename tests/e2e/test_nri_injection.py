"""`cdigen nri` beside a real containerd that injects CDI devices, driven as by a kubelet: who gets what.

The containerd is that of Debian's next release, with NRI 0.8 in 2026-11; its version is printed.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.containers.containerd_host import Containerd, eventually
from support.containers.cri_client import CriError
from support.nri.containerd_plugins import (
    DEAD,
    DEVICES,
    KIND,
    LIBRARY,
    MARK,
    Plugin,
    numbers,
    running_plugin,
    write_inventory,
    write_specs,
)
from support.nri.host import UUID

from cdigen.holders.cgroups import living

pytestmark = pytest.mark.e2e

OWN, NVIDIA, NODERESOURCE = "devices.cdigen.dev", "nvidia.cdi.k8s.io", "cdi-devices.noderesource.dev"
GPU0, GPU1 = numbers("/dev/nvidia0"), numbers("/dev/nvidia1")


@pytest.fixture(scope="module")
def plugin(containerd: Containerd) -> Iterator[Plugin]:
    """Run the plugin, for which everything counts in the namespace ml."""
    with running_plugin(containerd) as plugin:
        yield plugin


@pytest.fixture
def host(containerd: Containerd, plugin: Plugin) -> Iterator[Containerd]:
    """Return containerd with specs and plugin; nothing is left of a test."""
    assert plugin.is_registered()
    yield containerd
    containerd.remove_all()


@pytest.mark.parametrize("asked", [*DEVICES, "0,1", f"1,{UUID}"])
def test_a_container_gets_what_its_environment_asks_for(host: Containerd, asked: str) -> None:
    nodes = numbers(*(node for token in asked.split(",") for node in DEVICES[token]))
    container = host.container(f"NVIDIA_VISIBLE_DEVICES={asked}")
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
def test_a_container_gets_what_its_pods_annotations_ask_for(
    host: Containerd, annotations: dict[str, str]
) -> None:
    assert host.container("NVIDIA_VISIBLE_DEVICES=0", annotations=annotations).nodes() == GPU1


def test_a_container_can_read_from_its_gpu_and_not_from_another(host: Containerd) -> None:
    container = host.container("NVIDIA_VISIBLE_DEVICES=0")
    assert container.sh("head -c 7 /dev/nvidia0 | wc -c") == "7\n"
    assert "No such file" in container.sh("head -c 7 /dev/nvidia1")


def test_the_cgroup_lets_a_container_use_its_gpu_and_no_other(host: Containerd) -> None:
    """It asks the cgroup first, then for the driver, which is not here."""
    write_specs(host.specs, {"dead": (DEAD,)})
    container = host.container("NVIDIA_VISIBLE_DEVICES=dead")
    write_specs(host.specs)
    assert container.sh(f"cat {DEAD}") == f"cat: can't open '{DEAD}': No such device or address\n"
    other = "mknod /tmp/other c 195 9 && cat /tmp/other"
    assert container.sh(other) == "cat: can't open '/tmp/other': Operation not permitted\n"


def test_what_was_injected_is_written_on_the_container(host: Containerd) -> None:
    container = host.container("NVIDIA_VISIBLE_DEVICES=0,1")
    assert container.spec()["annotations"][MARK] == f"{KIND}=0,{KIND}=1"


def test_the_plugins_book_has_who_was_given_devices_until_it_is_removed(
    host: Containerd, plugin: Plugin
) -> None:
    container = host.container("NVIDIA_VISIBLE_DEVICES=0,1")
    host.container()

    def booked() -> list[tuple[str, list[str]]]:
        return [(row["id"], row["devices"]) for row in plugin.status()["holders"]]

    eventually(lambda: booked() == [(container.id, [f"{KIND}=0", f"{KIND}=1"])] or None, "the book")
    alive = living()
    assert alive is None or container.id in alive
    host.remove_all()
    eventually(lambda: booked() == [] or None, "the book without it")
    assert container.id not in (living() or ())


@pytest.mark.parametrize("env", [(), ("NVIDIA_VISIBLE_DEVICES=void",), ("NVIDIA_VISIBLE_DEVICES=",)])
def test_a_container_that_asks_for_nothing_is_left_as_it_is(host: Containerd, env: tuple[str, ...]) -> None:
    container = host.container(*env)
    assert container.nodes() == {}
    assert MARK not in container.spec()["annotations"]
    assert [f"{key}={value}" for key, value in container.environment().items() if key[:2] == "NV"] == [*env]


def test_nothing_counts_in_a_namespace_that_is_not_listed(host: Containerd) -> None:
    annotations = {OWN: f"{KIND}=0"}
    container = host.container("NVIDIA_VISIBLE_DEVICES=all", namespace="default", annotations=annotations)
    assert container.nodes() == {}


@pytest.mark.parametrize(
    ("env", "annotations", "reason"),
    [
        ("NVIDIA_VISIBLE_DEVICES=7", {}, "NVIDIA_VISIBLE_DEVICES asks for '7': nvidia.com/gpu has 0, 1,"),
        ("A=B", {OWN: f"{KIND}=7"}, f"annotation {OWN} asks for '{KIND}=7': nvidia.com/gpu has 0, 1,"),
        ("A=B", {NVIDIA: "gpu0"}, f"annotation {NVIDIA} holds 'gpu0', which is not a device name"),
        ("A=B", {NVIDIA: "nvidia.com/management=all"}, "which the policy does not allow in the namespace"),
        ("NVIDIA_REQUIRE_CUDA=cuda>=99.0", {OWN: f"{KIND}=0"}, "NVIDIA_REQUIRE_CUDA='cuda>=99.0' is not met"),
        ("NVIDIA_REQUIRE_CUDA=cuda>=", {OWN: f"{KIND}=0"}, "NVIDIA_REQUIRE_CUDA cannot be read"),
    ],
)
def test_a_user_sees_why_a_container_is_refused(
    host: Containerd, plugin: Plugin, env: str, annotations: dict[str, str], reason: str
) -> None:
    with pytest.raises(CriError) as refused:
        host.container(env, annotations=annotations)
    assert reason in str(refused.value)
    assert plugin.is_registered()


def test_a_requirement_that_the_driver_meets_lets_the_container_start(host: Containerd) -> None:
    container = host.container(
        "NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_REQUIRE_CUDA=cuda>=12.0 brand=tesla,driver>=535,driver<536"
    )
    assert container.nodes() == GPU0


def test_what_kubelet_asks_for_is_not_injected_again(host: Containerd) -> None:
    """So a device plugin, or DRA, and the image's own visible do not add up."""
    container = host.container("NVIDIA_VISIBLE_DEVICES=all", cdi_devices=[{"name": f"{KIND}=0"}])
    assert container.nodes() == GPU0
    assert MARK not in container.spec()["annotations"]


def test_a_container_with_a_node_of_a_device_plugin_gets_no_more(host: Containerd) -> None:
    node = {"container_path": "/dev/nvidia1", "host_path": "/dev/null", "permissions": "rw"}
    container = host.container("NVIDIA_VISIBLE_DEVICES=all", devices=[node])
    assert container.nodes() == GPU1


def test_ten_containers_at_once_all_get_their_gpu(host: Containerd) -> None:
    pods = [host.pod() for _ in range(10)]
    with ThreadPoolExecutor(len(pods)) as threads:
        containers = list(threads.map(lambda pod: pod.container("NVIDIA_VISIBLE_DEVICES=all"), pods))
    assert [container.nodes() for container in containers] == [GPU0 | GPU1] * len(pods)


def test_an_answer_longer_than_a_frame_arrives_whole(host: Containerd) -> None:
    """Go reads the first frame of an answer through a buffer of 4,096 bytes; this one has 50,000."""
    names = [f"GPU-{number:03}-{'x' * 190}" for number in range(250)]
    write_specs(host.specs, {**dict.fromkeys(names, ("/dev/nvidia1",)), **DEVICES})
    container = host.container(annotations={OWN: ",".join(f"{KIND}={name}" for name in names)})
    assert container.nodes() == GPU1
    write_specs(host.specs)


def test_the_next_container_gets_what_the_specs_say_now(host: Containerd) -> None:
    write_specs(host.specs, {"0": ("/dev/nvidia1",), "new": ("/dev/nvidia0",)})
    assert host.container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU1
    assert host.container("NVIDIA_VISIBLE_DEVICES=new").nodes() == GPU0
    write_specs(host.specs)
    assert host.container("NVIDIA_VISIBLE_DEVICES=0").nodes() == GPU0
    with pytest.raises(CriError, match="asks for 'new'"):
        host.container("NVIDIA_VISIBLE_DEVICES=new")


def test_a_container_is_refused_whose_spec_was_withdrawn(host: Containerd) -> None:
    (host.specs / "nvidia.com-gpu.json").unlink()
    with pytest.raises(CriError, match=r"asks for 'all': there are no specs in"):
        host.container("NVIDIA_VISIBLE_DEVICES=all")
    write_specs(host.specs)
    assert host.container("NVIDIA_VISIBLE_DEVICES=all").nodes() == GPU0 | GPU1


def test_specs_rewritten_all_the_time_cost_no_container_its_gpu(host: Containerd) -> None:
    """Each name that the plugin chooses is resolved a second time, by the runtime."""
    pods = [host.pod() for _ in range(4)]
    with ThreadPoolExecutor(len(pods)) as threads:
        made = threads.map(lambda pod: pod.container("NVIDIA_VISIBLE_DEVICES=all"), pods)
        for _ in range(200):
            write_specs(host.specs)
        assert [container.nodes() for container in made] == [GPU0 | GPU1] * len(pods)


def test_the_inventory_of_the_daemon_counts_as_it_is_now(host: Containerd, plugin: Plugin) -> None:
    visible = ("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_REQUIRE_CUDA=cuda>=11.0")
    (host.folder / "daemon/inventory.json").unlink()
    eventually(lambda: refusal(host, *visible) or None, "the inventory is missed")
    assert "NVIDIA_REQUIRE_CUDA cannot be judged: there is no inventory" in refusal(host, *visible)
    write_inventory(host)
    eventually(lambda: not refusal(host, *visible) or None, "the inventory is found")
    assert plugin.is_registered()


def test_what_becomes_of_containers_is_counted_shown_and_logged(host: Containerd, plugin: Plugin) -> None:
    rows = [f'cdigen_nri_containers_total{{outcome="{name}"}}' for name in ("inject", "refuse", "served")]
    before = [plugin.metric(row) for row in rows]
    given = host.container("NVIDIA_VISIBLE_DEVICES=0")
    refusal(host, "NVIDIA_VISIBLE_DEVICES=nonsense")
    host.container("NVIDIA_VISIBLE_DEVICES=all", cdi_devices=[{"name": f"{KIND}=0"}])
    assert [plugin.metric(row) - count for row, count in zip(rows, before, strict=True)] == [1, 1, 1]
    told = eventually(
        lambda: [row for row in plugin.log if row.get("pod") == given.pod.name] or None,
        "the log says it",
    )
    assert told[0]["devices"] == f"{KIND}=0"


def test_the_status_says_which_runtime_it_is(host: Containerd, plugin: Plugin) -> None:
    status = plugin.status()
    assert status["runtime"]["name"] == "containerd"
    assert status["runtime"]["version"] == host.version()
    assert status["runtime"]["cdi"] == "injects"
    assert plugin.metric("cdigen_nri_registered") == 1


def refusal(host: Containerd, *env: str) -> str:
    """Return why a container with ENV is refused; empty where it is not."""
    try:
        host.container(*env)
    except CriError as error:
        return str(error)
    return ""
