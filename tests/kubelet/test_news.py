"""What the log says of resources and the host: each thing when it begins, and not again while it lasts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.resources import status

from cdigen.frontend.log import make_logger
from cdigen.kubelet.news import News

if TYPE_CHECKING:
    from cdigen.kubelet.registration import State


class Reader:
    """Has NEWS, and reads what it has written since the last time."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self.news = News(make_logger())

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._capture.readouterr().err.splitlines()]

    def of(self, *states: tuple[State, str]) -> list[tuple[str, str, str]]:
        """Return what is said of a resource that has these STATES, one after the other."""
        for state, reason in states:
            self.news.registrations([status(state, reason)])
        return [(line["level"], line["state"], line["reason"]) for line in self.lines()]


@pytest.fixture
def reader(capfd: pytest.CaptureFixture[str]) -> Reader:
    return Reader(capfd)


def test_a_registration_that_fails_again_and_again_for_one_reason_is_said_once(reader: Reader) -> None:
    no = "UNKNOWN: the API version is not supported"
    tries: list[tuple[State, str]] = [("serving", no), ("registering", no), ("paused", no)]

    assert reader.of(("serving", ""), ("paused", no), *tries, *tries) == [("info", "paused", no)]
    assert reader.of(*tries, ("registered", "")) == [("info", "registered", "")]
    # It is news again once it had ended, and so is another reason.
    assert reader.of(("paused", no), *tries) == [("info", "paused", no)]
    assert len(reader.of(("serving", no), ("paused", "DEADLINE_EXCEEDED"))) == 1


def test_why_a_resource_is_registered_anew_is_said_also_if_that_takes_no_time(reader: Reader) -> None:
    gone = "its socket was removed"
    reader.of(("registered", ""))

    assert reader.of(("serving", gone), ("registering", gone), ("registered", "")) == [
        ("info", "serving", gone),
        ("info", "registered", ""),
    ]


def test_that_another_plugin_has_the_resource_is_a_warning(reader: Reader) -> None:
    other = "another device plugin has registered it"

    assert reader.of(("taken", other), ("taken", other)) == [("warning", "taken", other)]


def test_what_is_stale_is_a_warning_with_what_to_look_at_and_its_end_is_said(reader: Reader) -> None:
    why = ("there is no inventory: the cdigen daemon has not written one",)
    for stale in ((), why, why, (), ()):
        reader.news.host((), stale)

    began, ended = reader.lines()
    assert (began["level"], began["message"]) == ("warning", why[0])
    assert "'cdigen status'" in began["hint"]
    assert (ended["level"], ended["message"]) == ("info", "the inventory is current again")
