"""A large cluster for measurements: `big_cluster` has nodes with GPUs of several sizes, and long pods."""

from __future__ import annotations

import random

from support.kubernetes.cluster_model import Cluster
from support.kubernetes.shared_pods import node_object, pod_object

from cdigen.gpushare.claims import Placement, written
from cdigen.gpushare.pods import Ask

GPUS = 8
# What real pods have besides: variables, mounts, managedFields, conditions; some 5 kB.
PADDING = {"managedFields": [{"manager": "kubelet", "fieldsV1": {f"f:field-{n}": {} for n in range(150)}}]}


def big_cluster(nodes: int, pods: int, *, seed: int = 1, bare: int = 0) -> Cluster:
    """Return a cluster of NODES and PODS that ask, all bound, and BARE ones that do not; a third is free."""
    chance = random.Random(seed)
    cluster = Cluster()
    free: dict[tuple[str, int], int] = {}
    sizes = {}
    for number in range(nodes):
        name = f"node-{number:04}.example"
        sizes[name] = [chance.choice([16, 24, 40, 80])] * GPUS
        node = node_object(name, sizes[name])
        node["metadata"] |= PADDING
        cluster.add_node(node)
        free |= {(name, gpu): size * 2 // 3 for gpu, size in enumerate(sizes[name])}
    places = sorted(free)
    for number in range(pods):
        name, gpu = places[number % len(places)]
        units = chance.randint(1, max(1, min(8, free[name, gpu])))
        free[name, gpu] -= units
        ask = Ask(shares=((0, units),))
        at = Placement(containers=((0, gpu),), gpu=gpu)
        given = written(ask, at, {gpu: sizes[name][gpu]}, number)
        pod = pod_object(f"pod-{number:05}", units, annotations=given, node=name, phase="Running")
        pod["metadata"] |= PADDING
        cluster.add_pod(pod)
    for number in range(bare):
        pod = pod_object(f"bare-{number:05}", None, node=places[number % len(places)][0], phase="Running")
        pod["metadata"] |= PADDING
        cluster.add_pod(pod)
    cluster.events.clear()
    return cluster
