"""The messages to the service manager, on real datagram sockets."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S, limited

from cdigen.service.process.sd_notify import Notifier


def listening(address: str) -> socket.socket:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(address)
    manager.settimeout(PATIENCE_S)
    return manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with listening(str(tmp_path / "notify")) as made:
        yield made


def test_ready_is_sent_with_the_status_text(manager: socket.socket) -> None:
    assert Notifier({"NOTIFY_SOCKET": manager.getsockname()}).ready("8 devices")
    assert manager.recv(1000) == b"READY=1\nSTATUS=8 devices"


def test_the_first_report_after_the_start_and_after_a_reload_is_ready(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})

    notifier.report("8 devices")
    notifier.report("7 devices")
    notifier.reloading()
    notifier.report("6 devices")

    messages = [manager.recv(1000).decode().split("\n") for _ in range(4)]
    assert messages[0] == ["READY=1", "STATUS=8 devices"]
    assert messages[1] == ["STATUS=7 devices"]
    assert messages[3] == ["READY=1", "STATUS=6 devices"]


def test_messages_are_sent_to_an_abstract_socket() -> None:
    name = f"cdigen-test-{os.getpid()}"
    with listening(f"\0{name}") as manager:
        assert Notifier({"NOTIFY_SOCKET": f"@{name}"}).stopping()
        assert manager.recv(1000) == b"STOPPING=1"


def test_reloading_has_the_monotonic_time_in_microseconds(manager: socket.socket) -> None:
    before = time.clock_gettime(time.CLOCK_MONOTONIC)
    Notifier({"NOTIFY_SOCKET": manager.getsockname()}).reloading()
    first, second = manager.recv(1000).decode().split("\n")
    assert first == "RELOADING=1"
    assert second.startswith("MONOTONIC_USEC=")
    assert before - 0.001 <= int(second.partition("=")[2]) / 1e6 <= time.clock_gettime(time.CLOCK_MONOTONIC)


def test_a_status_text_cannot_contain_another_message(manager: socket.socket) -> None:
    Notifier({"NOTIFY_SOCKET": manager.getsockname()}).status("bad\nREADY=1\r\nSTOPPING=1" + "x" * 1000)
    message = manager.recv(5000)
    assert message.startswith(b"STATUS=bad READY=1 STOPPING=1")
    assert b"\n" not in message
    assert len(message) < 400


def test_a_stray_byte_in_the_status_text_is_harmless(manager: socket.socket) -> None:
    assert Notifier({"NOTIFY_SOCKET": manager.getsockname()}).status("/lib/\udcff")
    assert manager.recv(1000) == b"STATUS=/lib/?"


@pytest.mark.parametrize(
    "address", ["", "relative", "/nowhere/at/all", "vsock:2:1234", "@" + "x" * 300, "/\0"]
)
def test_without_a_listening_manager_no_message_is_sent(address: str) -> None:
    assert not Notifier({"NOTIFY_SOCKET": address}).ping()


@limited(5)
def test_a_manager_that_does_not_read_does_not_block_the_service(
    manager: socket.socket, within_s: float
) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    for _ in range(1000):
        begun = time.monotonic()
        if not notifier.ping():
            break
    else:
        pytest.fail("the socket never filled")
    assert time.monotonic() - begun < within_s


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "30000000"}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "ours"}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0),
        ({"WATCHDOG_USEC": "-1"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
    ],
)
def test_the_watchdog_applies_only_to_the_process_of_watchdog_pid(
    environ: dict[str, str], seconds: float
) -> None:
    if environ.get("WATCHDOG_PID") == "ours":
        environ = {**environ, "WATCHDOG_PID": str(os.getpid())}
    assert Notifier(environ).watchdog_s == seconds
