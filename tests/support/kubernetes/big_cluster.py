"""A large cluster for benchmarks: `big_cluster` has nodes with GPUs of several sizes, and large pods."""

from __future__ import annotations

import random

from support.kubernetes.cluster_model import Cluster
from support.kubernetes.gpu_memory_pods import node_object, pod_object

from cdigen.gpushare.pods import MemoryRequest
from cdigen.gpushare.reservations import ContainerPlacement, pod_annotations

GPUS = 8
# A real pod also has variables, mounts, managedFields and conditions; the padding has their size, 5 kB.
PADDING = {"managedFields": [{"manager": "kubelet", "fieldsV1": {f"f:field-{n}": {} for n in range(150)}}]}


def big_cluster(nodes: int, pods: int, *, seed: int = 1, bare: int = 0) -> Cluster:
    """Return a cluster of NODES nodes, with PODS pods on GPUs, and BARE pods without GPUs.

    The pods leave at least about a third of the units of each GPU free.
    """
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
        request = MemoryRequest(by_container=((0, units),))
        placement = ContainerPlacement(containers=((0, gpu),), gpu=gpu)
        annotations = pod_annotations(request, placement, {gpu: sizes[name][gpu]}, number)
        pod = pod_object(f"pod-{number:05}", units, annotations=annotations, node=name, phase="Running")
        pod["metadata"] |= PADDING
        cluster.add_pod(pod)
    for number in range(bare):
        pod = pod_object(f"bare-{number:05}", None, node=places[number % len(places)][0], phase="Running")
        pod["metadata"] |= PADDING
        cluster.add_pod(pod)
    cluster.events.clear()
    return cluster
