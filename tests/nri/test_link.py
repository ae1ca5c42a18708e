"""`cdigen nri` and a runtime that comes, goes, restarts, says nothing, or is another's already."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time

import pytest
from support.nri.plugin import Host, Plugin, asks, given, host, plugin
from support.waiting import PATIENCE_S, pause

NO_ONE = "cannot connect to {}: No such file or directory"


def test_it_comes_back_to_a_runtime_that_restarts_and_counts_that(here: Host, running: Plugin) -> None:
    runtimes = []
    for _ in range(2):
        runtime = here.runtime()
        runtimes.append(runtime)
        assert given(runtime.create(*asks("0"))) == ["nvidia.com/gpu=0"]
        running.sees(lambda: running.status.get("connections") == len(runtimes))
        here.deaf()
        runtime.close()
        running.sees(lambda: running.state == "connecting")
        here.listen()
    running.serves()
    assert running.metric("cdigen_nri_connections_total") == 2
    assert "not registered" in {line["event"] for line in running.lines()}


def test_while_the_runtime_is_away_it_is_alive_and_not_ready() -> None:
    with host() as here, plugin(here, listen=False) as running:
        running.serves()
        assert running.get("/readyz") == (503, f"{NO_ONE.format(here.socket)}\n")
        running.sees(lambda: running.status.get("reason") == NO_ONE.format(here.socket))
        assert running.metric("cdigen_nri_registered") == 0
        here.listen()
        here.runtime()
        running.sees(lambda: running.get("/readyz")[0] == 200)
        running.sees(lambda: running.status.get("state") == "registered")


USER = ("setpriv", "--reuid", "4201", "--regid", "4201", "--clear-groups")
# So that it can be started from a folder of root's; it may write nowhere for that.
READER = (*USER, "--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")


@pytest.mark.needs_root
@pytest.mark.parametrize(
    ("listen", "unit", "words"),
    [
        (
            True,
            "usr/lib/systemd/system/cdigen.service",
            ("the runtime's socket", "'systemctl start cdigen-nri'"),
        ),
        (False, "", ("run directory", "'cdigen nri' as root")),
    ],
    ids=["no rights at the socket", "no socket, no run directory, no unit"],
)
def test_a_user_who_can_be_no_plugin_is_told_so_in_one_line(
    words: tuple[str, str], unit: str, *, listen: bool
) -> None:
    with host() as here:
        if unit:
            (here.root / unit).parent.mkdir(parents=True)
            (here.root / unit).touch()
        with plugin(here, listen=listen, before=READER) as running:
            assert running.process.wait(PATIENCE_S) == 5
            (line,) = running.text.splitlines()
            problem, remedy = words
            assert problem in line
            assert f"Permission denied; the NRI plugin is root's: {remedy} starts it" in line


@pytest.mark.needs_root
def test_a_user_whose_socket_and_run_directory_they_are_is_served() -> None:
    with host() as here:
        here.listen()
        for path in (here.root.parent, here.root, *here.root.rglob("*")):
            os.chown(path, 4201, 4201, follow_symlinks=False)
        with plugin(here, before=READER):
            assert given(here.runtime().create(*asks("0"))) == ["nvidia.com/gpu=0"]


def test_the_reason_for_which_there_is_no_runtime_is_logged_once() -> None:
    with host() as here, plugin(here, listen=False) as running:
        running.serves()
        pause(1.5)
        assert len(running.lines("not registered")) == 1
        here.runtime().close()
        here.deaf()
        running.sees(lambda: len(running.lines("not registered")) >= 2)


@pytest.mark.parametrize("folder", [True, False])
def test_a_socket_that_appears_later_is_connected_to_at_once(*, folder: bool) -> None:
    with host() as here:
        if not folder:
            shutil.rmtree(here.socket.parent)
        with plugin(here, listen=False) as running:
            running.serves()
            # Longer and longer it waits from one try to the next, but for something that happens.
            pause(1.5)
            here.socket.parent.mkdir(exist_ok=True)
            here.listen()
            began = time.monotonic()
            here.runtime()
            print(f"\nconnected {time.monotonic() - began:.3f} s after the socket was there")


def test_a_socket_that_nobody_listens_on_is_tried_until_somebody_does() -> None:
    with host() as here:
        here.listen()
        here.socket.rename(here.socket.with_name("aside"))
        here.socket.with_name("aside").rename(here.socket)
        with plugin(here) as running:
            here.runtime().close()
            stale = socket.socket(socket.AF_UNIX)
            here.deaf()
            stale.bind(str(here.socket))
            stale.close()
            running.sees(lambda: "Connection refused" in str(running.status.get("reason")))
            here.socket.unlink()
            here.runtime()


def test_a_listener_whose_queue_is_full_keeps_it_neither_from_waiting_nor_from_ending() -> None:
    with host() as here:
        here.listen(backlog=0)
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(here.socket))
            with plugin(here) as running:
                running.serves()
                running.sees(lambda: "too many others wait there" in str(running.status.get("reason")))
                assert running.get("/readyz")[0] == 503
                assert running.stop() == 0
                assert not (here.run_dir / "status.json").exists()


@pytest.mark.parametrize("says", ["nothing", "registers it"])
def test_a_runtime_that_does_not_finish_the_registration_is_waited_for_and_left_at_will(
    here: Host, running: Plugin, says: str
) -> None:
    runtime = here.begun()
    if says != "nothing":
        runtime.start()
    running.serves()
    running.sees(lambda: running.state == ("connecting" if says == "nothing" else "registering"))
    assert running.get("/readyz") == (503, "the runtime has not registered the plugin yet\n")
    assert running.get("/healthz")[0] == 200
    assert running.metric("cdigen_nri_connections_total") == 0
    runtime.close()
    assert given(here.runtime().create(*asks("0"))) == ["nvidia.com/gpu=0"]
    assert running.stop() == 0


def test_a_runtime_that_refuses_it_is_tried_again_and_its_words_are_told(here: Host, running: Plugin) -> None:
    for _ in range(3):
        runtime = here.begun()
        runtime.refuse_registration("no plugins today\x1b[31m" + "x" * 5000)
        running.sees(lambda: "no plugins today" in str(running.status.get("reason")))
        runtime.close()
    assert len(running.lines("not registered")) == 1
    assert given(here.runtime().create(*asks("0"))) == ["nvidia.com/gpu=0"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("state", ["no runtime", "registering", "registered"])
def test_it_ends_in_each_state_without_a_rest(state: str, number: int) -> None:
    with host() as here, plugin(here, listen=state != "no runtime") as running:
        if state == "registering":
            here.begun().start()
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


def test_a_second_one_with_the_same_run_directory_ends_in_one_line() -> None:
    with host() as here, plugin(here) as first:
        runtime = here.runtime()
        first.sees(lambda: first.state == "registered")
        with plugin(here) as second:
            assert second.process.wait(PATIENCE_S) == 5
            (line,) = second.text.splitlines()
            assert f"held by process {first.process.pid}" in line
        assert first.state == "registered"
        assert given(runtime.create(*asks("0"))) == ["nvidia.com/gpu=0"]


def test_a_run_directory_that_was_removed_is_made_again(here: Host, running: Plugin) -> None:
    here.runtime()
    running.sees(lambda: running.state == "registered")
    running.serves()
    shutil.rmtree(here.run_dir)
    running.sees(lambda: running.state == "registered")
    running.serves()
    with plugin(here) as second:
        assert second.process.wait(PATIENCE_S) == 5


def test_what_a_killed_one_has_left_is_in_nobody_s_way() -> None:
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
