"""drive sends the calls of a generator, and object_name reads the name of an object."""

import threading
from collections.abc import Generator

import pytest

from cdigen.kubeapi.calls import Call, Reply, drive, object_name

PATHS = ("/a", "/b")


def steps(ended: list[str]) -> Generator[Call, Reply, list[int]]:
    """Return the status of each reply to the calls of PATHS."""
    found = []
    try:
        for path in PATHS:
            reply = yield Call(method="GET", path=path)
            found.append(reply.status)
        return found
    finally:
        ended.append("ended")


def test_each_call_is_sent_without_the_lock_and_with_the_reply_to_the_call_before() -> None:
    lock = threading.Lock()
    sent: list[tuple[str, int | None]] = []

    def send(call: Call, before: Reply | None) -> Reply:
        assert not lock.locked()
        sent.append((call.path, before.status if before else None))
        return Reply(status=200 + len(sent), body={})

    assert drive(steps([]), lock, send) == [201, 202]
    assert sent == [("/a", None), ("/b", 201)]
    assert not lock.locked()


def test_an_error_of_a_call_ends_the_generator() -> None:
    def send(_: Call, __: Reply | None) -> Reply:
        raise TimeoutError

    ended: list[str] = []
    with pytest.raises(TimeoutError):
        drive(steps(ended), threading.Lock(), send)
    assert ended == ["ended"]


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"metadata": {"name": "node1"}}, "node1"),
        ({"metadata": {"name": 7}}, ""),
        ({"metadata": []}, ""),
        ({}, ""),
        ([], ""),
        (None, ""),
    ],
)
def test_an_object_without_a_name_has_an_empty_name(document: object, name: str) -> None:
    assert object_name(document) == name
