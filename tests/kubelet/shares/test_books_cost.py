"""What the node's books cost where nothing is as it was promised: the kubelet waits for them."""

from __future__ import annotations

import time

from support.kubernetes.shared_pods import RESOURCES, pod_object

from cdigen.gpushare.claims import Placement, written
from cdigen.kubelet.shares.books import Books
from cdigen.kubelet.shares.bound import read_bound

GPUS, PODS = 8, 250
# It takes some 0.05 s; with a count of all pods for each choice it took seconds.
MOST_S = 1.0


def full_books() -> Books:
    """Books of a full node: every second pod has another GPU than its annotation says, the others wait."""
    books = Books(RESOURCES, dict.fromkeys(range(GPUS), 200))
    for number in range(PODS):
        found = pod_object(f"p{number}", 1 + number % 4, node="node1")
        bound = read_bound(found, RESOURCES)
        assert bound is not None
        gpu = number * 5 % 7
        placement = Placement(containers=((0, gpu),), gpu=gpu)
        found["metadata"]["annotations"] = written(bound.pod.ask, placement, books.sizes, number)
        books.put(found)
    books.learn({}, {bound.pod.key for bound in books.bounds.values()}, time.monotonic())
    for number, bound in enumerate(tuple(books.bounds.values())):
        if number % 2:
            books.serve(bound, bound.wants[0], number * 3 % GPUS, time.monotonic(), frozenset())
    return books


def test_a_plan_for_a_full_node_where_half_of_it_is_wrong_takes_a_moment() -> None:
    books = full_books()
    begun_s = time.process_time()
    option = books.options(3, 1)[0]
    assert option.gpu is not None
    books.plan(option, (option.gpu + 1) % GPUS)
    assert time.process_time() - begun_s < MOST_S


def test_a_preference_on_a_full_node_where_half_of_it_is_wrong_takes_a_moment() -> None:
    books = full_books()
    begun_s = time.process_time()
    assert books.prefer(dict.fromkeys(range(GPUS), 100), (), 1) is not None
    assert time.process_time() - begun_s < MOST_S
