"""`cdigen nri` below a real kubelet: who gets a GPU, what a user reads of a refusal, and what restarts cost.

Kubernetes is 1.20.2, containerd that of Debian's next release, 2.1.9 in 2026-11; both are printed.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.cluster.node import Node, running_node
from support.cluster.pods import WAIT, Pod, pod_manifest
from support.containers.containerd_host import RELEASES, eventually
from support.nri.containerd_plugins import (
    DEVICES,
    KIND,
    LIBRARY,
    Plugin,
    numbers,
    running_plugin,
    write_inventory,
    write_specs,
)
from support.nri.host import UUID
from support.waiting import HOST_PATIENCE_S

pytestmark = pytest.mark.e2e

OWN = "devices.cdigen.dev"
GPU0, GPU1 = numbers("/dev/nvidia0"), numbers("/dev/nvidia1")
WISH = "NVIDIA_VISIBLE_DEVICES=0"
# What a kubelet sets for the whole machine.
FLAGS = ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom")
# 'make soak' asks for more; so many are alive at a time.
PODS = int(os.environ.get("CDIGEN_SOAK_PODS", "60"))
ALIVE = 20


# Ends as tests do that are killed while containers run: its node has to clean up by itself.
KILLED = """
import os, signal, sys
from pathlib import Path
from support.containers.containerd_host import RELEASES, running_containerd
with running_containerd(Path(sys.argv[1]), RELEASES["forky"]) as containerd:
    containerd.container()
    print(containerd.folder, containerd.holder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def flags() -> dict[str, str]:
    return {name: Path("/proc/sys", name).read_text() for name in FLAGS}


BEFORE = flags()


@pytest.fixture(scope="module")
def cluster(cache: Path, kubernetes_tree: Path) -> Iterator[Node]:
    assert kubernetes_tree.is_dir()
    with running_node(cache, RELEASES["forky"]) as node:
        write_specs(node.specs)
        write_inventory(node)
        yield node


@pytest.fixture
def node(cluster: Node) -> Iterator[Node]:
    """Return the node, of which no pod is left after a test."""
    yield cluster
    cluster.remove_pods()


@pytest.fixture
def plugin(node: Node) -> Iterator[Plugin]:
    """Run the plugin, for which everything counts in the namespace ml."""
    with running_plugin(node) as plugin:
        yield plugin


def missed(plugin: Plugin) -> set[str]:
    return {row["pod"] for row in plugin.status()["missed"]}


def names(*pods: Pod) -> set[str]:
    return {pod.name for pod in pods}


def running(node: Node) -> set[str]:
    """Return the names of the pods that run."""
    return {name for name, pod in node.pods().items() if pod["status"]["phase"] == "Running"}


@pytest.mark.usefixtures("plugin")
def test_a_pod_gets_what_its_environment_asks_for(node: Node) -> None:
    asked = [*DEVICES, f"1,{UUID}"]
    pods = [node.pod(f"env{row}", f"NVIDIA_VISIBLE_DEVICES={value}") for row, value in enumerate(asked)]
    for value, pod in zip(asked, pods, strict=True):
        found = pod.become().gpus()
        assert found == numbers(*(path for token in value.split(",") for path in DEVICES[token]))
        assert pod.sh(f"cat {LIBRARY}") == "the driver\n"
    assert pods[0].sh("head -c 7 /dev/nvidia0 | wc -c") == "7\n"


@pytest.mark.usefixtures("plugin")
def test_a_pod_gets_what_its_annotations_ask_for(node: Node) -> None:
    annotations = {f"{OWN}/pod": f"{KIND}=0", f"{OWN}/container.main": f"{KIND}=1"}
    assert node.pod("annotated", annotations=annotations).become().gpus() == GPU1
    assert node.pod("plain").become().gpus() == {}


@pytest.mark.usefixtures("plugin")
def test_the_events_of_a_pod_say_why_its_container_is_refused(node: Node) -> None:
    unknown = node.pod("unknown", "NVIDIA_VISIBLE_DEVICES=7")
    forbidden = node.pod("forbidden", annotations={"nvidia.cdi.k8s.io": "nvidia.com/management=all"})
    assert "NVIDIA_VISIBLE_DEVICES asks for '7': nvidia.com/gpu has 0, 1," in unknown.refused()
    assert "which the policy does not allow in the namespace" in forbidden.refused()
    eventually(lambda: unknown.waiting() == "CreateContainerError" or None, "its status says it too")


def test_the_environment_counts_for_privileged_containers_alone_where_the_policy_says_so(node: Node) -> None:
    rows = [{"namespaces": ["ml"], "sources": ["environment"], "privileged": True}]
    with running_plugin(node, allow=rows):
        user = node.pod("user", WISH)
        operand = node.pod("operand", WISH, container={"securityContext": {"privileged": True}})
        assert user.become().gpus() == {}
        assert operand.become().sh(f"cat {LIBRARY}") == "the driver\n"


@pytest.mark.usefixtures("plugin")
def test_the_pods_of_an_applied_daemon_set_get_their_gpu(node: Node, tmp_path: Path) -> None:
    labels = {"app": "everywhere"}
    spec = pod_manifest("", WISH, restartPolicy="Always")["spec"]
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "everywhere"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    (tmp_path / "daemon-set.json").write_text(json.dumps(manifest))
    (tmp_path / "kustomization.yaml").write_text("namespace: ml\nresources: [daemon-set.json]\n")
    node.kubectl("apply", "-k", tmp_path)
    try:
        (name,) = eventually(lambda: running(node) or None, "its pod runs")
        assert Pod(node=node, namespace="ml", name=name).gpus() == GPU0
    finally:
        node.kubectl("delete", "-k", tmp_path)


@pytest.mark.usefixtures("plugin")
def test_nothing_counts_in_a_namespace_that_is_not_listed(node: Node) -> None:
    pod = node.pod("elsewhere", WISH, namespace="default", annotations={OWN: f"{KIND}=0"})
    assert pod.become().gpus() == {}


@pytest.mark.usefixtures("plugin")
def test_a_pod_whose_device_comes_later_runs_by_itself_then(node: Node) -> None:
    early = node.pod("early", "NVIDIA_VISIBLE_DEVICES=late")
    assert "asks for 'late'" in early.refused()
    write_specs(node.specs, {"late": ("/dev/nvidia1",), **DEVICES})
    assert early.become().gpus() == GPU1
    write_specs(node.specs)


def test_a_restart_of_the_runtime_costs_no_pod_its_gpu(node: Node, plugin: Plugin) -> None:
    before = node.pod("before", WISH).become()
    node.containerd.stop()
    during = node.pod("during", WISH)
    node.containerd.start()
    after = node.pod("after", WISH)
    for pod in (during, after, before):
        assert pod.become().gpus() == GPU0
    assert before.status()["containerStatuses"][0]["restartCount"] == 0
    assert plugin.status()["connections"] == 2
    assert missed(plugin) == set()


@pytest.mark.usefixtures("plugin")
def test_a_restart_of_the_kubelet_costs_no_pod_its_gpu(node: Node) -> None:
    # The kubelet ends a container whose start it has not seen, and only starts it again by this policy.
    first = [node.pod(f"first{number}", WISH, restartPolicy="Always") for number in range(4)]
    eventually(lambda: running(node) or None, "one of them runs")
    node.kubelet.stop()
    second = [node.pod(f"second{number}", WISH) for number in range(4)]
    node.kubelet.start()
    node.is_ready()
    assert [pod.become().gpus() for pod in second] == [GPU0] * 4

    def all_have_it() -> bool | None:
        with suppress(AssertionError):  # kubectl, while a container is started again
            return all(pod.gpus() == GPU0 for pod in first) or None
        return None

    eventually(
        all_have_it, "those that were there have their GPU", told=lambda: [pod.events() for pod in first]
    )


def test_a_restart_of_the_plugin_loses_no_pod_silently(node: Node) -> None:
    """The runtime, before NRI 0.10, starts containers without a plugin that is away: those are named."""
    pods = []
    with running_plugin(node) as plugin:
        pods += [node.pod(f"with{number}", WISH) for number in range(4)]
        eventually(lambda: running(node) or None, "one of them runs")
        assert plugin.end() == 0
    away = node.pod("away", WISH).become()
    assert away.gpus() == {}
    pods += [node.pod(f"again{number}", WISH) for number in range(4)]
    with running_plugin(node) as plugin:
        lost = names(away, *(pod for pod in pods if pod.become().gpus() != GPU0))
        eventually(lambda: missed(plugin) == lost or None, "the plugin names them", told=plugin.status)
        assert node.pod("last", WISH).become().gpus() == GPU0


def test_of_many_pods_none_is_lost(node: Node, plugin: Plugin) -> None:
    """Each is deleted when it has told its node, and the next one made: so many are alive at any time."""
    annotations: tuple[dict[str, str], ...] = ({}, {OWN: f"{KIND}=1"})
    variables = ((WISH,), ())
    script = f"stat -c '%n %t:%T' /dev/nvidia*; {WAIT}"
    injected = 'cdigen_nri_containers_total{outcome="inject"}'
    before = plugin.metric(injected)
    alive: dict[str, Pod] = {}
    found: dict[str, list[str]] = {}
    deadline = time.monotonic() + HOST_PATIENCE_S + PODS
    while len(found) < PODS:
        assert time.monotonic() < deadline, (found, node.pods())
        for name in running(node) & alive.keys():
            if told := alive[name].log().split():
                found[name] = told
                alive.pop(name).delete()
        while len(alive) < ALIVE and (made := len(alive) + len(found)) < PODS:
            kind = made % 2
            name = f"pod{made}"
            alive[name] = node.pod(name, *variables[kind], annotations=annotations[kind], script=script)
        time.sleep(0.2)
    expected = [[*next(iter(gpu.items()))] for gpu in (GPU0, GPU1)]
    assert found == {f"pod{number}": expected[number % 2] for number in range(PODS)}
    assert plugin.metric(injected) - before == PODS
    assert missed(plugin) == set()


def test_the_machine_keeps_its_kernel_flags(node: Node) -> None:
    inside = subprocess.run(node.enter("cat", "/proc/sys/kernel/panic"), check=True, capture_output=True)
    assert inside.stdout == b"10\n"
    assert flags() == BEFORE


def test_nothing_is_left_of_a_node_whose_tests_are_killed(cache: Path, kubernetes_tree: Path) -> None:
    assert kubernetes_tree.is_dir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, cache], check=False, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert killed.returncode == -signal.SIGKILL
    folder, holder = map(Path, killed.stdout.split()[-2:])
    eventually(lambda: not folder.exists() or None, "its folder is gone")
    assert not (Path("/proc") / holder).exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{folder.name}"))
    assert folder.name not in Path("/proc/self/mounts").read_text()
