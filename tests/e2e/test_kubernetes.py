"""Pods of a real kubelet get GPUs from `cdigen nri`, also after restarts; events have reasons of refusals.

Kubernetes is 1.20.2. containerd is from Debian's next release (2.1.9 in 2026-11). Both versions are printed.
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
REQUEST = "NVIDIA_VISIBLE_DEVICES=0"
# The sysctls that a kubelet sets for the whole machine.
SYSCTLS = ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom")
# The number of pods ('make soak' increases it), and the number of pods that exist at a time.
PODS = int(os.environ.get("CDIGEN_SOAK_PODS", "60"))
ALIVE = 20


# This program ends like a test that is killed while a container runs. The node must clean up by itself.
KILLED_TEST = """
import os, signal, sys
from pathlib import Path
from support.containers.containerd_host import RELEASES, running_containerd
with running_containerd(Path(sys.argv[1]), RELEASES["forky"]) as containerd:
    containerd.container()
    print(containerd.folder, containerd.holder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def sysctls() -> dict[str, str]:
    return {name: Path("/proc/sys", name).read_text() for name in SYSCTLS}


BEFORE = sysctls()


@pytest.fixture(scope="module")
def cluster(cache: Path, kubernetes_tree: Path) -> Iterator[Node]:
    assert kubernetes_tree.is_dir()
    with running_node(cache, RELEASES["forky"]) as node:
        write_specs(node.specs)
        write_inventory(node)
        yield node


@pytest.fixture
def node(cluster: Node) -> Iterator[Node]:
    """Yield the node, and remove all pods after the test."""
    yield cluster
    cluster.remove_pods()


@pytest.fixture
def plugin(node: Node) -> Iterator[Plugin]:
    """Run the plugin, which permits all requests in the namespace ml."""
    with running_plugin(node) as plugin:
        yield plugin


def uninjected_pods(plugin: Plugin) -> set[str]:
    return {row["pod"] for row in plugin.status()["uninjected_containers"]}


def names(*pods: Pod) -> set[str]:
    return {pod.name for pod in pods}


def running(node: Node) -> set[str]:
    """Return the names of the pods that run."""
    return {name for name, pod in node.pods().items() if pod["status"]["phase"] == "Running"}


@pytest.mark.usefixtures("plugin")
def test_a_pod_has_the_devices_that_its_environment_requests(node: Node) -> None:
    values = [*DEVICES, f"1,{UUID}"]
    pods = [node.pod(f"env{row}", f"NVIDIA_VISIBLE_DEVICES={value}") for row, value in enumerate(values)]
    for value, pod in zip(values, pods, strict=True):
        found = pod.become().gpus()
        assert found == numbers(*(path for token in value.split(",") for path in DEVICES[token]))
        assert pod.sh(f"cat {LIBRARY}") == "the driver\n"
    assert pods[0].sh("head -c 7 /dev/nvidia0 | wc -c") == "7\n"


@pytest.mark.usefixtures("plugin")
def test_a_pod_has_the_devices_that_its_annotations_request(node: Node) -> None:
    annotations = {f"{OWN}/pod": f"{KIND}=0", f"{OWN}/container.main": f"{KIND}=1"}
    assert node.pod("annotated", annotations=annotations).become().gpus() == GPU1
    assert node.pod("plain").become().gpus() == {}


@pytest.mark.usefixtures("plugin")
def test_the_events_of_a_pod_have_the_reason_of_a_refusal(node: Node) -> None:
    unknown = node.pod("unknown", "NVIDIA_VISIBLE_DEVICES=7")
    forbidden = node.pod("forbidden", annotations={"nvidia.cdi.k8s.io": "nvidia.com/management=all"})
    assert "NVIDIA_VISIBLE_DEVICES requests '7': nvidia.com/gpu has 0, 1," in unknown.refused()
    assert "no rule in nri.management_namespaces permits" in forbidden.refused()
    eventually(
        lambda: unknown.waiting() == "CreateContainerError" or None, "the pod's status has the reason, too"
    )


def test_a_policy_can_permit_requests_by_environment_only_for_privileged_containers(node: Node) -> None:
    rows = [{"namespaces": ["ml"], "sources": ["environment"], "privileged": True}]
    with running_plugin(node, allow=rows):
        user = node.pod("user", REQUEST)
        operand = node.pod("operand", REQUEST, container={"securityContext": {"privileged": True}})
        assert user.become().gpus() == {}
        assert operand.become().sh(f"cat {LIBRARY}") == "the driver\n"


@pytest.mark.usefixtures("plugin")
def test_the_pods_of_an_applied_daemon_set_get_their_gpu(node: Node, tmp_path: Path) -> None:
    labels = {"app": "everywhere"}
    spec = pod_manifest("", REQUEST, restartPolicy="Always")["spec"]
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
        (name,) = eventually(lambda: running(node) or None, "the pod runs")
        assert Pod(node=node, namespace="ml", name=name).gpus() == GPU0
    finally:
        node.kubectl("delete", "-k", tmp_path)


@pytest.mark.usefixtures("plugin")
def test_requests_are_ignored_in_a_namespace_that_no_rule_lists(node: Node) -> None:
    pod = node.pod("elsewhere", REQUEST, namespace="default", annotations={OWN: f"{KIND}=0"})
    assert pod.become().gpus() == {}


@pytest.mark.usefixtures("plugin")
def test_a_refused_pod_starts_when_its_device_is_added(node: Node) -> None:
    early = node.pod("early", "NVIDIA_VISIBLE_DEVICES=late")
    assert "requests 'late'" in early.refused()
    write_specs(node.specs, {"late": ("/dev/nvidia1",), **DEVICES})
    assert early.become().gpus() == GPU1
    write_specs(node.specs)


def test_pods_have_their_gpus_after_a_restart_of_the_runtime(node: Node, plugin: Plugin) -> None:
    before = node.pod("before", REQUEST).become()
    node.containerd.stop()
    during = node.pod("during", REQUEST)
    node.containerd.start()
    after = node.pod("after", REQUEST)
    for pod in (during, after, before):
        assert pod.become().gpus() == GPU0
    assert before.status()["containerStatuses"][0]["restartCount"] == 0
    assert plugin.status()["connections"] == 2
    assert uninjected_pods(plugin) == set()


@pytest.mark.usefixtures("plugin")
def test_pods_have_their_gpus_after_a_restart_of_the_kubelet(node: Node) -> None:
    # If the kubelet missed the start of a container, it ends the container. The restart policy "Always" then
    # starts the container again.
    first = [node.pod(f"first{number}", REQUEST, restartPolicy="Always") for number in range(4)]
    eventually(lambda: running(node) or None, "a pod runs")
    node.kubelet.stop()
    second = [node.pod(f"second{number}", REQUEST) for number in range(4)]
    node.kubelet.start()
    node.is_ready()
    assert [pod.become().gpus() for pod in second] == [GPU0] * 4

    def all_have_it() -> bool | None:
        with suppress(AssertionError):  # kubectl fails while a container restarts
            return all(pod.gpus() == GPU0 for pod in first) or None
        return None

    eventually(all_have_it, "the first pods have their GPU", details=lambda: [pod.events() for pod in first])


def test_the_restarted_plugin_reports_pods_that_started_without_it(node: Node) -> None:
    """A runtime with NRI before 0.10 starts containers if no plugin runs. The next plugin reports them."""
    pods = []
    with running_plugin(node) as plugin:
        pods += [node.pod(f"with{number}", REQUEST) for number in range(4)]
        eventually(lambda: running(node) or None, "a pod runs")
        assert plugin.end() == 0
    away = node.pod("away", REQUEST).become()
    assert away.gpus() == {}
    pods += [node.pod(f"again{number}", REQUEST) for number in range(4)]
    with running_plugin(node) as plugin:
        lost = names(away, *(pod for pod in pods if pod.become().gpus() != GPU0))
        eventually(
            lambda: uninjected_pods(plugin) == lost or None,
            "the plugin reports the pods",
            details=plugin.status,
        )
        assert node.pod("last", REQUEST).become().gpus() == GPU0


def test_each_of_many_pods_has_its_device(node: Node, plugin: Plugin) -> None:
    """The test deletes each pod that has printed its device node, and creates the next pod."""
    annotations: tuple[dict[str, str], ...] = ({}, {OWN: f"{KIND}=1"})
    variables = ((REQUEST,), ())
    script = f"stat -c '%n %t:%T' /dev/nvidia*; {WAIT}"
    injected = 'cdigen_nri_containers_total{outcome="inject"}'
    before = plugin.metric(injected)
    alive: dict[str, Pod] = {}
    found: dict[str, list[str]] = {}
    deadline = time.monotonic() + HOST_PATIENCE_S + PODS
    while len(found) < PODS:
        assert time.monotonic() < deadline, (found, node.pods())
        for name in running(node) & alive.keys():
            if printed := alive[name].log().split():
                found[name] = printed
                alive.pop(name).delete()
        while len(alive) < ALIVE and (made := len(alive) + len(found)) < PODS:
            kind = made % 2
            name = f"pod{made}"
            alive[name] = node.pod(name, *variables[kind], annotations=annotations[kind], script=script)
        time.sleep(0.2)
    expected = [[*next(iter(gpu.items()))] for gpu in (GPU0, GPU1)]
    assert found == {f"pod{number}": expected[number % 2] for number in range(PODS)}
    assert plugin.metric(injected) - before == PODS
    assert uninjected_pods(plugin) == set()


def test_the_sysctls_of_the_machine_are_unchanged(node: Node) -> None:
    inside = subprocess.run(node.enter("cat", "/proc/sys/kernel/panic"), check=True, capture_output=True)
    assert inside.stdout == b"10\n"
    assert sysctls() == BEFORE


def test_a_killed_test_leaves_no_folder_process_cgroup_or_mount(cache: Path, kubernetes_tree: Path) -> None:
    assert kubernetes_tree.is_dir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_TEST, cache],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert killed.returncode == -signal.SIGKILL
    folder, holder = map(Path, killed.stdout.split()[-2:])
    eventually(lambda: not folder.exists() or None, "the folder is removed")
    assert not (Path("/proc") / holder).exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{folder.name}"))
    assert folder.name not in Path("/proc/self/mounts").read_text()
