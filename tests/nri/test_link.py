"""`cdigen nri` and a runtime that starts, stops, restarts, does not respond, or has another plugin."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time

import pytest
from support.nri.plugin import Host, Plugin, cdi_devices, gpu_request, host, plugin
from support.waiting import PATIENCE_S, pause

NO_SOCKET = "cannot connect to {}: No such file or directory"


def test_the_plugin_reconnects_to_a_restarted_runtime_and_counts_the_connections(
    here: Host, running: Plugin
) -> None:
    runtimes = []
    for _ in range(2):
        runtime = here.runtime()
        runtimes.append(runtime)
        assert cdi_devices(runtime.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]
        running.sees(lambda: running.status.get("connections") == len(runtimes))
        here.stop_listening()
        runtime.close()
        running.sees(lambda: running.state == "connecting")
        here.listen()
    running.serves()
    assert running.metric("cdigen_nri_connections_total") == 2
    assert "not_registered" in {line["event"] for line in running.lines()}


def test_without_a_runtime_the_plugin_is_alive_and_not_ready() -> None:
    with host() as here, plugin(here, listen=False) as running:
        running.serves()
        assert running.get("/readyz") == (503, f"{NO_SOCKET.format(here.socket)}\n")
        running.sees(lambda: running.status.get("reason") == NO_SOCKET.format(here.socket))
        assert running.metric("cdigen_nri_registered") == 0
        here.listen()
        here.runtime()
        running.sees(lambda: running.get("/readyz")[0] == 200)
        running.sees(lambda: running.status.get("state") == "registered")


USER = ("setpriv", "--reuid", "4201", "--regid", "4201", "--clear-groups")
# The capability permits the reads in root's folders that the plugin needs to start. It permits no writes.
READER = (*USER, "--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")


@pytest.mark.needs_root
@pytest.mark.parametrize(
    ("listen", "unit", "owned", "words"),
    [
        (
            True,
            "usr/lib/systemd/system/cdigen.service",
            (),
            ("the runtime's socket", "'systemctl start cdigen-nri'"),
        ),
        (False, "", (), ("the runtime's socket", "'cdigen nri' as root")),
        (False, "", ("run/cdigen-nri",), ("the runtime's socket", "'cdigen nri' as root")),
        (False, "", ("run/nri",), ("run directory", "'cdigen nri' as root")),
    ],
    ids=["no access to the socket", "no socket, no unit", "only the run directory", "no run directory"],
)
def test_a_user_without_permissions_gets_an_error_in_one_line(
    words: tuple[str, str], unit: str, owned: tuple[str, ...], *, listen: bool
) -> None:
    with host() as here:
        if unit:
            (here.root / unit).parent.mkdir(parents=True)
            (here.root / unit).touch()
        here.root.parent.chmod(0o755)
        for folder in owned:
            (here.root / folder).mkdir(exist_ok=True)
            os.chown(here.root / folder, 4201, 4201)
        with plugin(here, listen=listen, before=READER) as running:
            assert running.process.wait(PATIENCE_S) == 5
            (line,) = running.text.splitlines()
            problem, remedy = words
            assert problem in line
            assert f"Permission denied; start it with {remedy}" in line


@pytest.mark.needs_root
def test_a_user_with_permissions_can_run_the_plugin() -> None:
    with host() as here:
        here.listen()
        for path in (here.root.parent, here.root, *here.root.rglob("*")):
            os.chown(path, 4201, 4201, follow_symlinks=False)
        with plugin(here, before=READER):
            assert cdi_devices(here.runtime().create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]


def test_the_reason_of_a_missing_runtime_is_logged_once() -> None:
    with host() as here, plugin(here, listen=False) as running:
        running.serves()
        pause(1.5)
        assert len(running.lines("not_registered")) == 1
        here.runtime().close()
        here.stop_listening()
        running.sees(lambda: len(running.lines("not_registered")) >= 2)


@pytest.mark.parametrize("folder", [True, False])
def test_the_plugin_connects_at_once_to_a_socket_that_appears(*, folder: bool) -> None:
    with host() as here:
        if not folder:
            shutil.rmtree(here.socket.parent)
        with plugin(here, listen=False) as running:
            running.serves()
            # The delays between attempts grow, but a change of the socket ends the wait.
            pause(1.5)
            here.socket.parent.mkdir(exist_ok=True)
            here.listen()
            began = time.monotonic()
            here.runtime()
            print(f"\nconnected {time.monotonic() - began:.3f} s after the socket appeared")


def test_the_plugin_retries_a_connection_to_a_socket_without_a_listener() -> None:
    with host() as here:
        here.listen()
        here.socket.rename(here.socket.with_name("aside"))
        here.socket.with_name("aside").rename(here.socket)
        with plugin(here) as running:
            here.runtime().close()
            stale = socket.socket(socket.AF_UNIX)
            here.stop_listening()
            stale.bind(str(here.socket))
            stale.close()
            running.sees(lambda: "Connection refused" in str(running.status.get("reason")))
            here.socket.unlink()
            here.runtime()


def test_a_full_connection_queue_of_the_runtime_does_not_block_the_plugin() -> None:
    with host() as here:
        here.listen(backlog=0)
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(here.socket))
            with plugin(here) as running:
                running.serves()
                running.sees(lambda: "the socket's queue is full" in str(running.status.get("reason")))
                assert running.get("/readyz")[0] == 503
                assert running.stop() == 0
                assert not (here.run_dir / "status.json").exists()


@pytest.mark.parametrize("response", ["none", "registered"])
def test_the_plugin_waits_for_an_unfinished_registration_and_can_be_stopped(
    here: Host, running: Plugin, response: str
) -> None:
    runtime = here.unregistered_runtime()
    if response != "none":
        runtime.start()
    running.serves()
    running.sees(lambda: running.state == ("connecting" if response == "none" else "registering"))
    assert running.get("/readyz") == (503, "the runtime has not registered the plugin yet\n")
    assert running.get("/healthz")[0] == 200
    assert running.metric("cdigen_nri_connections_total") == 0
    runtime.close()
    assert cdi_devices(here.runtime().create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]
    assert running.stop() == 0


def test_a_refused_registration_is_retried_and_its_reason_logged(here: Host, running: Plugin) -> None:
    for _ in range(3):
        runtime = here.unregistered_runtime()
        runtime.refuse_registration("no plugins today\x1b[31m" + "x" * 5000)
        running.sees(lambda: "no plugins today" in str(running.status.get("reason")))
        runtime.close()
    assert len(running.lines("not_registered")) == 1
    assert cdi_devices(here.runtime().create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("state", ["no runtime", "registering", "registered"])
def test_the_plugin_ends_cleanly_in_each_state(state: str, number: int) -> None:
    with host() as here, plugin(here, listen=state != "no runtime") as running:
        if state == "registering":
            here.unregistered_runtime().start()
        elif state == "registered":
            runtime = here.runtime()
            running.serves()
            running.sees(lambda: running.state == "registered")
        running.sees((here.run_dir / "lock").exists)
        assert running.stop(number) == 0
        assert [name for name in os.listdir(here.run_dir) if name != "lock"] == []
        if state == "registered":
            assert running.lines()[-1]["event"] == "stopped"
            assert runtime.transport.receive(1) == b""


def test_a_second_plugin_with_the_same_run_directory_ends_with_an_error_in_one_line() -> None:
    with host() as here, plugin(here) as first:
        runtime = here.runtime()
        first.sees(lambda: first.state == "registered")
        with plugin(here) as second:
            assert second.process.wait(PATIENCE_S) == 5
            (line,) = second.text.splitlines()
            assert f"held by process {first.process.pid}" in line
        assert first.state == "registered"
        assert cdi_devices(runtime.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]


def test_a_removed_run_directory_is_created_again(here: Host, running: Plugin) -> None:
    here.runtime()
    running.sees(lambda: running.state == "registered")
    running.serves()
    shutil.rmtree(here.run_dir)
    running.sees(lambda: running.state == "registered")
    running.serves()
    with plugin(here) as second:
        assert second.process.wait(PATIENCE_S) == 5


def test_the_files_of_a_killed_plugin_do_not_affect_the_next_plugin() -> None:
    with host() as here:
        with plugin(here) as running:
            runtime = here.runtime()
            running.sees(lambda: running.state == "registered")
            running.serves()
            assert running.stop(signal.SIGKILL) == -signal.SIGKILL
            assert runtime.transport.receive(PATIENCE_S) == b""
        assert (here.run_dir / "status.json").exists()
        with plugin(here) as running:
            here.runtime()
            running.sees(lambda: running.state == "registered")
            running.serves()
