"""What a list and its watch tell, when the server forgets, ends, or says nonsense."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from support.kubernetes.api_server import ApiServer
from support.kubernetes.cluster_model import cluster_of
from support.kubernetes.shared_pods import pod_object
from support.waiting import PATIENCE_S, until

from cdigen.kubeapi.client import Client
from cdigen.kubeapi.credentials import Server
from cdigen.kubeapi.following import Following
from cdigen.kubeapi.lists import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

POD = "/api/v1/namespaces/default/pods/"


class Seen:
    """The names that a sink knows."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def put(self, found: Any) -> None:
        self.names.add(found["metadata"]["name"])

    def drop(self, found: Any) -> None:
        self.names.discard(found["metadata"]["name"])

    def begin(self) -> None:
        self.before = self.names.copy()

    def keep(self, found: Iterable[Any]) -> None:
        self.names -= self.before - {each["name"] for each in found}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    pods = (pod_object(f"p{number}", 1) for number in range(2 * PAGE + 10))
    with ApiServer(cluster_of(*pods)) as found:
        yield found


@contextmanager
def followed(
    server: ApiServer, selector: str = "", stop: threading.Event | None = None
) -> Iterator[tuple[Seen, Following]]:
    seen, stop = Seen(), stop or threading.Event()
    at = Server(host="127.0.0.1", port=server.server_address[1], token=lambda: server.token)
    client = Client(at, timeout_s=PATIENCE_S)
    following = Following(client, "/api/v1/pods", seen, stop, selector=selector, first_s=0.01)
    thread = threading.Thread(target=following.run)
    thread.start()
    try:
        yield seen, following
    finally:
        stop.set()
        server.faults = lambda _, _path: None
        while thread.is_alive():
            server.end_watches()
            thread.join(0.1)


def test_a_list_of_several_pages_is_whole_and_changes_are_told(server: ApiServer) -> None:
    with followed(server) as (seen, following):
        assert until(lambda: following.is_synced and len(seen.names) == 2 * PAGE + 10)
        server.change(lambda cluster: cluster.add_pod(pod_object("new", 1)))
        server.change(lambda cluster: cluster.delete(f"{POD}p0"))
        assert until(lambda: "new" in seen.names and "p0" not in seen.names)


def test_a_watch_that_ended_goes_on_where_it_was(server: ApiServer) -> None:
    with followed(server) as (seen, following):
        assert until(lambda: following.is_synced)
        server.end_watches()
        server.change(lambda cluster: cluster.add_pod(pod_object("new", 1)))
        assert until(lambda: "new" in seen.names)
        assert sum("continue" not in each and "limit" in each for each in server.asked) == 1


@pytest.mark.parametrize("status", [410, 500, 403, 429])
def test_what_was_missed_is_found_by_another_list(server: ApiServer, status: int) -> None:
    with followed(server) as (seen, following):
        assert until(lambda: following.is_synced)
        server.faults = lambda _, path: status if "watch=1" in path else None

        def has_ended() -> bool:
            server.end_watches()  # a watch that is being opened meanwhile has missed the one before
            return bool(following.problem)

        assert until(has_ended)
        server.change(lambda cluster: cluster.delete(f"{POD}p0"))
        server.end_watches(forget=True)
        server.faults = lambda _, _path: None
        assert until(lambda: "p0" not in seen.names and not following.problem)


def test_an_error_in_the_stream_means_a_new_list(server: ApiServer) -> None:
    with followed(server) as (seen, following):
        assert until(lambda: following.is_synced)
        server.change(lambda cluster: cluster.events.append(("ERROR", {**cluster.pods()[0], "code": 410})))
        server.change(lambda cluster: cluster.events.pop())
        server.change(lambda cluster: cluster.add_pod(pod_object("new", 1)))
        assert until(lambda: "new" in seen.names)


@pytest.mark.parametrize("nonsense", [{}, {"metadata": 5}, {"metadata": {}}, []])
def test_nonsense_in_the_stream_means_a_new_list(server: ApiServer, nonsense: Any) -> None:
    broken = {"kind": "Pod", "metadata": {"resourceVersion": "1000000", "namespace": "default"}}
    with followed(server) as (seen, following):
        assert until(lambda: following.is_synced)
        lists = len(server.asked)
        server.change(lambda cluster: cluster.events.append(("MODIFIED", {**broken, "spec": nonsense})))
        assert until(lambda: len(server.asked) > lists)
        server.change(lambda cluster: cluster.events.pop())
        server.change(lambda cluster: cluster.add_pod(pod_object("new", 1)))
        assert until(lambda: "new" in seen.names)


def limits(server: ApiServer) -> list[int]:
    return [int(found[1]) for each in server.asked if (found := re.search(r"limit=(\d+)", each))]


def test_a_page_that_fails_is_requested_with_fewer_objects(server: ApiServer) -> None:
    def too_many(_: str, path: str) -> int | None:
        return 504 if (found := re.search(r"limit=(\d+)", path)) and int(found[1]) > 2 else None

    server.faults = too_many
    with followed(server) as (seen, following):
        assert until(lambda: following.is_synced)
        assert len(seen.names) == 2 * PAGE + 10
    assert sorted(set(limits(server)), reverse=True) == [10, 5, 2]


def test_large_pods_come_one_at_a_time(server: ApiServer) -> None:
    env = [{"name": "V", "value": "x" * 1000}] * 1800
    for number in range(15):
        pod = pod_object(f"large{number}", 1)
        pod["spec"]["containers"][0]["env"] = env
        server.cluster.add_pod(pod)
    with followed(server) as (seen, following):
        assert until(lambda: following.is_synced)
        assert len(seen.names) == 2 * PAGE + 25
    assert 1 in limits(server)


class Pauses(threading.Event):
    """Notes how long it would have been waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        return super().wait(0.001)


def test_a_server_that_ends_each_watch_at_once_is_not_asked_without_a_pause(server: ApiServer) -> None:
    server.faults = lambda _, path: 200 if "watch=1" in path else None
    pauses = Pauses()
    with followed(server, stop=pauses) as (seen, following):
        assert until(lambda: following.is_synced)
        # They grow from 0.01 s on.
        assert until(lambda: max(pauses.waits, default=0.0) > 1.0)
        server.faults = lambda _, _path: None
        server.change(lambda cluster: cluster.add_pod(pod_object("new", 1)))
        assert until(lambda: "new" in seen.names)


def test_a_server_that_is_away_is_found_again(server: ApiServer) -> None:
    server.faults = lambda _, _path: 503
    with followed(server) as (seen, following):
        assert until(lambda: following.problem)
        assert not following.is_synced
        server.faults = lambda _, _path: None
        assert until(lambda: following.is_synced and len(seen.names) == 2 * PAGE + 10)
