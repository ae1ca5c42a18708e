"""StatusChangeLogger logs each change of a registration or of the host once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.resources import status

from cdigen.kubelet.plugin import StatusChangeLogger
from cdigen.service.process.log import make_logger

if TYPE_CHECKING:
    from cdigen.kubelet.registration.state_machine import State


class Reader:
    """A change log, and the reader of its new lines."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self.change_log = StatusChangeLogger(make_logger())

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._capture.readouterr().err.splitlines()]

    def log_of(self, *states: tuple[State, str]) -> list[tuple[str, str, str]]:
        """Log the registration STATES of a resource one after the other; return the new log lines."""
        for state, reason in states:
            self.change_log.registrations([status(state, reason)])
        return [(line["level"], line["state"], line["reason"]) for line in self.lines()]


@pytest.fixture
def reader(capfd: pytest.CaptureFixture[str]) -> Reader:
    return Reader(capfd)


def test_repeated_failures_of_a_registration_for_one_reason_are_logged_once(reader: Reader) -> None:
    failure = "UNKNOWN: the API version is not supported"
    attempts: list[tuple[State, str]] = [("serving", failure), ("registering", failure), ("backoff", failure)]

    assert reader.log_of(("serving", ""), ("backoff", failure), *attempts, *attempts) == [
        ("info", "backoff", failure)
    ]
    assert reader.log_of(*attempts, ("registered", "")) == [("info", "registered", "")]
    # After a success, the same failure is logged again. Another reason is also logged.
    assert reader.log_of(("backoff", failure), *attempts) == [("info", "backoff", failure)]
    assert len(reader.log_of(("serving", failure), ("backoff", "DEADLINE_EXCEEDED"))) == 1


def test_the_reason_of_a_new_registration_is_logged_even_if_the_registration_is_immediate(
    reader: Reader,
) -> None:
    reason = "the plugin's socket was removed"
    reader.log_of(("registered", ""))

    assert reader.log_of(("serving", reason), ("registering", reason), ("registered", "")) == [
        ("info", "serving", reason),
        ("info", "registered", ""),
    ]


def test_a_resource_of_another_plugin_is_logged_as_a_warning(reader: Reader) -> None:
    other = "another device plugin has registered the resource"

    assert reader.log_of(("claimed-by-other", other), ("claimed-by-other", other)) == [
        ("warning", "claimed-by-other", other)
    ]


def test_a_stale_inventory_is_logged_as_a_warning_and_later_the_current_inventory_is_logged(
    reader: Reader,
) -> None:
    reasons = ("there is no inventory: the cdigen daemon has not written one",)
    for stale in ((), reasons, reasons, (), ()):
        reader.change_log.host((), stale)

    began, ended = reader.lines()
    assert (began["level"], began["message"]) == ("warning", reasons[0])
    assert "'cdigen status'" in began["hint"]
    assert (ended["level"], ended["message"]) == ("info", "the inventory is current again")
