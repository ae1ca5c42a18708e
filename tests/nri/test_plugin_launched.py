"""`cdigen nri` started by the runtime: a connected socket as file 3, and nothing else in the environment."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.nri.plugin import INJECTS_08, INJECTS_12, REQUEST_S, Host, Plugin, asks, given, host, plugin
from support.nri.runtime import Runtime, SocketTransport, container, pod
from support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = {"NRI_PLUGIN_NAME": "cdigen", "NRI_PLUGIN_IDX": "42", "NRI_PLUGIN_SOCKET": "3"}


@contextmanager
def started(here: Host, **environment: str) -> Iterator[tuple[Plugin, Runtime]]:
    """Start the plugin as containerd does (pkg/adaptation/plugin.go), with a socket pair's end as file 3."""
    ours, theirs = socket.socketpair()
    made = Runtime(
        SocketTransport(ours), request_timeout_s=REQUEST_S, registration_timeout_s=PATIENCE_S, **INJECTS_08
    )
    # A shell, as it may stand in the plugin's file: Popen itself passes no file under another number.
    before = ("/bin/sh", "-c", 'exec 3<&0 0</dev/null; exec "$@"', "sh")
    with (
        ours,
        theirs,
        plugin(
            here, listen=False, environment={**NAMES, **environment}, before=before, stdin=theirs
        ) as running,
    ):
        theirs.close()
        yield running, made


def test_it_serves_by_the_socket_that_it_was_given_and_ends_with_it() -> None:
    with host() as here, started(here) as (running, runtime):
        runtime.start()
        runtime.synchronize([pod()], [container()])
        assert (runtime.plugin_name, runtime.plugin_index) == ("cdigen", "42")
        assert given(runtime.create(*asks("0"))) == ["nvidia.com/gpu=0"]
        running.sees(lambda: running.state == "registered")
        runtime.close()
        assert running.process.wait(PATIENCE_S) == 0
        assert not (here.run_dir / "status.json").exists()


def test_the_configuration_that_the_runtime_passes_is_not_read_and_that_is_said() -> None:
    with host() as here, started(here) as (running, runtime):
        runtime.start(config="allow: everything")
        runtime.synchronize()
        running.sees(lambda: running.lines("configuration"))
        (line,) = running.lines("configuration")
        assert (line["level"], line["hint"]) == ("warning", "write it into /etc/cdigen/config.yaml")


def test_a_runtime_that_ends_before_the_registration_ends_it_as_well() -> None:
    with host() as here, started(here) as (running, runtime):
        runtime.close()
        assert running.process.wait(PATIENCE_S) == 0


def test_sigterm_ends_it() -> None:
    with host() as here, started(here) as (running, runtime):
        runtime.start()
        runtime.synchronize()
        running.sees(lambda: running.state == "registered")
        assert running.stop() == 0


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"NRI_PLUGIN_SOCKET": "9"}, "NRI_PLUGIN_SOCKET='9' is not a socket of this process"),
        ({"NRI_PLUGIN_SOCKET": "1"}, "NRI_PLUGIN_SOCKET='1' is not a socket of this process"),
        ({"NRI_PLUGIN_SOCKET": "-3"}, "is not a socket of this process"),
        ({"NRI_PLUGIN_SOCKET": ""}, "is not a socket of this process"),
        ({"NRI_PLUGIN_SOCKET": "3" * 4000}, "is not a socket of this process"),
        ({"NRI_PLUGIN_SOCKET": "\u0663"}, "is not a socket of this process"),
        ({"NRI_PLUGIN_IDX": "7"}, "NRI_PLUGIN_IDX='7' is not an index"),
        ({"NRI_PLUGIN_NAME": "a/b"}, "NRI_PLUGIN_NAME='a/b' is not the name of a plugin"),
    ],
)
def test_what_no_runtime_gives_ends_it_in_one_line(environment: dict[str, str], words: str) -> None:
    with host() as here, started(here, **environment) as (running, _):
        assert running.process.wait(PATIENCE_S) == 2
        (line,) = running.text.splitlines()
        assert words in line


def test_a_socket_that_is_not_connected_ends_it_as_one_that_was_closed() -> None:
    with host() as here, socket.socket(socket.AF_UNIX) as alone:
        number = str(alone.fileno())
        with plugin(
            here,
            listen=False,
            environment={**NAMES, "NRI_PLUGIN_SOCKET": number},
            pass_fds=(alone.fileno(),),
        ) as running:
            assert running.process.wait(PATIENCE_S) == 0
            assert "Traceback" not in running.text


def test_another_release_of_nri_is_served_as_well() -> None:
    with host() as here, started(here) as (_, runtime):
        runtime.name, runtime.version, runtime.nri = (INJECTS_12[key] for key in ("name", "version", "nri"))
        runtime.start(reply_first=False)
        runtime.synchronize()
        assert runtime.events == 0x2408
