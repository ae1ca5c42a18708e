"""The lifetime of the daemon: `cdigen run` as a process, from its start to its end."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.daemon.host import NEW, OLD, Host, daemon, nvml_children
from support.daemon.stats import got
from support.hosts.nvidia_kernel import example_gpus, write
from support.nvml.standin import Machine, gpu, install, trusted_folder
from support.waiting import limited, pause, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")
# The limit is 2 s; a busy machine may take longer.
ENDS_WITHIN_S = 6.0
READY_WITHIN_S = 5.0
REQUEST = {"source": "signal", "reason": "SIGHUP"}


@contextmanager
def with_nvml(host: Host, fault: str) -> Iterator[tuple[Host, str]]:
    """Yield HOST, whose daemon must query NVML, and the path of an NVML with FAULT."""
    known = example_gpus(2)
    for each in known:
        information = host.root / f"proc/driver/nvidia/gpus/{each.bdf}/information"
        unknown = "GPU-????????-????-????-????-????????????"
        write(information, information.read_text().replace(each.uuid, unknown))
    gpus = tuple(gpu(each.minor, address=f"0000{each.bdf.upper()}", uuid=each.uuid) for each in known)
    with trusted_folder() as folder:
        yield host, str(install(folder, Machine(gpus=gpus, faults=(fault,))))


@pytest.fixture
def hanging(host: Host) -> Iterator[tuple[Host, str]]:
    """Return a host that needs NVML, and an NVML that never responds."""
    with with_nvml(host, "load hang") as found:
        yield found


@pytest.fixture
def slow(host: Host) -> Iterator[tuple[Host, str]]:
    """Return a host that needs NVML, and a slow NVML."""
    with with_nvml(host, "load slow 0.5") as found:
        yield found


# The start.


def test_the_daemon_reports_ready_when_the_first_cycle_has_ended(host: Host) -> None:
    with daemon(host, wait=False) as running:
        assert running.manager.receives("READY=1", "STATUS=ready: containers can use 2 devices") is not None
        assert host.devices() == {"0", "1", "all"}


@pytest.mark.wall_clock
def test_the_daemon_reports_ready_within_five_seconds_if_the_first_cycle_hangs(
    hanging: tuple[Host, str],
) -> None:
    host, library = hanging
    with daemon(host, "--nvml", library, wait=False) as running:
        # The limit does not include the start of the interpreter. A busy machine takes longer.
        running.sees(lambda: running.state == "starting")
        took = running.manager.receives("READY=1")
        assert took is not None
        assert took < READY_WITHIN_S + 4
        assert "STATUS=the first cycle is running" in running.manager.messages[-1]
        assert not host.spec.exists()


def test_the_daemon_starts_before_its_folders_and_the_driver_exist(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    host.root.mkdir()
    with daemon(host) as running:
        assert running.state == "absent"
        host.prepare()
        host.install(OLD)
        host.load()
        running.sees(lambda: host.devices() == {"0", "1", "all"})
        running.sees(lambda: running.state == "ready")


def test_the_daemon_starts_before_the_driver_root_exists(tmp_path: Path) -> None:
    host = Host(tmp_path / "host").prepare()
    host.configure()
    host.load()
    with daemon(host, "--driver-root", "/run/nvidia/driver") as running:
        assert running.state in {"settling", "absent"}
        assert "driver root /run/nvidia/driver" in running.status["vendors"][0]["reason"]
        running.sees(lambda: running.state == "absent")
        Host(host.root / "run/nvidia/driver").install(OLD)
        running.sees(lambda: running.state == "ready")
        assert "/run/nvidia/driver/usr/lib" in host.spec.read_text()


def test_a_second_daemon_is_refused_with_the_process_id_of_the_first(host: Host, cdigen_process: Run) -> None:
    with daemon(host) as running:
        done = cdigen_process("run", "--root", host.root)
        assert done.failed(5, f"held by process {running.process.pid}")
        assert running.process.poll() is None
        assert running.state == "ready"


# The end.


@pytest.mark.wall_clock
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_termination_signal_ends_the_daemon_within_the_time_limit(
    number: signal.Signals, host: Host
) -> None:
    with daemon(host) as running:
        code, took = running.stop(number)
        assert (code, took < ENDS_WITHIN_S) == (0, True)
        assert any("STOPPING=1" in message for message in running.manager.drain())
        assert running.status == {}
        assert sorted(os.listdir(host.run_dir)) == ["inventory.json", "lock"]
        assert "Traceback" not in running.text
    assert host.devices() == {"0", "1", "all"}


@pytest.mark.wall_clock
def test_a_termination_signal_ends_the_daemon_during_a_hanging_cycle(hanging: tuple[Host, str]) -> None:
    host, library = hanging
    with daemon(host, "--nvml", library, wait=False) as running:
        running.sees(lambda: nvml_children(running.process.pid))
        (child,) = nvml_children(running.process.pid)
        code, took = running.stop()
        print(f"\nended {took:.2f} s after SIGTERM in mid-cycle")
        assert (code, took < ENDS_WITHIN_S) == (0, True)
        assert not os.path.exists(f"/proc/{child}")
        assert [line["level"] for line in running.lines("shutdown_timeout")] == ["warning"]
        assert "Traceback" not in running.text
    assert host.rubbish() == []
    assert "status.json" not in os.listdir(host.run_dir)


def test_a_new_daemon_replaces_the_status_of_a_killed_daemon_before_its_first_cycle_ends(
    hanging: tuple[Host, str],
) -> None:
    host, library = hanging
    with daemon(host) as running:
        running.stop(signal.SIGKILL)
    with daemon(host, "--nvml", library, wait=False) as running:
        running.sees(lambda: nvml_children(running.process.pid))
        assert running.state == "starting"


@pytest.mark.wall_clock
@pytest.mark.parametrize("delay_s", [0.02, 0.06])
def test_a_termination_signal_during_a_write_leaves_no_temporary_files(delay_s: float, host: Host) -> None:
    with daemon(host, "--layout", "view", "--hook", "none") as running:
        host.load(gpus=4)
        running.process.send_signal(signal.SIGHUP)
        pause(delay_s)
        code, took = running.stop()
        assert (code, took < ENDS_WITHIN_S) == (0, True)
    assert host.rubbish() == []
    assert host.devices() in ({"0", "1", "all"}, {"0", "1", "2", "3", "all"})


# While the daemon runs.


@limited(2.4)
def test_the_daemon_pings_the_watchdog_more_often_than_required(host: Host, within_s: float) -> None:
    with daemon(host, WATCHDOG_USEC="2400000") as running:
        running.rests()
        running.manager.drain()
        for _ in range(3):
            assert running.manager.receives("WATCHDOG=1", within_s=within_s) is not None


def test_the_start_and_the_end_of_a_reload_are_reported(host: Host) -> None:
    with daemon(host) as running:
        running.rests()
        running.manager.drain()
        running.process.send_signal(signal.SIGHUP)
        assert running.manager.receives("RELOADING=1", "MONOTONIC_USEC=") is not None
        assert running.manager.receives("READY=1") is not None
        assert REQUEST in running.status["last_cycle"]["reasons"]


def test_a_changed_configuration_takes_effect_without_a_signal(host: Host) -> None:
    with daemon(host) as running:
        host.configure("profiles:\n  - {name: gpu, class: card}\n")
        running.sees(lambda: host.devices("nvidia.com-card.json") == {"0", "1", "all"})
        running.sees(lambda: not host.spec.exists())


def test_a_file_that_is_added_to_a_new_search_path_during_a_cycle_is_found(slow: tuple[Host, str]) -> None:
    host, library = slow
    usual = "/usr/lib/x86_64-linux-gnu"
    late = f"libnvidia-opticalflow.so.{OLD}"
    kept = (host.root / f"{usual[1:]}/{late}").rename(host.root / late)
    (host.root / "opt").mkdir()
    with daemon(host, "--nvml", library) as running:
        running.sees(lambda: running.state == "ready")
        running.rests()
        host.configure(f"library_search_paths: [{usual}, /opt]\n")
        # The daemon queries NVML after it has searched for libraries.
        running.sees(lambda: nvml_children(running.process.pid))
        kept.rename(host.root / "opt" / late)
        running.sees(lambda: late in host.spec.read_text())


def test_a_changed_debounce_time_takes_effect(host: Host) -> None:
    with daemon(host) as running:
        host.configure(debounce_s=1)
        running.sees(lambda: running.cycles > 1)
        # Longer than the debounce time, because another cycle may start at the end of the debounce time.
        running.rests(1.5)
        running.process.send_signal(signal.SIGHUP)
        took = running.sees(lambda: REQUEST in running.status["last_cycle"]["reasons"])
        assert took > 0.9


def test_an_invalid_configuration_is_reported_and_the_previous_one_stays_active(
    host: Host, cdigen: Run
) -> None:
    with daemon(host) as running:
        host.put("etc/cdigen/config.yaml", "daemon: {debounce_s: -1}\n")
        running.sees(lambda: "configuration" in found(running.status))
        (line,) = running.lines("configuration")
        assert "debounce_s" in line["message"]
        host.load(gpus=3)
        running.sees(lambda: host.devices() == {"0", "1", "2", "all"})
        metric = "cdigen_config_valid"
        assert f"{metric} 0.0" in got(running, "/metrics")[1]
        assert running.manager.receives("STATUS=", "invalid configuration ignored") is not None
        shown = cdigen("status", "--root", host.root)
        assert (shown.code, shown.out.count("debounce_s")) == (0, 1)
        # The same problem is logged once.
        assert len(running.lines("configuration")) == 1
        host.configure()
        running.sees(lambda: "configuration" not in found(running.status))
        assert f"{metric} 1.0" in got(running, "/metrics")[1]
        assert "debounce_s" not in cdigen("status", "--root", host.root).out


def found(status: dict[str, list[dict[str, str]]]) -> set[str]:
    return {finding["rule"] for finding in status.get("findings", [])}


def test_periodic_cycles_without_changes_are_not_logged(host: Host) -> None:
    host.configure(resync_s=0.2)
    with daemon(host) as running:
        running.sees(lambda: running.cycles > 5)
        # Kernel events of this machine cause cycles as well.
        running.sees(lambda: running.status["last_cycle"]["reasons"][0]["source"] == "timer")
        assert running.status["last_cycle"]["result"] == "unchanged"
        assert len(running.lines()) == 1


def test_the_state_changes_with_each_step_of_a_driver_upgrade(host: Host) -> None:
    host.configure(settle_timeout_s=3600)
    with daemon(host) as running:
        host.set_version(NEW)
        running.sees(lambda: running.state == "settling")
        host.configure()
        running.sees(lambda: running.state == "mismatch")
        host.install(NEW)
        running.sees(lambda: running.state == "ready" and host.driver() == NEW)
        host.uninstall()
        host.unload()
        running.sees(lambda: running.state == "absent")
        assert host.document() is None


def test_an_unwritable_run_directory_does_not_end_the_daemon(host: Host) -> None:
    with daemon(host) as running:
        # The daemon is stopped, because a running daemon could create the directory again.
        running.process.send_signal(signal.SIGSTOP)
        moved = host.run_dir.rename(host.root / "moved")
        host.run_dir.write_text("in the way")
        running.process.send_signal(signal.SIGCONT)
        host.load(gpus=3)
        assert until(lambda: host.devices() == {"0", "1", "2", "all"})
        running.sees(lambda: running.lines("status"))
        running.process.send_signal(signal.SIGSTOP)
        host.run_dir.unlink()
        moved.rename(host.run_dir)
        running.process.send_signal(signal.SIGCONT)
        running.process.send_signal(signal.SIGHUP)
        running.sees(lambda: running.state == "ready")
        assert running.stop()[0] == 0
