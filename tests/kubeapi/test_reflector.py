"""A reflector whose server drops old resource versions, ends watches, or sends invalid objects."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from support.kubernetes.api_server import ApiServer
from support.kubernetes.cluster_model import cluster_of
from support.kubernetes.gpu_memory_pods import pod_object
from support.waiting import PATIENCE_S, until

from cdigen.kubeapi.client import Client
from cdigen.kubeapi.credentials import ApiServerConfig
from cdigen.kubeapi.lists import PAGE
from cdigen.kubeapi.reflector import ObjectStore, Reflector
from cdigen.model.times.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterator

POD = "/api/v1/namespaces/default/pods/"


class NameStore:
    """A store with the names of the objects."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def put(self, found: Any) -> None:
        self.names.add(found["metadata"]["name"])

    def store(self) -> ObjectStore:
        return ObjectStore(
            key="name", put=self.put, drop=self.names.discard, known=lambda: frozenset(self.names)
        )


@pytest.fixture
def server() -> Iterator[ApiServer]:
    pods = (pod_object(f"p{number}", 1) for number in range(2 * PAGE + 10))
    with ApiServer(cluster_of(*pods)) as found:
        yield found


@contextmanager
def watched(
    server: ApiServer, selector: str = "", stop: threading.Event | None = None
) -> Iterator[tuple[NameStore, Reflector]]:
    store, stop = NameStore(), stop or threading.Event()
    at = ApiServerConfig(host="127.0.0.1", port=server.server_address[1], token=lambda: server.token)
    client = Client(at, timeout_s=PATIENCE_S)
    backoff = Backoff(first_s=0.01, most_s=30.0)
    reflector = Reflector(
        client, "/api/v1/pods", store.store(), stop, field_selector=selector, backoff=backoff
    )
    thread = threading.Thread(target=reflector.run)
    thread.start()
    try:
        yield store, reflector
    finally:
        stop.set()
        server.faults = lambda _, _path: None
        while thread.is_alive():
            server.end_watches()
            thread.join(0.1)


def test_a_list_of_several_pages_is_complete_and_the_watch_reports_later_changes(server: ApiServer) -> None:
    with watched(server) as (store, reflector):
        assert until(lambda: reflector.is_synced and len(store.names) == 2 * PAGE + 10)
        server.change(lambda cluster: cluster.add_pod(pod_object("new", 1)))
        server.change(lambda cluster: cluster.delete(f"{POD}p0"))
        assert until(lambda: "new" in store.names and "p0" not in store.names)


def test_after_the_end_of_a_watch_the_next_watch_resumes_from_the_last_version(server: ApiServer) -> None:
    with watched(server) as (store, reflector):
        assert until(lambda: reflector.is_synced)
        server.end_watches()
        server.change(lambda cluster: cluster.add_pod(pod_object("new", 1)))
        assert until(lambda: "new" in store.names)
        assert sum("continue" not in each and "limit" in each for each in server.requests) == 1


@pytest.mark.parametrize("status", [410, 500, 403, 429])
def test_changes_that_the_watch_has_missed_are_in_the_next_list(server: ApiServer, status: int) -> None:
    with watched(server) as (store, reflector):
        assert until(lambda: reflector.is_synced)
        server.faults = lambda _, path: status if "watch=1" in path else None

        def has_ended() -> bool:
            server.end_watches()  # a watch that began after the last call is still open
            return bool(reflector.problem)

        assert until(has_ended)
        server.change(lambda cluster: cluster.delete(f"{POD}p0"))
        server.end_watches(forget=True)
        server.faults = lambda _, _path: None
        assert until(lambda: "p0" not in store.names and not reflector.problem)


def test_an_error_event_causes_a_new_list(server: ApiServer) -> None:
    with watched(server) as (store, reflector):
        assert until(lambda: reflector.is_synced)
        server.change(lambda cluster: cluster.events.append(("ERROR", {**cluster.pods()[0], "code": 410})))
        server.change(lambda cluster: cluster.events.pop())
        server.change(lambda cluster: cluster.add_pod(pod_object("new", 1)))
        assert until(lambda: "new" in store.names)


@pytest.mark.parametrize("invalid", [{}, {"metadata": 5}, {"metadata": {}}, []])
def test_an_invalid_event_causes_a_new_list(server: ApiServer, invalid: Any) -> None:
    broken = {"kind": "Pod", "metadata": {"resourceVersion": "1000000", "namespace": "default"}}
    with watched(server) as (store, reflector):
        assert until(lambda: reflector.is_synced)
        lists = len(server.requests)
        server.change(lambda cluster: cluster.events.append(("MODIFIED", {**broken, "spec": invalid})))
        assert until(lambda: len(server.requests) > lists)
        server.change(lambda cluster: cluster.events.pop())
        server.change(lambda cluster: cluster.add_pod(pod_object("new", 1)))
        assert until(lambda: "new" in store.names)


def limits(server: ApiServer) -> list[int]:
    return [int(found[1]) for each in server.requests if (found := re.search(r"limit=(\d+)", each))]


def test_a_failed_page_is_requested_with_fewer_objects(server: ApiServer) -> None:
    def too_many(_: str, path: str) -> int | None:
        return 504 if (found := re.search(r"limit=(\d+)", path)) and int(found[1]) > 2 else None

    server.faults = too_many
    with watched(server) as (store, reflector):
        assert until(lambda: reflector.is_synced)
        assert len(store.names) == 2 * PAGE + 10
    assert sorted(set(limits(server)), reverse=True) == [10, 5, 2]


def test_large_pods_are_listed_in_pages_of_one_object(server: ApiServer) -> None:
    env = [{"name": "V", "value": "x" * 1000}] * 1800
    for number in range(15):
        pod = pod_object(f"large{number}", 1)
        pod["spec"]["containers"][0]["env"] = env
        server.cluster.add_pod(pod)
    with watched(server) as (store, reflector):
        assert until(lambda: reflector.is_synced)
        assert len(store.names) == 2 * PAGE + 25
    assert 1 in limits(server)


class RecordedWaits(threading.Event):
    """An event that records the timeout of each wait, and waits only 1 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.timeouts: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.timeouts.append(timeout or 0.0)
        return super().wait(0.001)


def test_if_the_server_ends_each_watch_at_once_the_reflector_backs_off(server: ApiServer) -> None:
    server.faults = lambda _, path: 200 if "watch=1" in path else None
    waits = RecordedWaits()
    with watched(server, stop=waits) as (store, reflector):
        assert until(lambda: reflector.is_synced)
        # The backoff grows from 0.01 s.
        assert until(lambda: max(waits.timeouts, default=0.0) > 1.0)
        server.faults = lambda _, _path: None
        server.change(lambda cluster: cluster.add_pod(pod_object("new", 1)))
        assert until(lambda: "new" in store.names)


def test_after_an_outage_of_the_server_the_list_is_complete(server: ApiServer) -> None:
    server.faults = lambda _, _path: 503
    with watched(server) as (store, reflector):
        assert until(lambda: reflector.problem)
        assert not reflector.is_synced
        server.faults = lambda _, _path: None
        assert until(lambda: reflector.is_synced and len(store.names) == 2 * PAGE + 10)
