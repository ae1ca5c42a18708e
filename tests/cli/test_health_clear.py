"""`cdigen health --clear` clears events, lists the remaining causes, and needs no running daemon."""

import threading
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.values.unhealthy_gpus import example, save, split

from cdigen.health import state_file
from cdigen.health.marks import read
from cdigen.health.state import DeviceRecord, Evidence, HealthState
from cdigen.host.clocks import boottime
from cdigen.model.health import Cause
from cdigen.value import replace

BOOT = "11111111-2222-3333-4444-555555555555"
GPU, PART = "nvidia.com/gpu=0", "nvidia.com/gpu=0:1"


def evidence(cause: str, source: str, instance: str = "") -> Evidence:
    return Evidence(
        cause=cause,
        source=source,
        instance=instance,
        since="2026-01-01T00:00:00.000Z",
        first_s=1.0,
        last_s=1.0,
        detail="an error",
    )


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return a host whose daemon has a GPU with two instances; the GPU and one instance have causes."""
    whole = example()["nvidia"]
    gpu = split(whole.accelerators[0])
    save(tmp_path, {"nvidia": replace(whole, accelerators=(gpu,))})
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text(f"{BOOT}\n")
    record = DeviceRecord(
        vendor="nvidia",
        address=gpu.address,
        uuid=gpu.uuid,
        device_id=gpu.device_id,
        model=gpu.model,
        evidence=(
            evidence("xid-79", "log"),
            evidence("pci-fatal-error", "counter"),
            evidence("pci-off-bus", "files"),
            evidence("xid-48", "log", "gi8"),
        ),
    )
    state_file.save(f"{tmp_path}/var/lib/cdigen", HealthState(boot=BOOT, devices=(record,)))
    return tmp_path


def clears_of(host: Path) -> list[tuple[str, str]]:
    found, problem = read(f"{host}/var/lib/cdigen")
    assert problem is None
    assert all(0 < one.at_s <= boottime() for one in found.clears)
    return [(one.instance, one.boot) for one in found.clears]


def test_events_are_cleared_and_causes_of_checks_remain(cdigen: Run, host: Path) -> None:
    row = cdigen("health", "--root", host, "--clear", GPU, "--json").json
    assert (row["cleared"], row["remaining"]) == (["xid-79", "pci-fatal-error", "xid-48"], ["pci-off-bus"])
    assert (row["changed"], row["marked"]) == (True, False)
    assert clears_of(host) == [("", BOOT)]


def test_the_output_has_a_line_for_each_cause(cdigen: Run, host: Path) -> None:
    done = cdigen("health", "--root", host, "--clear", GPU)
    assert done.out.splitlines() == [
        f"{GPU}: xid-79 cleared",
        f"{GPU}: pci-fatal-error cleared",
        f"{GPU}: xid-48 cleared",
        f"{GPU}: pci-off-bus not cleared: the last check of the daemon found this cause",
    ]


def test_clear_also_removes_the_mark(cdigen: Run, host: Path) -> None:
    cdigen("health", "--root", host, "--mark", GPU, "--reason", "it smells")
    done = cdigen("health", "--root", host, "--clear", GPU)
    assert done.out.splitlines()[0] == f"{GPU}: mark removed (it smells)"
    assert len(done.out.splitlines()) == 5


@pytest.fixture
def newer_inventory(host: Path) -> HealthState:
    """Write a cause into the inventory and remove health.json; return the state that was in health.json."""
    path = host / "var/lib/cdigen/health.json"
    state, _ = state_file.read(str(path.parent), BOOT, boottime())
    path.unlink()
    whole = example()["nvidia"]
    cause = Cause(cause="xid-79", since="2026-01-01T00:00:00.000Z", detail="an error", clears_when="a reset")
    gpu = replace(whole.accelerators[0], health="unhealthy", causes=(cause,))
    save(host, {"nvidia": replace(whole, accelerators=(gpu,))})
    return state


def test_a_cause_that_the_daemon_has_not_saved_yet_is_cleared(
    cdigen: Run, host: Path, newer_inventory: HealthState
) -> None:
    writer = threading.Timer(0.2, lambda: state_file.save(f"{host}/var/lib/cdigen", newer_inventory))
    writer.start()
    row = cdigen("health", "--root", host, "--clear", GPU, "--json").json
    writer.join()
    assert "xid-79" in row["cleared"]
    assert clears_of(host) == [("", BOOT)]


@pytest.mark.usefixtures("newer_inventory")
def test_a_cause_that_the_daemon_cannot_save_is_cleared_as_well(cdigen: Run, host: Path) -> None:
    row = cdigen("health", "--root", host, "--clear", GPU, "--json").json
    assert (row["cleared"], row["changed"]) == ([], True)
    assert clears_of(host) == [("", BOOT)]
    (line,) = cdigen("health", "--root", host, "--clear", GPU).out.splitlines()
    assert line.startswith(f"{GPU}: xid-79: clear requested, health.json does not have this cause; ")


def test_an_instance_is_cleared_without_its_gpu(cdigen: Run, host: Path) -> None:
    row = cdigen("health", "--root", host, "--clear", PART, "--json").json
    assert (row["cleared"], row["remaining"]) == (["xid-48"], ["xid-79", "pci-fatal-error", "pci-off-bus"])
    assert clears_of(host) == [("gi8/ci0", BOOT)]


def test_causes_of_a_replaced_device_are_not_cleared(cdigen: Run, host: Path) -> None:
    whole = example()["nvidia"]
    save(host, {"nvidia": replace(whole, accelerators=(replace(whole.accelerators[0], uuid="GPU-other"),))})
    row = cdigen("health", "--root", host, "--clear", GPU, "--json").json
    assert (row["cleared"], row["remaining"], row["changed"]) == ([], [], False)


def test_clear_without_a_daemon_is_saved_for_the_next_daemon(cdigen: Run, host: Path) -> None:
    (host / "run/cdigen/status.json").unlink()
    assert cdigen("health", "--root", host).failed(3, "no cdigen daemon")
    assert cdigen("health", "--root", host, "--mark", GPU, "--reason", "r").failed(3, "no cdigen daemon")
    (host / "var/lib/cdigen/health.json").unlink()
    row = cdigen("health", "--root", host, "--clear", GPU, "--json").json
    assert (row["cleared"], row["changed"]) == ([], True), "the kernel log may have more events"
    assert clears_of(host) == [("", BOOT)]
    done = cdigen("health", "--root", host, "--clear", GPU)
    assert done.out == f"{GPU}: events are cleared when the daemon starts\n"


def test_clears_of_earlier_boots_are_removed(cdigen: Run, host: Path) -> None:
    cdigen("health", "--root", host, "--clear", GPU)
    cdigen("health", "--root", host, "--clear", PART)
    assert clears_of(host) == [("", BOOT), ("gi8/ci0", BOOT)]
    other = BOOT.replace("1", "9")
    (host / "proc/sys/kernel/random/boot_id").write_text(f"{other}\n")
    (host / "run/cdigen/status.json").unlink()
    cdigen("health", "--root", host, "--clear", GPU)
    assert clears_of(host) == [("", other)]
