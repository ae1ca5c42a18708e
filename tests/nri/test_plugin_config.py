"""The configuration of `cdigen nri`, read again by SIGHUP and whenever its file changes."""

from __future__ import annotations

import signal
from contextlib import closing

import pytest
from support.daemon.host import Manager
from support.nri.plugin import Host, Plugin, asks, gets_soon, given, host, plugin, put
from support.nri.runtime import Rejected, Runtime
from support.waiting import PATIENCE_S, until

WRONG = "nri: {allow: [{namespaces: 7}]}\n"


@pytest.fixture
def runtime(here: Host, running: Plugin) -> Runtime:
    made = here.runtime()
    running.serves()
    return made


def injects(runtime: Runtime) -> bool:
    return given(runtime.create(*asks("0"))) == ["nvidia.com/gpu=0"]


def test_a_configuration_that_is_replaced_counts_soon(here: Host, runtime: Runtime) -> None:
    assert injects(runtime)
    for _ in range(3):
        here.configure(namespaces=["other"])
        assert until(lambda: not injects(runtime))
        here.configure(namespaces=["m*"])
        assert until(lambda: injects(runtime))


def test_a_configuration_that_is_written_in_place_counts_soon_and_one_that_has_gone_does_not(
    here: Host, running: Plugin, runtime: Runtime
) -> None:
    file = here.root / "etc/cdigen/config.yaml"
    before = file.read_text()

    def write(text: str) -> None:
        # The plugin does not run meanwhile: it would report the empty file that it may find.
        running.process.send_signal(signal.SIGSTOP)
        file.write_text(text)
        running.process.send_signal(signal.SIGCONT)

    write(before.replace("ml", "other"))
    assert until(lambda: not injects(runtime))
    write(before)
    assert until(lambda: injects(runtime))
    file.unlink()
    running.sees(lambda: "was deleted" in str(running.lines("configuration")))
    (line,) = running.lines("configuration")
    assert line["message"].startswith("the configuration does not count, the last good one does: ")
    assert line["message"].endswith(
        f"{file} was deleted; from the plugin's next start on nobody may have devices"
    )
    assert injects(runtime)
    running.sees(lambda: "was deleted" in str(running.status["problems"]))


def test_without_a_configuration_no_container_gets_devices_and_log_and_status_say_so() -> None:
    with host() as here:
        file = here.root / "etc/cdigen/config.yaml"
        file.unlink()
        with plugin(here) as running:
            runtime = here.runtime()
            assert not injects(runtime)
            running.sees(lambda: running.status.get("problems"))
            (line,) = running.lines("configuration")
            assert line["level"] == "warning"
            assert line["message"] == f"no container may have devices: there is no {file}"
            (row,) = running.status["problems"]
            assert (row["rule"], row["message"]) == ("nri-allows-nobody", line["message"])
            here.configure(text="nri: {}\n")
            running.sees(lambda: "is empty" in str(running.status["problems"]))
            here.configure()
            assert until(lambda: injects(runtime))
            running.sees(lambda: running.status["problems"] == [])


@pytest.mark.parametrize("text", [WRONG, "nri: [", "\0", "nri: {allowed: []}\n"])
def test_one_that_is_wrong_is_said_once_and_the_last_good_one_counts(
    here: Host, running: Plugin, runtime: Runtime, text: str
) -> None:
    here.configure(text=text)
    running.sees(lambda: running.lines("configuration"))
    assert injects(runtime)
    for number in range(3):
        # Each of these makes it look again.
        here.write_spec(["0", f"more{number}"])
        assert given(runtime.create(*asks(f"more{number}"))) == [f"nvidia.com/gpu=more{number}"]
    (line,) = running.lines("configuration")
    assert line["level"] == "error"
    assert line["message"].startswith("the configuration does not count, the last good one does: ")
    running.sees(lambda: "configuration" in [row["rule"] for row in running.status.get("problems", ())])
    here.configure()
    running.sees(lambda: running.status.get("problems") == [])
    assert injects(runtime)


def test_sighup_reads_it_again_and_the_manager_hears_when_it_counts() -> None:
    with (
        host() as here,
        closing(Manager(str(here.root.parent))) as manager,
        plugin(here, environment={"NOTIFY_SOCKET": manager.path}) as running,
    ):
        runtime = here.runtime()
        assert manager.hears("READY=1", "STATUS=") is not None
        here.configure(namespaces=["other"])
        running.process.send_signal(signal.SIGHUP)
        assert manager.hears("RELOADING=1", "MONOTONIC_USEC=") is not None
        assert manager.hears("READY=1") is not None
        assert not injects(runtime)
        assert running.stop() == 0
        assert manager.hears("STOPPING=1") is not None


def test_a_storm_of_signals_harms_nothing(running: Plugin, runtime: Runtime) -> None:
    for _ in range(200):
        running.process.send_signal(signal.SIGHUP)
    assert injects(runtime)
    assert running.stop() == 0


def test_the_manager_hears_that_the_runtime_has_gone_and_come() -> None:
    with (
        host() as here,
        closing(Manager(str(here.root.parent))) as manager,
        plugin(here, environment={"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "300000"}),
    ):
        assert manager.hears("READY=1") is not None
        runtime = here.runtime()
        assert manager.hears("STATUS=registered with containerd 2.1.9+unknown") is not None
        assert manager.hears("WATCHDOG=1") is not None
        here.deaf()
        runtime.close()
        assert manager.hears("STATUS=connecting; the runtime has closed the connection") is not None
        # A runtime that is away is no reason to be killed for.
        assert manager.hears("WATCHDOG=1") is not None


def test_with_a_configuration_that_is_wrong_at_the_start_whoever_asks_is_refused_until_it_is_right() -> None:
    with host() as here:
        here.configure(text=WRONG)
        with plugin(here) as running:
            runtime = here.runtime()
            with pytest.raises(Rejected, match="namespaces must be a list"):
                runtime.create(*asks("0"))
            assert runtime.create(*asks(None)).ByteSize() == 0
            running.sees(lambda: running.status.get("refused") == {"configuration": 1})
            here.configure()
            gets_soon(runtime, "nvidia.com/gpu=0", "0")


def test_a_configuration_that_is_named_and_wrong_ends_it_in_one_line() -> None:
    with host() as here:
        put(here.root / "etc/wrong.yaml", WRONG)
        with plugin(here, "--config", str(here.root / "etc/wrong.yaml")) as running:
            assert running.process.wait(PATIENCE_S) == 2
            (line,) = running.text.splitlines()
            assert "namespaces must be a list" in line


def test_dropper_and_require_count_when_they_are_changed(
    here: Host, running: Plugin, runtime: Runtime
) -> None:
    needs = "NVIDIA_REQUIRE_CUDA=cuda>=99"
    with pytest.raises(Rejected, match="there is no inventory"):
        runtime.create(*asks("0", needs))
    here.configure(require="off")
    running.process.send_signal(signal.SIGHUP)
    gets_soon(runtime, "nvidia.com/gpu=0", "0", needs)


def test_a_spec_directory_of_its_command_line_that_is_not_there_is_logged() -> None:
    with host() as here, plugin(here, "--spec-dir", "/nowhere") as running:
        here.runtime()
        running.serves()
        assert ["--spec-dir /nowhere" in line["message"] for line in running.lines("options")] == [True]
