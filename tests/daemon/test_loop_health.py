"""The real daemon reads errors from the kernel log, writes them to inventory.json at once, and keeps them."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from support.daemon.host import Daemon, Host, daemon
from support.daemon.kernel_records import xid
from support.hosts.nvidia_kernel import example_gpus
from support.waiting import pause

if TYPE_CHECKING:
    from support.command.fixtures import Run
    from support.daemon.kernel_records import FakeLog

pytestmark = [pytest.mark.usefixtures("real_nodes"), pytest.mark.process]

FIRST, SECOND = (gpu.bdf for gpu in example_gpus(2))


@pytest.fixture
def host(host: Host) -> Host:
    host.boot()
    configure(host)
    return host


def configure(host: Host, keys: str = "", ignore: str = "", **daemon: object) -> None:
    # The nodes of these hosts have no driver, which the probe would report.
    host.configure(f"health: {{ignore: [node-unusable{ignore}]{keys}}}\n", **daemon)


def logged(running: Daemon) -> list[str]:
    """Return the causes in the log of RUNNING."""
    return [cause["cause"] for line in running.lines("health") for cause in line["causes"]]


def causes(host: Host, index: int = 0) -> list[str] | None:
    found = host.accelerators()
    return [one["cause"] for one in found[index]["causes"]] if found else None


def test_an_error_is_in_the_inventory_at_once_and_the_spec_is_unchanged(host: Host, log: FakeLog) -> None:
    with daemon(host) as running:
        running.rests()
        spec = host.document()
        log.write(xid(79, 1, FIRST))
        took_s = running.sees(lambda: causes(host) == ["xid-79"])
        print(f"\nin inventory.json after {took_s * 1000:.0f} ms")
        assert (host.accelerators()[0]["health"], causes(host, 1)) == ("unhealthy", [])
        running.sees(lambda: running.lines("health"))
        assert host.document() == spec


def test_an_error_that_was_logged_before_the_start_of_the_daemon_is_handled(host: Host, log: FakeLog) -> None:
    log.write(xid(79, 1, FIRST, age_s=0.5))
    with daemon(host) as running:
        running.sees(lambda: causes(host) == ["xid-79"])


def test_an_error_is_in_the_inventory_during_the_debounce_time_of_a_cycle(host: Host, log: FakeLog) -> None:
    with daemon(host) as running:
        before = running.rests()
        configure(host, debounce_s=3600, max_delay_s=3600)
        running.sees(lambda: running.cycles > before)
        cycles = running.rests()
        host.put("usr/bin/nvidia-debugdump", "new")
        pause(0.3)
        log.write(xid(79, 1, FIRST))
        running.sees(lambda: causes(host) == ["xid-79"])
        assert running.cycles == cycles


def test_a_restart_in_the_same_boot_keeps_the_cause_unchanged(host: Host, log: FakeLog) -> None:
    with daemon(host) as running:
        log.write(xid(79, 1, FIRST))
        running.sees(lambda: causes(host) == ["xid-79"])
        before = host.accelerators()[0]["causes"]
        running.rests()
        running.stop(signal.SIGKILL)
    with daemon(host) as running:
        running.rests()
        assert host.accelerators()[0]["causes"] == before
        log.write(xid(79, 1, FIRST))
        running.rests()
        assert host.accelerators()[0]["causes"] == before


def test_a_reboot_clears_the_cause(host: Host, log: FakeLog) -> None:
    with daemon(host) as running:
        log.write(xid(79, 500, FIRST))
        running.sees(lambda: causes(host) == ["xid-79"])
        running.stop()
    host.boot(2)
    with daemon(host) as running:
        running.sees(lambda: causes(host) == [])
        log.write(xid(48, 1, SECOND))
        running.sees(lambda: causes(host, 1) == ["xid-48"])


def test_a_damaged_state_is_reported_and_the_log_is_read_again(host: Host, log: FakeLog) -> None:
    host.put("var/lib/cdigen/health.json", '{"schema": 1, "boot": "1111')
    log.write(xid(79, 1, FIRST))
    with daemon(host) as running:
        running.sees(lambda: causes(host) == ["xid-79"])
        running.sees(lambda: json.loads((host.state_dir / "health.json").read_bytes())["devices"])


def test_an_unwritable_health_state_is_reported_and_causes_are_still_shown(host: Host, log: FakeLog) -> None:
    (host.state_dir / "health.json").mkdir(parents=True)
    with daemon(host) as running:
        log.write(xid(79, 1, FIRST))
        running.sees(lambda: causes(host) == ["xid-79"])
        running.sees(lambda: any("health.json" in one["message"] for one in running.status["findings"]))


def test_the_command_clears_a_cause_after_an_undetected_reset(host: Host, log: FakeLog, cdigen: Run) -> None:
    with daemon(host) as running:
        log.write(xid(79, 1, FIRST))
        running.sees(lambda: causes(host) == ["xid-79"])
        assert "xid-79 cleared" in cdigen("health", "--root", host.root, "--clear", FIRST).out
        running.sees(lambda: causes(host) == [])
        running.rests()
        running.stop(signal.SIGKILL)
    with daemon(host) as running:
        log.write(xid(79, 1, FIRST, age_s=60))
        running.rests()
        assert causes(host) == []
        log.write(xid(79, 2, FIRST))
        running.sees(lambda: causes(host) == ["xid-79"])


def test_an_unhealthy_device_is_removed_from_the_spec_if_configured(
    host: Host, log: FakeLog, cdigen: Run
) -> None:
    configure(host, ", unhealthy_in_spec: false")
    with daemon(host) as running:
        running.sees(lambda: host.devices() == {"0", "1", "all"})
        log.write(xid(79, 1, FIRST))
        running.sees(lambda: host.devices() == {"1", "all"})
        assert "unhealthy: xid-79" in host.accelerators()[0]["problem"]
        running.sees(lambda: any("xid-79" in one["message"] for one in running.status["findings"]))
        assert running.state == "degraded"
        assert cdigen("health", "--root", host.root, "--clear", FIRST).code == 0
        running.sees(lambda: host.devices() == {"0", "1", "all"})
        running.sees(lambda: running.state == "ready")


def test_ignored_causes_have_no_effect(host: Host, log: FakeLog) -> None:
    configure(host, ignore=", xid-79")
    with daemon(host) as running:
        log.write(xid(79, 1, FIRST), xid(48, 2, SECOND))
        running.sees(lambda: causes(host, 1) == ["xid-48"])
        assert causes(host) == []


def test_a_flood_of_errors_causes_few_cycles_and_the_last_error_is_in_the_inventory(
    host: Host, log: FakeLog
) -> None:
    with daemon(host) as running:
        log.write(xid(79, 1, FIRST))
        running.sees(lambda: causes(host) == ["xid-79"])
        running.rests()
        before = (host.run_dir / "inventory.json").stat()
        cycles = running.cycles
        for sequence in range(2, 2000):
            log.write(xid(79, sequence, FIRST))
        log.write(xid(48, 2000, SECOND))
        running.sees(lambda: causes(host, 1) == ["xid-48"])
        assert (host.run_dir / "inventory.json").stat().st_ino != before.st_ino
        assert running.rests() - cycles <= 3


def test_an_unreadable_kernel_log_is_a_source_problem_and_the_host_is_ready(host: Host) -> None:
    with daemon(host) as running:
        running.sees(lambda: running.status["sources"]["kernel-log"]["problem"])
        assert running.state == "ready"


def test_the_log_is_not_read_if_the_configuration_forbids_it(host: Host, log: FakeLog) -> None:
    configure(host, ", kernel_log: false")
    log.write(xid(79, 1, FIRST))
    with daemon(host) as running:
        running.rests()
        assert "kernel-log" not in running.status["sources"]
        assert causes(host) == []


@pytest.mark.usefixtures("log")
def test_a_cause_that_a_cycle_found_is_cleared_without_another_cycle(host: Host) -> None:
    configure(host, ", clear_after_minutes: 0.05")
    counter = f"sys/bus/pci/devices/{FIRST}/aer_dev_nonfatal"
    host.put(f"sys/bus/pci/devices/{FIRST}/config", "x" * 64)
    host.put(counter, "TOTAL_ERR_NONFATAL 0\n")
    with daemon(host) as running:
        running.rests()
        host.put(counter, "TOTAL_ERR_NONFATAL 1\n")
        running.process.send_signal(signal.SIGHUP)
        running.sees(lambda: "pci-nonfatal-error" in logged(running))
        running.sees(lambda: causes(host) == [])
