"""`cdigen nri` reloads its configuration on SIGHUP and after each change of the file."""

from __future__ import annotations

import signal
from contextlib import closing

import pytest
from support.daemon.host import Manager
from support.nri.plugin import Host, Plugin, cdi_devices, gets_soon, gpu_request, host, plugin, put
from support.nri.runtime import Rejected, Runtime
from support.waiting import PATIENCE_S, until

WRONG = "nri: {allow: [{namespaces: 7}]}\n"


@pytest.fixture
def runtime(here: Host, running: Plugin) -> Runtime:
    made = here.runtime()
    running.serves()
    return made


def injects(runtime: Runtime) -> bool:
    return cdi_devices(runtime.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]


def test_a_replaced_configuration_applies_soon(here: Host, runtime: Runtime) -> None:
    assert injects(runtime)
    for _ in range(3):
        here.configure(namespaces=["other"])
        assert until(lambda: not injects(runtime))
        here.configure(namespaces=["m*"])
        assert until(lambda: injects(runtime))


def test_a_configuration_that_is_written_in_place_applies_soon_and_a_deletion_is_reported(
    here: Host, running: Plugin, runtime: Runtime
) -> None:
    file = here.root / "etc/cdigen/config.yaml"
    before = file.read_text()

    def write(text: str) -> None:
        # The write happens while SIGSTOP stops the plugin. Otherwise the plugin could read an empty file.
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
    assert line["message"].startswith("invalid configuration ignored, the previous one stays active: ")
    assert line["message"].endswith(
        f"{file} was deleted; after the next start of the plugin no container may have devices"
    )
    assert injects(runtime)
    running.sees(lambda: "was deleted" in str(running.status["problems"]))


def test_without_a_configuration_no_container_gets_devices_and_this_is_reported() -> None:
    with host() as here:
        file = here.root / "etc/cdigen/config.yaml"
        file.unlink()
        with plugin(here) as running:
            runtime = here.runtime()
            assert not injects(runtime)
            running.sees(lambda: running.status.get("problems"))
            (line,) = running.lines("configuration")
            assert line["level"] == "warning"
            assert line["message"] == f"no container may have devices: {file} does not exist"
            (row,) = running.status["problems"]
            assert (row["rule"], row["message"]) == ("nri-allow-empty", line["message"])
            here.configure(text="nri: {}\n")
            running.sees(lambda: "is empty" in str(running.status["problems"]))
            here.configure()
            assert until(lambda: injects(runtime))
            running.sees(lambda: running.status["problems"] == [])


@pytest.mark.parametrize("text", [WRONG, "nri: [", "\0", "nri: {allowed: []}\n"])
def test_an_invalid_configuration_is_logged_once_and_the_previous_one_stays_active(
    here: Host, running: Plugin, runtime: Runtime, text: str
) -> None:
    here.configure(text=text)
    running.sees(lambda: running.lines("configuration"))
    assert injects(runtime)
    for number in range(3):
        # Each change of the spec makes the plugin read the configuration again.
        here.write_spec(["0", f"more{number}"])
        assert cdi_devices(runtime.create(*gpu_request(f"more{number}"))) == [f"nvidia.com/gpu=more{number}"]
    (line,) = running.lines("configuration")
    assert line["level"] == "error"
    assert line["message"].startswith("invalid configuration ignored, the previous one stays active: ")
    running.sees(lambda: "configuration" in [row["rule"] for row in running.status.get("problems", ())])
    here.configure()
    running.sees(lambda: running.status.get("problems") == [])
    assert injects(runtime)


def test_sighup_reloads_the_configuration_and_notifies_the_service_manager() -> None:
    with (
        host() as here,
        closing(Manager(str(here.root.parent))) as manager,
        plugin(here, environment={"NOTIFY_SOCKET": manager.path}) as running,
    ):
        runtime = here.runtime()
        assert manager.receives("READY=1", "STATUS=") is not None
        here.configure(namespaces=["other"])
        running.process.send_signal(signal.SIGHUP)
        assert manager.receives("RELOADING=1", "MONOTONIC_USEC=") is not None
        assert manager.receives("READY=1") is not None
        assert not injects(runtime)
        assert running.stop() == 0
        assert manager.receives("STOPPING=1") is not None


def test_many_sighups_do_not_affect_the_plugin(running: Plugin, runtime: Runtime) -> None:
    for _ in range(200):
        running.process.send_signal(signal.SIGHUP)
    assert injects(runtime)
    assert running.stop() == 0


def test_the_service_manager_gets_the_state_of_the_connection() -> None:
    with (
        host() as here,
        closing(Manager(str(here.root.parent))) as manager,
        plugin(here, environment={"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "300000"}),
    ):
        assert manager.receives("READY=1") is not None
        runtime = here.runtime()
        assert manager.receives("STATUS=registered with containerd 2.1.9+unknown") is not None
        assert manager.receives("WATCHDOG=1") is not None
        here.stop_listening()
        runtime.close()
        assert manager.receives("STATUS=connecting; the runtime has closed the connection") is not None
        # The watchdog must not kill the plugin while no runtime is connected.
        assert manager.receives("WATCHDOG=1") is not None


def test_with_an_invalid_configuration_at_the_start_requests_are_refused_until_it_is_fixed() -> None:
    with host() as here:
        here.configure(text=WRONG)
        with plugin(here) as running:
            runtime = here.runtime()
            with pytest.raises(Rejected, match="namespaces must be a list"):
                runtime.create(*gpu_request("0"))
            assert runtime.create(*gpu_request(None)).ByteSize() == 0
            running.sees(lambda: running.status.get("refused") == {"configuration": 1})
            here.configure()
            gets_soon(runtime, "nvidia.com/gpu=0", "0")


def test_an_invalid_file_for_the_option_config_ends_the_plugin_with_an_error_in_one_line() -> None:
    with host() as here:
        put(here.root / "etc/wrong.yaml", WRONG)
        with plugin(here, "--config", str(here.root / "etc/wrong.yaml")) as running:
            assert running.process.wait(PATIENCE_S) == 2
            (line,) = running.text.splitlines()
            assert "namespaces must be a list" in line


def test_a_change_of_image_requirements_applies(here: Host, running: Plugin, runtime: Runtime) -> None:
    needs = "NVIDIA_REQUIRE_CUDA=cuda>=99"
    with pytest.raises(Rejected, match="there is no inventory"):
        runtime.create(*gpu_request("0", needs))
    here.configure(image_requirements="off")
    running.process.send_signal(signal.SIGHUP)
    gets_soon(runtime, "nvidia.com/gpu=0", "0", needs)


def test_a_missing_spec_directory_on_the_command_line_is_logged() -> None:
    with host() as here, plugin(here, "--spec-dir", "/nowhere") as running:
        here.runtime()
        running.serves()
        assert ["--spec-dir /nowhere" in line["message"] for line in running.lines("options")] == [True]
