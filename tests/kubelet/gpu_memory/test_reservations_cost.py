"""The number of calls in NodeReservations if many reservations differ from the containers' GPUs.

The kubelet waits for these calculations.
"""

from __future__ import annotations

import time

from support.cost import calls
from support.kubernetes.gpu_memory_pods import RESOURCES, pod_object

from cdigen.gpushare.reservations import ContainerPlacement, pod_annotations
from cdigen.kubelet.gpu_memory.bound_pods import read_bound
from cdigen.kubelet.gpu_memory.reservations import NodeReservations

GPUS, PODS = 8, 250
# A plan makes 360,000 calls and takes about 0.05 s. It would take seconds if each candidate needed a count of
# all pods.
MOST_CALLS = 1_000_000


def full_node() -> NodeReservations:
    """Return a full node; every second pod has a GPU that is not in its annotation, the other pods wait."""
    reservations = NodeReservations(RESOURCES, dict.fromkeys(range(GPUS), 200))
    for number in range(PODS):
        found = pod_object(f"p{number}", 1 + number % 4, node="node1")
        bound = read_bound(found, RESOURCES)
        assert bound is not None
        gpu = number * 5 % 7
        placement = ContainerPlacement(containers=((0, gpu),), gpu=gpu)
        found["metadata"]["annotations"] = pod_annotations(
            bound.pod.request, placement, reservations.sizes, number
        )
        reservations.put(found)
    reservations.apply_pod_list(
        {}, {bound.pod.key for bound in reservations.bound_pods.values()}, time.monotonic()
    )
    for number, bound in enumerate(tuple(reservations.bound_pods.values())):
        if number % 2:
            reservations.serve(bound, bound.requests[0], number * 3 % GPUS, time.monotonic(), frozenset())
    return reservations


def test_a_plan_on_a_full_node_with_wrong_reservations_needs_few_calls() -> None:
    reservations = full_node()

    def plan() -> None:
        option = reservations.candidates(3, 1)[0]
        assert option.gpu is not None
        reservations.plan(option, (option.gpu + 1) % GPUS)

    assert calls(plan) < MOST_CALLS


def test_a_preference_on_a_full_node_with_wrong_reservations_needs_few_calls() -> None:
    reservations = full_node()
    assert reservations.preferred_gpu(dict.fromkeys(range(GPUS), 100), (), 1) is not None
    free = dict.fromkeys(range(GPUS), 100)
    assert calls(lambda: reservations.preferred_gpu(free, (), 1)) < MOST_CALLS
