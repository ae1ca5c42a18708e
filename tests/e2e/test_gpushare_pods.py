"""Pods that share GPUs by memory on a real Kubernetes: scheduler, extenders, kubelet and containers.

CDIGEN_SOAK_SHARES_S says for how long pods come and go at random; 'make soak' asks for more. What runs, has
which units and was promised what is looked at all the time (`shared_samples`).
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
from support.cluster.node import NODE
from support.cluster.pods import WAIT, Pod
from support.cluster.shared_node import NAMESPACE, RESOURCES, SCHEDULERS, SIZES, Shared, running_shared
from support.cluster.shared_samples import Looks, annotated, looking, said_of
from support.cluster.shared_soak import CONTROL_PLANE, RESTARTED, TOO_MUCH, Traffic
from support.containers.busybox_image import IMAGE
from support.containers.containerd_host import RELEASES, eventually

from cdigen.gpushare.names import ASSIGNED, INDEX, OF_CONTAINER, OF_GPU, OF_POD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

SOAK_S = float(os.environ.get("CDIGEN_SOAK_SHARES_S", "20"))
SEED = int(os.environ.get("CDIGEN_SOAK_SEED", "19"))
PODS_A_SECOND = 200 / 60
STOPPED_S = min(20.0, SOAK_S / 6)
# gpushare's demonstration (gpushare-scheduler-extender, userguide.md), with another image: three pods of
# a StatefulSet that begin at once, and a job.
_ASKING = {"image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", f"env; {WAIT}"]}
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
                    {"name": "binpack-1", **_ASKING, "resources": {"limits": {RESOURCES.memory: 3}}}
                ]
            },
        },
    },
    "apis/batch/v1/jobs/gpu-job": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "gpu-job", **_ASKING, "resources": {"limits": {RESOURCES.memory: 2}}}
                ],
            }
        },
    },
}
# For how long, in s, something may be so: annotations that name another GPU than a container has, ledgers and
# annotations of more than a GPU has, pods that wait though there is room, containers that the kubelet left.
# "Insufficient" is of kube-scheduler alone: a pod that it bound and whose end it missed counts for 30 s, and
# without an event it tries a pending pod again after 60 to 90 s (kubernetes 1.20, pkg/scheduler:
# internalcache.New, unschedulableQTimeInterval).
LIMITS_S = {
    "annotation": 20,
    "annotations": 5,
    "ledger": 5,
    "waits:": 20,
    "insufficient:": 120,
    "left:": 20,
}
TOTAL = sum(SIZES[NODE])


def _killed(shared: Shared) -> None:
    shared.restart("api-server", signal.SIGKILL)


def _stopped(shared: Shared) -> None:
    shared.signal("api-server", signal.SIGSTOP)
    time.sleep(STOPPED_S)
    shared.signal("api-server", signal.SIGCONT)


def _without_etcd(shared: Shared) -> None:
    shared.node.daemons["etcd"].stop()
    time.sleep(2)
    shared.node.daemons["etcd"].start()


TROUBLES = {"killed": _killed, "stopped": _stopped, "without-etcd": _without_etcd}


@pytest.fixture(scope="module")
def shared(cache: Path, kubernetes_tree: Path) -> Iterator[Shared]:
    assert kubernetes_tree.is_dir()
    with running_shared(cache, RELEASES["forky"]) as shared:
        yield shared


@pytest.fixture
def looks(shared: Shared) -> Iterator[Looks]:
    with looking(shared) as looks:
        yield looks
    assert looks.wrong == {}


def gpu_of(pod: Pod, container: str = "c0") -> int:
    """Return the GPU that a container finds, by its node."""
    found = pod.sh("ls /dev/dri", container=container).split()
    (render,) = [name for name in found if name.startswith("renderD")]
    return int(render.removeprefix("renderD")) - 128


def told_of(shared: Shared, name: str) -> dict[str, str]:
    found: dict[str, str] = shared.pods()[name]["metadata"]["annotations"]
    return found


def all_true(shared: Shared, names: list[str]) -> None:
    """Wait until annotations say that the pods have what they have."""
    eventually(
        lambda: all(told_of(shared, name)[ASSIGNED] == "true" for name in names) or None,
        "they are assigned",
        told=lambda: [told_of(shared, name) for name in names],
    )


def all_is_free(shared: Shared) -> None:
    """Make sure that all units are free: pods that need all of them have them then."""
    shared.clear()
    whole = {
        f"whole-{node}-{gpu}": (node, gpu, units)
        for node, sizes in SIZES.items()
        # The largest first: smaller ones would take their place.
        for gpu, units in sorted(enumerate(sizes), key=lambda each: -each[1])
    }
    for name, (node, gpu, units) in whole.items():
        shared.create(name, units, on=node, scheduler=sorted(SCHEDULERS)[gpu % 2])
        is_bound(shared, name)
    used: Counter[tuple[str, int]] = Counter()
    for name, row in shared.pods().items():
        used.update({(row["spec"]["nodeName"], gpu): units for gpu, units in annotated(row).items()})
        if row["spec"]["nodeName"] == NODE:
            Pod(node=shared.node, namespace=NAMESPACE, name=name).become()
    assert used == {(node, gpu): units for node, sizes in SIZES.items() for gpu, units in enumerate(sizes)}


def is_bound(shared: Shared, name: str) -> str:
    """Wait until a pod is bound, and return its node."""

    def bound() -> str | None:
        found: str | None = shared.pods()[name]["spec"].get("nodeName")
        return found

    return eventually(bound, f"{name} is bound", told=shared.told)


@pytest.mark.usefixtures("looks")
def test_gpushares_binpack_demonstration_runs(shared: Shared) -> None:
    # The first of all: of pods that were here before, the kubelet may still hold units.
    with demonstration(shared):
        names = [f"binpack-1-{number}" for number in range(3)]
        eventually(lambda: len(shared.pods()) == 4 or None, "controllers make pods", told=shared.pods)
        pods = [Pod(node=shared.node, namespace=NAMESPACE, name=name).become() for name in names]
        all_true(shared, names)
        # With spread it were three.
        assert len({gpu_of(pod, "binpack-1") for pod in pods}) <= 2
        for pod in pods:
            assert f"{OF_CONTAINER}=3" in pod.log("binpack-1")
        found = shared.inspect("-d", NODE)
        assert re.search(rf"^Total : +{TOTAL}\n", found, re.MULTILINE), found
        assert all(name in found for name in names), found
    shared.clear()


@pytest.mark.usefixtures("looks")
def test_a_pod_has_the_gpu_of_its_annotations_and_gpushares_variables(shared: Shared) -> None:
    pod = shared.create("one", 3, on=NODE).become()
    gpu = gpu_of(pod)
    told = dict(row.split("=", 1) for row in pod.sh("env", container="c0").splitlines() if "ALIYUN" in row)
    assert told == {INDEX: str(gpu), OF_POD: "3", OF_CONTAINER: "3", OF_GPU: str(SIZES[NODE][gpu])}
    all_true(shared, ["one"])
    found = told_of(shared, "one")
    assert (found[INDEX], found[OF_POD], found[OF_GPU]) == (str(gpu), "3", told[OF_GPU])
    pod.end()


@pytest.mark.usefixtures("looks")
def test_two_containers_and_an_init_container_have_theirs(shared: Shared) -> None:
    pods = [
        shared.create("both", 3, 5, on=NODE),
        shared.create("apart", 7, 6, on=NODE),
        shared.create("early", 2, 1, inits=(4,), on=NODE),
        shared.create("none", 0, on=NODE),
    ]
    for pod in pods:
        pod.become()
    all_true(shared, ["both", "apart", "early"])
    rows = shared.pods()
    for pod in pods[:3]:
        for container in ("c0", "c1"):
            assert gpu_of(pod, container) == said_of(rows[pod.name], container)
    assert told_of(shared, "early")[OF_POD] == "4"
    for pod in pods:
        pod.end()


@pytest.mark.usefixtures("looks")
def test_equal_sums_created_at_once_each_have_their_own(shared: Shared) -> None:
    shared.clear()
    names = [f"equal{number}" for number in range(8)]
    pods = [shared.create(name, 4, on=NODE, scheduler=sorted(SCHEDULERS)[len(name) % 2]) for name in names]
    for pod in pods:
        pod.become()
    all_true(shared, names)
    found = Counter(gpu_of(pod) for pod in pods)
    assert sum(found.values()) == len(pods)
    assert all(4 * number <= SIZES[NODE][gpu] for gpu, number in found.items())
    for pod in pods:
        pod.end()


@pytest.mark.usefixtures("looks")
def test_pods_are_bound_where_a_gpu_has_room_for_each_container(shared: Shared) -> None:
    shared.create("large", 20)
    assert is_bound(shared, "large") == "bare-b"
    assert told_of(shared, "large")[OF_POD] == "20"
    shared.create("three", 10, 10, 10)
    assert is_bound(shared, "three") == "bare-c"
    shared.create("early-bare", 2, inits=(9,), on="bare-a", scheduler="second")
    is_bound(shared, "early-bare")
    assert told_of(shared, "early-bare")[OF_POD] == "9"


@pytest.mark.usefixtures("looks")
def test_more_than_a_gpu_has_is_refused_and_events_say_why(shared: Shared) -> None:
    pod = shared.create("huge", TOO_MUCH)

    def told() -> str | None:
        return next((event for event in pod.events() if "the largest has" in event), None)

    reason = eventually(told, "an event", told=lambda: (pod.events(), shared.told()))
    assert f"{TOO_MUCH} units asked of one GPU" in reason
    pod.delete()


@contextmanager
def demonstration(shared: Shared) -> Iterator[None]:
    """Have the controllers of gpushare's demonstration meanwhile."""
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


def test_random_pods_and_restarts_overcommit_nothing_and_lose_nothing(shared: Shared) -> None:
    chance = random.Random(SEED)
    # In a short run the tests that follow have the control plane's turn.
    programs = (*RESTARTED, *CONTROL_PLANE) if SOAK_S > 60 else RESTARTED
    traffic, restart_s = Traffic(shared, chance, "p", programs), 5.0
    begun_s = time.monotonic()
    with looking(shared) as looks:
        while (now_s := time.monotonic() - begun_s) < SOAK_S:
            shared.node.kubelet.check()
            if traffic.created < now_s * PODS_A_SECOND:
                traffic.create()
            elif now_s > restart_s:
                traffic.restart()
                restart_s = now_s + chance.uniform(0.5, 5)
            else:
                time.sleep(0.02)
        shared.node.answers(shared.node.daemons["api-server"], "/readyz")
        decided(shared)
    report(looks, traffic)
    judge(looks)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_an_api_server_in_trouble_overcommits_nothing(shared: Shared, trouble: str) -> None:
    shared.remove_all()
    traffic = Traffic(shared, random.Random(SEED), f"{trouble}-")
    with looking(shared) as looks:
        for _ in range(10):
            traffic.create()
        TROUBLES[trouble](shared)
        begun_s = time.monotonic()
        shared.node.answers(shared.node.daemons["api-server"], "/readyz")
        for _ in range(10):
            traffic.create()
        decided(shared)
        # By chance the others may have all of that node.
        for name, row in shared.pods().items():
            if row["spec"].get("nodeName") == "bare-a":
                shared.remove(name)
        shared.create(f"{trouble}-after", 1, scheduler="second", on="bare-a")
        is_bound(shared, f"{trouble}-after")
        print(f"{trouble}: pods are placed again after {time.monotonic() - begun_s:.1f} s")
    report(looks, traffic)
    judge(looks)


def test_all_is_free_in_the_end(shared: Shared) -> None:
    with looking(shared) as looks:
        all_is_free(shared)
    judge(looks)


def decided(shared: Shared) -> None:
    """Wait until the kubelet has decided on each of its pods."""

    def waiting() -> list[Any]:
        pods = shared.pods().values()
        ours = [row for row in pods if row["spec"].get("nodeName") == NODE]
        return [row for row in ours if row["status"]["phase"] == "Pending"]

    def told() -> object:
        return [(row["metadata"], row["status"]) for row in waiting()], shared.told()

    eventually(lambda: not waiting() or None, "all run", told=told)


def judge(looks: Looks) -> None:
    """Fail if something was seen that must not be, or for too long."""
    assert looks.wrong == {}, looks.shared.told()
    too_long = {
        what: seconds for what, seconds in looks.lasting.items() if seconds > LIMITS_S[what.split()[0]]
    }
    assert too_long == {}, looks.shared.told()


def report(looks: Looks, traffic: Traffic) -> None:
    lasting = {kind: round(looks.longest(kind), 1) for kind in LIMITS_S}
    # Without numbers, so that equal reasons are counted as one.
    refused = Counter(re.sub("[0-9]+", "N", why) for why in looks.failed.values())
    print(
        f"{traffic.created} pods, {len(looks.containers)} containers with units; "
        f"{sum(traffic.restarts.values())} restarts {dict(traffic.restarts)}; looks {dict(looks.count)}; "
        f"most units {dict(looks.most)} of {SIZES[NODE]}; lasted at most, s: {lasting}; "
        f"ended or refused: {dict(refused)}"
    )
    for what, seconds in sorted(looks.lasting.items(), key=lambda each: -each[1]):
        if seconds > 1:
            print(f"  {seconds:.1f} s {what[:1000]}")
