"""Pods share GPUs by memory on a real Kubernetes cluster (scheduler, extenders, kubelet, containers).

CDIGEN_SOAK_GPU_MEMORY_S is the duration of the test with random pods; 'make soak' sets a longer one. During
each test, `gpu_memory_samples` samples containers, their units and the reservations.
"""

from __future__ import annotations

import copy
import os
import random
import re
import signal
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from support.cluster.gpu_memory_node import (
    NAMESPACE,
    RESOURCES,
    SCHEDULERS,
    SIZES,
    GpuMemoryCluster,
    running_gpu_memory_cluster,
)
from support.cluster.gpu_memory_samples import (
    GpuMemorySamples,
    annotated_gpu,
    annotated_units,
    sampling_gpu_memory,
)
from support.cluster.gpu_memory_soak import CONTROL_PLANE, RESTARTED, TOO_MUCH, Traffic
from support.cluster.node import NODE
from support.cluster.pods import WAIT, Pod
from support.containers.busybox_image import IMAGE
from support.containers.containerd_host import RELEASES, eventually

from cdigen.gpushare.names import ASSIGNED, INDEX, OF_CONTAINER, OF_GPU, OF_POD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

SOAK_S = float(os.environ.get("CDIGEN_SOAK_GPU_MEMORY_S", "20"))
SEED = int(os.environ.get("CDIGEN_SOAK_SEED", "19"))
PODS_A_SECOND = 200 / 60
STOPPED_S = min(20.0, SOAK_S / 6)
# gpushare's demonstration (gpushare-scheduler-extender, userguide.md), with another image: three pods of a
# StatefulSet that start at once, and a job.
_CONTAINER = {"image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", f"env; {WAIT}"]}
DEMO: dict[str, dict[str, Any]] = {
    "apis/apps/v1/statefulsets/binpack-1": {
        "replicas": 3,
        "serviceName": "binpack-1",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "binpack-1"}},
        "template": {
            "metadata": {"labels": {"app": "binpack-1"}},
            "spec": {
                "containers": [
                    {"name": "binpack-1", **_CONTAINER, "resources": {"limits": {RESOURCES.memory: 3}}}
                ]
            },
        },
    },
    "apis/batch/v1/jobs/gpu-job": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "gpu-job", **_CONTAINER, "resources": {"limits": {RESOURCES.memory: 2}}}
                ],
            }
        },
    },
}
# The longest permitted duration of each state of GpuMemorySamples.lasting, in s.
LIMITS_S = {
    "annotation": 20,  # the annotations have another GPU than the container
    "annotations": 5,  # the annotations exceed the units of a GPU
    "ledger": 5,  # the ledger exceeds the units of a GPU
    # A pod waits although a GPU has enough free units: 20.2 s, measured on a busy machine, is normal.
    "waits:": 60,
    # kube-scheduler reports too few units. If it missed the end of a bound pod, it keeps the pod's units for
    # 30 s. Without an event it retries a pending pod after 60 to 90 s (kubernetes 1.20, pkg/scheduler:
    # internalcache.New, unschedulableQTimeInterval).
    "insufficient:": 120,
    "left:": 20,  # a container of an ended pod still runs
}
TOTAL = sum(SIZES[NODE])


def _killed(shared: GpuMemoryCluster) -> None:
    shared.restart("api-server", signal.SIGKILL)


def _stopped(shared: GpuMemoryCluster) -> None:
    shared.signal("api-server", signal.SIGSTOP)
    time.sleep(STOPPED_S)
    shared.signal("api-server", signal.SIGCONT)


def _without_etcd(shared: GpuMemoryCluster) -> None:
    shared.node.daemons["etcd"].stop()
    time.sleep(2)
    shared.node.daemons["etcd"].start()


OUTAGES = {"killed": _killed, "stopped": _stopped, "without-etcd": _without_etcd}


@pytest.fixture(scope="module")
def shared(cache: Path, kubernetes_tree: Path) -> Iterator[GpuMemoryCluster]:
    assert kubernetes_tree.is_dir()
    with running_gpu_memory_cluster(cache, RELEASES["forky"]) as shared:
        yield shared


@pytest.fixture
def samples(shared: GpuMemoryCluster) -> Iterator[GpuMemorySamples]:
    with sampling_gpu_memory(shared) as samples:
        yield samples
    assert samples.wrong == {}


def gpu_of(pod: Pod, container: str = "c0") -> int:
    """Return the number of a container's GPU, from the name of its render node."""
    found = pod.sh("ls /dev/dri", container=container).split()
    (render,) = [name for name in found if name.startswith("renderD")]
    return int(render.removeprefix("renderD")) - 128


def annotations_of(shared: GpuMemoryCluster, name: str) -> dict[str, str]:
    found: dict[str, str] = shared.pods()[name]["metadata"]["annotations"]
    return found


def all_assigned(shared: GpuMemoryCluster, names: list[str]) -> None:
    """Wait until the annotations of all pods confirm their allocation."""
    eventually(
        lambda: all(annotations_of(shared, name)[ASSIGNED] == "true" for name in names) or None,
        "the allocations are confirmed",
        details=lambda: [annotations_of(shared, name) for name in names],
    )


def all_is_free(shared: GpuMemoryCluster) -> None:
    """Check that all units are free: create a pod for each whole GPU, and check that each pod gets a GPU."""
    shared.clear()
    whole = {
        f"whole-{node}-{gpu}": (node, gpu, units)
        for node, sizes in SIZES.items()
        # The largest pod is first. Otherwise, a smaller pod could use the GPU that the largest pod needs.
        for gpu, units in sorted(enumerate(sizes), key=lambda each: -each[1])
    }
    for name, (node, gpu, units) in whole.items():
        shared.create(name, units, on=node, scheduler=sorted(SCHEDULERS)[gpu % 2])
        is_bound(shared, name)
    used: Counter[tuple[str, int]] = Counter()
    for name, row in shared.pods().items():
        used.update({(row["spec"]["nodeName"], gpu): units for gpu, units in annotated_units(row).items()})
        if row["spec"]["nodeName"] == NODE:
            Pod(node=shared.node, namespace=NAMESPACE, name=name).become()
    assert used == {(node, gpu): units for node, sizes in SIZES.items() for gpu, units in enumerate(sizes)}


def is_bound(shared: GpuMemoryCluster, name: str) -> str:
    """Wait until a pod is bound; return its node."""

    def bound() -> str | None:
        found: str | None = shared.pods()[name]["spec"].get("nodeName")
        return found

    return eventually(bound, f"{name} is bound", details=shared.logs)


@pytest.mark.usefixtures("samples")
def test_gpushares_binpack_demonstration_runs(shared: GpuMemoryCluster) -> None:
    # This test runs first, because later the kubelet may still hold units of earlier pods.
    with demonstration(shared):
        names = [f"binpack-1-{number}" for number in range(3)]
        eventually(lambda: len(shared.pods()) == 4 or None, "controllers create pods", details=shared.pods)
        pods = [Pod(node=shared.node, namespace=NAMESPACE, name=name).become() for name in names]
        all_assigned(shared, names)
        # With the strategy spread, the pods would use three GPUs.
        assert len({gpu_of(pod, "binpack-1") for pod in pods}) <= 2
        for pod in pods:
            assert f"{OF_CONTAINER}=3" in pod.log("binpack-1")
        found = shared.inspect("-d", NODE)
        assert re.search(rf"^Total : +{TOTAL}\n", found, re.MULTILINE), found
        assert all(name in found for name in names), found
    shared.clear()


@pytest.mark.usefixtures("samples")
def test_a_pod_has_the_gpu_of_its_annotations_and_the_variables_of_gpushare(shared: GpuMemoryCluster) -> None:
    pod = shared.create("one", 3, on=NODE).become()
    gpu = gpu_of(pod)
    variables = dict(
        row.split("=", 1) for row in pod.sh("env", container="c0").splitlines() if "ALIYUN" in row
    )
    assert variables == {INDEX: str(gpu), OF_POD: "3", OF_CONTAINER: "3", OF_GPU: str(SIZES[NODE][gpu])}
    all_assigned(shared, ["one"])
    found = annotations_of(shared, "one")
    assert (found[INDEX], found[OF_POD], found[OF_GPU]) == (str(gpu), "3", variables[OF_GPU])
    pod.end()


@pytest.mark.usefixtures("samples")
def test_two_containers_and_an_init_container_get_their_units(shared: GpuMemoryCluster) -> None:
    pods = [
        shared.create("both", 3, 5, on=NODE),
        shared.create("apart", 7, 6, on=NODE),
        shared.create("early", 2, 1, inits=(4,), on=NODE),
        shared.create("none", 0, on=NODE),
    ]
    for pod in pods:
        pod.become()
    all_assigned(shared, ["both", "apart", "early"])
    rows = shared.pods()
    for pod in pods[:3]:
        for container in ("c0", "c1"):
            assert gpu_of(pod, container) == annotated_gpu(rows[pod.name], container)
    assert annotations_of(shared, "early")[OF_POD] == "4"
    for pod in pods:
        pod.end()


@pytest.mark.usefixtures("samples")
def test_equal_pods_created_at_once_get_separate_units(shared: GpuMemoryCluster) -> None:
    shared.clear()
    names = [f"equal{number}" for number in range(8)]
    pods = [shared.create(name, 4, on=NODE, scheduler=sorted(SCHEDULERS)[len(name) % 2]) for name in names]
    for pod in pods:
        pod.become()
    all_assigned(shared, names)
    found = Counter(gpu_of(pod) for pod in pods)
    assert sum(found.values()) == len(pods)
    assert all(4 * number <= SIZES[NODE][gpu] for gpu, number in found.items())
    for pod in pods:
        pod.end()


@pytest.mark.usefixtures("samples")
def test_pods_are_bound_to_nodes_with_enough_free_units_for_each_container(shared: GpuMemoryCluster) -> None:
    shared.create("large", 20)
    assert is_bound(shared, "large") == "bare-b"
    assert annotations_of(shared, "large")[OF_POD] == "20"
    shared.create("three", 10, 10, 10)
    assert is_bound(shared, "three") == "bare-c"
    shared.create("early-bare", 2, inits=(9,), on="bare-a", scheduler="second")
    is_bound(shared, "early-bare")
    assert annotations_of(shared, "early-bare")[OF_POD] == "9"


@pytest.mark.usefixtures("samples")
def test_a_request_larger_than_any_gpu_is_refused_and_the_event_has_the_reason(
    shared: GpuMemoryCluster,
) -> None:
    pod = shared.create("huge", TOO_MUCH)

    def refusal() -> str | None:
        return next((event for event in pod.events() if "the largest GPU has" in event), None)

    reason = eventually(refusal, "an event with the reason", details=lambda: (pod.events(), shared.logs()))
    assert f"{TOO_MUCH} units requested of one GPU" in reason
    pod.delete()


@contextmanager
def demonstration(shared: GpuMemoryCluster) -> Iterator[None]:
    """Create the controllers of gpushare's demonstration, and delete them when the context ends."""
    try:
        for path, spec in copy.deepcopy(DEMO).items():
            group, plural, name = path.rsplit("/", 2)
            spec["template"]["spec"] |= {"terminationGracePeriodSeconds": 1, "schedulerName": "first"}
            spec["template"]["spec"] |= {
                "nodeSelector": {"name": NODE},
                "automountServiceAccountToken": False,
            }
            document = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
            shared.node.api.call("POST", f"/{group}/namespaces/{NAMESPACE}/{plural}", document)
        yield
    finally:
        for path in DEMO:
            group, plural, name = path.rsplit("/", 2)
            shared.node.api.delete(f"/{group}/namespaces/{NAMESPACE}/{plural}/{name}")


def test_random_pods_and_restarts_overcommit_no_gpu_and_lose_no_units(shared: GpuMemoryCluster) -> None:
    chance = random.Random(SEED)
    # In a short run, only the later tests restart the control plane.
    programs = (*RESTARTED, *CONTROL_PLANE) if SOAK_S > 60 else RESTARTED
    traffic, restart_s = Traffic(shared, chance, "p", programs), 5.0
    begun_s = time.monotonic()
    with sampling_gpu_memory(shared) as samples:
        while (now_s := time.monotonic() - begun_s) < SOAK_S:
            if traffic.created < now_s * PODS_A_SECOND:
                traffic.create()
            elif now_s > restart_s:
                traffic.restart()
                restart_s = now_s + chance.uniform(0.5, 5)
            else:
                time.sleep(0.02)
        shared.node.answers(shared.node.daemons["api-server"], "/readyz")
        decided(shared)
    report(samples, traffic)
    judge(samples)


@pytest.mark.parametrize("outage", OUTAGES)
def test_an_outage_of_the_api_server_causes_no_overcommitment(shared: GpuMemoryCluster, outage: str) -> None:
    shared.remove_all()
    traffic = Traffic(shared, random.Random(SEED), f"{outage}-")
    with sampling_gpu_memory(shared) as samples:
        for _ in range(10):
            traffic.create()
        OUTAGES[outage](shared)
        begun_s = time.monotonic()
        shared.node.answers(shared.node.daemons["api-server"], "/readyz")
        for _ in range(10):
            traffic.create()
        decided(shared)
        # The random pods may use all units of the node bare-a.
        for name, row in shared.pods().items():
            if row["spec"].get("nodeName") == "bare-a":
                shared.remove(name)
        shared.create(f"{outage}-after", 1, scheduler="second", on="bare-a")
        is_bound(shared, f"{outage}-after")
        print(f"{outage}: pods are placed again after {time.monotonic() - begun_s:.1f} s")
    report(samples, traffic)
    judge(samples)


def test_all_units_are_free_after_the_other_tests(shared: GpuMemoryCluster) -> None:
    with sampling_gpu_memory(shared) as samples:
        all_is_free(shared)
    judge(samples)


def decided(shared: GpuMemoryCluster) -> None:
    """Wait until the kubelet has admitted or rejected each pod of its node."""

    def waiting() -> list[Any]:
        pods = shared.pods().values()
        on_node = [row for row in pods if row["spec"].get("nodeName") == NODE]
        return [row for row in on_node if row["status"]["phase"] == "Pending"]

    def report_waiting() -> object:
        return [(row["metadata"], row["status"]) for row in waiting()], shared.logs()

    eventually(lambda: not waiting() or None, "no pod is pending", details=report_waiting)


def judge(samples: GpuMemorySamples) -> None:
    """Fail if SAMPLES has an error, or if a state lasted longer than its limit in LIMITS_S."""
    assert samples.wrong == {}, samples.shared.logs()
    too_long = {
        state: seconds for state, seconds in samples.lasting.items() if seconds > LIMITS_S[state.split()[0]]
    }
    assert too_long == {}, samples.shared.logs()


def report(samples: GpuMemorySamples, traffic: Traffic) -> None:
    lasting = {kind: round(samples.longest(kind), 1) for kind in LIMITS_S}
    # Numbers are replaced, so that reasons that differ only in numbers are counted together.
    refused = Counter(re.sub("[0-9]+", "N", why) for why in samples.failed.values())
    print(
        f"{traffic.created} pods, {len(samples.containers)} containers with units; "
        f"{sum(traffic.restarts.values())} restarts {dict(traffic.restarts)}; samples {dict(samples.count)}; "
        f"most units {dict(samples.most)} of {SIZES[NODE]}; lasted at most, s: {lasting}; "
        f"ended or refused: {dict(refused)}"
    )
    for state, seconds in sorted(samples.lasting.items(), key=lambda each: -each[1]):
        if seconds > 1:
            print(f"  {seconds:.1f} s {state[:1000]}")
