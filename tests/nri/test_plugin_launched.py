"""The runtime launches `cdigen nri` with a socket as descriptor 3, and with NRI_PLUGIN_* as environment."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.nri.plugin import (
    INJECTS_08,
    INJECTS_12,
    REQUEST_S,
    Host,
    Plugin,
    cdi_devices,
    gpu_request,
    host,
    plugin,
)
from support.nri.runtime import Runtime, SocketTransport, container, pod
from support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = {"NRI_PLUGIN_NAME": "cdigen", "NRI_PLUGIN_IDX": "42", "NRI_PLUGIN_SOCKET": "3"}


@contextmanager
def started(here: Host, **environment: str) -> Iterator[tuple[Plugin, Runtime]]:
    """Start the plugin as containerd does (pkg/adaptation/plugin.go), with a socket as file descriptor 3."""
    runtime_end, plugin_end = socket.socketpair()
    made = Runtime(
        SocketTransport(runtime_end),
        request_timeout_s=REQUEST_S,
        registration_timeout_s=PATIENCE_S,
        **INJECTS_08,
    )
    # The shell moves the socket to descriptor 3, because Popen does not change the number of a descriptor.
    before = ("/bin/sh", "-c", 'exec 3<&0 0</dev/null; exec "$@"', "sh")
    with (
        runtime_end,
        plugin_end,
        plugin(
            here, listen=False, environment={**NAMES, **environment}, before=before, stdin=plugin_end
        ) as running,
    ):
        plugin_end.close()
        yield running, made


def test_a_launched_plugin_serves_its_socket_and_ends_with_its_connection() -> None:
    with host() as here, started(here) as (running, runtime):
        runtime.start()
        runtime.synchronize([pod()], [container()])
        assert (runtime.plugin_name, runtime.plugin_index) == ("cdigen", "42")
        assert cdi_devices(runtime.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]
        running.sees(lambda: running.state == "registered")
        runtime.close()
        assert running.process.wait(PATIENCE_S) == 0
        assert not (here.run_dir / "status.json").exists()


def test_the_configuration_from_the_runtime_is_ignored_with_a_warning() -> None:
    with host() as here, started(here) as (running, runtime):
        runtime.start(config="allow: everything")
        runtime.synchronize()
        running.sees(lambda: running.lines("configuration"))
        (line,) = running.lines("configuration")
        assert (line["level"], line["hint"]) == ("warning", "write the settings into /etc/cdigen/config.yaml")


def test_a_runtime_that_ends_before_the_registration_ends_the_plugin() -> None:
    with host() as here, started(here) as (running, runtime):
        runtime.close()
        assert running.process.wait(PATIENCE_S) == 0


def test_sigterm_ends_a_launched_plugin() -> None:
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
def test_an_invalid_environment_ends_the_plugin_with_an_error_in_one_line(
    environment: dict[str, str], words: str
) -> None:
    with host() as here, started(here, **environment) as (running, _):
        assert running.process.wait(PATIENCE_S) == 2
        (line,) = running.text.splitlines()
        assert words in line


def test_a_launched_plugin_ends_if_its_socket_is_not_connected() -> None:
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


def test_a_launched_plugin_serves_nri_0_12() -> None:
    with host() as here, started(here) as (_, runtime):
        runtime.name, runtime.version, runtime.nri = (INJECTS_12[key] for key in ("name", "version", "nri"))
        runtime.start(reply_first=False)
        runtime.synchronize()
        assert runtime.events == 0x2408
