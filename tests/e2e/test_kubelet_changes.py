"""A real kubelet (1.20.2) receives changes of the host: driver, GPUs, their health, and MIG instances.

The kubelet receives a change within a second. The Node object changes with the next report of the kubelet.
Here the kubelet sends a report every two seconds (nodeStatusUpdateFrequency; by default 10 s).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from support.cluster.gpu_node import (
    AMD,
    GPU,
    GPUS,
    LIBRARIES,
    GpuNode,
    container_devices,
    gpu_nodes,
    running_gpu_node,
)
from support.cluster.node import NODE
from support.containers.containerd_host import RELEASES, eventually
from support.daemon.kernel_records import record
from support.kubelet.nfd_worker import FOLDER, labels_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

MIG = "nvidia.com/mig-1g.10gb"
VENDORS = ("nvidia.com/", "amd.com/", "gpu.intel.com/", "intel.feature.node.kubernetes.io/")
SHARED = f"{GPU}.shared"
CONFIG_MAP = """version: v1
flags:
  migStrategy: single
  failOnInitError: true
  plugin: {passDeviceSpecs: false, deviceListStrategy: envvar, deviceIDStrategy: uuid}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: false
    resources: [{name: nvidia.com/gpu, replicas: 10}]
"""
# The container ends when the test makes the file /tmp/end. The kubelet then starts the container again.
UNTIL_SIGNAL = "while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 1"


@pytest.fixture(scope="module")
def running(cache: Path, kubernetes_tree: Path, upgrade_tree: Path) -> Iterator[GpuNode]:
    assert kubernetes_tree.is_dir()
    with running_gpu_node(cache, upgrade_tree, RELEASES["forky"]) as gpu_node:
        yield gpu_node


@pytest.fixture
def gpu_node(running: GpuNode) -> Iterator[GpuNode]:
    """Yield the node, and remove all pods after the test."""
    yield running
    running.node.remove_pods()


def listed(gpu_node: GpuNode, resource: str = GPU, health: str = "healthy") -> int:
    """Return the number of advertised devices of RESOURCE with the state HEALTH."""
    rows = {row["resource"]: row for row in gpu_node.status()["resources"]}
    return int(rows[resource]["health"][health]) if resource in rows else 0


def follows(gpu_node: GpuNode, what: str, change: Callable[[], object], **expected: int) -> None:
    """Run CHANGE; wait until the plugin and then the Node have the EXPECTED counts; print the delays.

    The daemon writes the inventory after the specs. If the specs lack a device, the plugin may change its
    count before the inventory changes.
    """
    resources = {GPU if key == "gpu" else MIG: count for key, count in expected.items()}
    inventory = gpu_node.root / "run/cdigen/inventory.json"
    before = inventory.stat().st_mtime
    begun_s = time.time()
    change()
    changed_s = time.time()
    eventually(
        lambda: all(listed(gpu_node, name) == count for name, count in resources.items()) or None,
        what,
        details=gpu_node.logs,
    )
    advertised_s = time.time()
    eventually(lambda: inventory.stat().st_mtime > before or None, f"{what}: the inventory")
    inventory_s = inventory.stat().st_mtime
    for name, count in resources.items():
        gpu_node.has(count, name)
    node_s = time.time()
    print(
        f"{what}: change took {changed_s - begun_s:.2f} s, inventory after {inventory_s - begun_s:.2f} s, "
        f"list {advertised_s - inventory_s:.2f} s after it, node {node_s - advertised_s:.2f} s after that"
    )


def test_the_node_advertises_an_added_mig_instance_until_it_is_removed(gpu_node: GpuNode) -> None:
    follows(gpu_node, "two instances", lambda: gpu_node.split(7, {7: "1g.10gb", 8: "1g.10gb"}), gpu=7, mig=2)
    pod = gpu_node.pod("instance", {MIG: 1}).become()
    follows(gpu_node, "a third one", lambda: gpu_node.split(7, dict.fromkeys((7, 8, 9), "1g.10gb")), mig=3)
    assert pod.status()["containerStatuses"][0]["restartCount"] == 0
    follows(gpu_node, "no MIG instances", lambda: gpu_node.split(7, {}), gpu=8)
    gpu_node.has(0, MIG)


def test_the_number_of_advertised_gpus_changes_if_a_gpu_is_removed_or_inserted(gpu_node: GpuNode) -> None:
    follows(gpu_node, "a GPU taken out", gpu_node.take_out, gpu=7)
    follows(gpu_node, "a GPU put in", gpu_node.put_in, gpu=8)


def test_a_failed_gpu_gets_no_pod_until_its_cause_is_cleared(gpu_node: GpuNode) -> None:
    address = GPUS[3].bdf[:-2]
    text = f"NVRM: Xid (PCI:{address}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    stamp_us = int(time.monotonic() * 1e6)
    follows(gpu_node, "Xid 79", lambda: gpu_node.log.write(record(text, 1, stamp_us=stamp_us)), gpu=7)
    pod = gpu_node.pod("well", {GPU: 7}).become()
    assert set(container_devices(pod).nodes) & gpu_nodes(3) == gpu_nodes()
    one_more = gpu_node.pod("later", {GPU: 1})
    follows(gpu_node, "cleared", lambda: gpu_node.cdigen("health", "--clear", f"{GPU}=3"), gpu=8)
    assert gpu_nodes(3) <= set(container_devices(one_more.become()).nodes)


def test_a_marked_gpu_gets_no_pod_until_its_mark_is_cleared(gpu_node: GpuNode) -> None:
    mark = ("health", "--mark", f"{GPU}=0", "--reason", "fails our burn-in")
    follows(gpu_node, "marked", lambda: gpu_node.cdigen(*mark), gpu=7)
    follows(gpu_node, "cleared", lambda: gpu_node.cdigen("health", "--clear", f"{GPU}=0"), gpu=8)


def test_the_single_strategy_advertises_equal_mig_instances_as_gpus(gpu_node: GpuNode) -> None:
    gpu_node.configure("kubelet: {mig_strategy: single}\n")
    for number in range(1, 8):
        gpu_node.split(number, {7: "1g.10gb", 8: "1g.10gb"})
    gpu_node.plugin.stop()
    gpu_node.plugin.start()
    # Only GPU 0 is not split, so the plugin does not advertise it. The other GPUs are not affected.
    gpu_node.has(14)
    pod = gpu_node.pod("instances", {GPU: 3}).become()
    assert len({node for node in container_devices(pod).nodes if node.startswith("/dev/nvidia-caps/")}) == 6
    for number in range(1, 8):
        gpu_node.split(number, {})
    gpu_node.configure()
    gpu_node.plugin.stop()
    gpu_node.plugin.start()
    gpu_node.has(8)


def test_cdigen_kubelet_applies_an_unchanged_config_map_of_nvidias_plugin(gpu_node: GpuNode) -> None:
    gpu_node.node.kubectl("create", "configmap", "nvidia", f"--from-literal=config={CONFIG_MAP}")
    text = gpu_node.node.kubectl("get", "configmap", "nvidia", "-o", "jsonpath={.data.config}")
    (gpu_node.root / "etc/cdigen/nvidia-plugin.yaml").write_text(text)
    gpu_node.configure("kubelet: {nvidia_config: /etc/cdigen/nvidia-plugin.yaml, amd_strategy: mixed}\n")
    gpu_node.has(80, SHARED)
    gpu_node.has(0)
    gpu_node.has(2, "amd.com/dpx_nps1")
    gpu_node.has(0, AMD)
    gpu_node.split(7, {7: "1g.10gb", 8: "1g.10gb"})
    gpu_node.has(70, SHARED)
    for number in range(7):
        gpu_node.split(number, {7: "1g.10gb", 8: "1g.10gb"})
    gpu_node.has(160, SHARED)
    pod = gpu_node.pod("shares", {SHARED: 2}).become()
    assert len({node for node in container_devices(pod).nodes if node.startswith("/dev/nvidia-caps/")}) == 4
    assert pod.sh("echo $NVIDIA_VISIBLE_DEVICES").split() == ["void"]
    for number in range(8):
        gpu_node.split(number, {})
    gpu_node.configure()
    gpu_node.has(8)
    gpu_node.has(2, AMD)


def put_labels(gpu_node: GpuNode) -> dict[str, str]:
    """Set the labels of the node as NFD would set them; return them."""
    found = labels_of(gpu_node.root / FOLDER)
    before = gpu_node.node.api.get(f"/api/v1/nodes/{NODE}")["metadata"]["labels"]
    gone = [f"{name}-" for name in before if name.startswith(VENDORS) and name not in found]
    pairs = [f"{name}={value}" for name, value in found.items()]
    gpu_node.node.kubectl("label", "--overwrite", "node", NODE, *pairs, *gone)
    return found


def test_the_api_server_accepts_the_labels_of_devices_and_pods_select_nodes_by_them(
    gpu_node: GpuNode,
) -> None:
    features = gpu_node.root / FOLDER
    features.mkdir(parents=True)
    gpu_node.configure(f"kubelet: {{labels: /{FOLDER}/cdigen}}\n")
    eventually(lambda: labels_of(features) or None, "labels", details=gpu_node.logs)
    product = put_labels(gpu_node)["nvidia.com/gpu.product"]
    chosen = {"nvidia.com/gpu.product": product, "amd.com/gpu.device-id": "74a1"}
    gpu_node.pod("chosen", {GPU: 1}, nodeSelector=chosen).become()
    gpu_node.split(7, {7: "1g.10gb", 8: "1g.10gb"})
    count = "nvidia.com/mig-1g.10gb.count"
    eventually(lambda: labels_of(features).get(count) == "2" or None, count, details=gpu_node.logs)
    assert put_labels(gpu_node)["nvidia.com/gpu.count"] == "8"
    gpu_node.split(7, {})
    eventually(lambda: count not in labels_of(features) or None, "no MIG", details=gpu_node.logs)
    gpu_node.configure()
    eventually(lambda: not list(features.iterdir()) or None, "no labels", details=gpu_node.logs)
    assert not put_labels(gpu_node)
    gpu_node.has(8)


def test_a_driver_upgrade_reaches_restarted_containers_and_ends_no_running_container(
    gpu_node: GpuNode,
) -> None:
    """This test runs last in the module because the newer driver stays installed."""
    older, newer = gpu_node.upgraded.versions
    again = gpu_node.pod("again", {GPU: 1}, script=UNTIL_SIGNAL, restartPolicy="Always")
    stays = gpu_node.pod("stays", {GPU: 2})
    assert [pod.become().sh(LIBRARIES).split() for pod in (again, stays)] == [[older], [older]]
    before = container_devices(again).nodes
    begun_s = time.monotonic()
    gpu_node.upgraded.install(newer)
    gpu_node.load(newer)
    gpu_node.upgraded.wait_for(newer)
    print(f"upgraded after {time.monotonic() - begun_s:.1f} s")
    gpu_node.has(8)
    again.sh("touch /tmp/end")
    eventually(
        lambda: again.status()["containerStatuses"][0]["restartCount"] == 1 or None,
        "the container starts again",
        details=again.events,
    )
    again.become()
    eventually(lambda: ready(again.status()) or None, "the container is ready", details=again.events)
    assert again.sh(LIBRARIES).split() == [newer]
    assert container_devices(again).nodes == before
    assert stays.status()["containerStatuses"][0]["restartCount"] == 0
    assert stays.sh(LIBRARIES).split() == [older]
    assert gpu_node.pod("new", {GPU: 1}).become().sh(LIBRARIES).split() == [newer]


def ready(status: dict[str, Any]) -> bool:
    return bool(status["containerStatuses"][0]["ready"])
