"""`cdigen health --clear` ends causes that are events, tells which stay, and needs no daemon that runs."""

import threading
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.values.unhealthy_gpus import example, save, split

from cdigen.health import book_file
from cdigen.health.book import Book, DeviceRecord, Evidence
from cdigen.health.marks import read
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
        detail="it is ill",
    )


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return a host whose daemon knows a GPU with two instances, and causes of them."""
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
    book_file.save(f"{tmp_path}/var/lib/cdigen", Book(boot=BOOT, devices=(record,)))
    return tmp_path


def said(host: Path) -> list[tuple[str, str]]:
    words, problem = read(f"{host}/var/lib/cdigen")
    assert problem is None
    assert all(0 < one.at_s <= boottime() for one in words.clears)
    return [(one.instance, one.boot) for one in words.clears]


def test_events_are_cleared_and_what_is_still_seen_stays(cdigen: Run, host: Path) -> None:
    row = cdigen("health", "--root", host, "--clear", GPU, "--json").json
    assert (row["cleared"], row["stay"]) == (["xid-79", "pci-fatal-error", "xid-48"], ["pci-off-bus"])
    assert (row["changed"], row["marked"]) == (True, False)
    assert said(host) == [("", BOOT)]


def test_it_is_said_what_became_of_each_cause(cdigen: Run, host: Path) -> None:
    done = cdigen("health", "--root", host, "--clear", GPU)
    assert done.out.splitlines() == [
        f"{GPU}: xid-79 counts no more",
        f"{GPU}: pci-fatal-error counts no more",
        f"{GPU}: xid-48 counts no more",
        f"{GPU}: pci-off-bus stays: the daemon saw it when it last looked",
    ]


def test_a_mark_goes_as_well(cdigen: Run, host: Path) -> None:
    cdigen("health", "--root", host, "--mark", GPU, "--reason", "it smells")
    done = cdigen("health", "--root", host, "--clear", GPU)
    assert done.out.splitlines()[0] == f"{GPU} is not marked any more (it smells)"
    assert len(done.out.splitlines()) == 5


@pytest.fixture
def newer_inventory(host: Path) -> Book:
    """Let the inventory have a cause that health.json lacks; returns the book that has it."""
    path = host / "var/lib/cdigen/health.json"
    book, _ = book_file.read(str(path.parent), BOOT, boottime())
    path.unlink()
    whole = example()["nvidia"]
    cause = Cause(cause="xid-79", since="2026-01-01T00:00:00.000Z", detail="it is ill", clears_when="a reset")
    gpu = replace(whole.accelerators[0], health="unhealthy", causes=(cause,))
    save(host, {"nvidia": replace(whole, accelerators=(gpu,))})
    return book


def test_a_cause_that_the_daemon_has_not_written_down_yet_is_cleared(
    cdigen: Run, host: Path, newer_inventory: Book
) -> None:
    writer = threading.Timer(0.2, lambda: book_file.save(f"{host}/var/lib/cdigen", newer_inventory))
    writer.start()
    row = cdigen("health", "--root", host, "--clear", GPU, "--json").json
    writer.join()
    assert "xid-79" in row["cleared"]
    assert said(host) == [("", BOOT)]


@pytest.mark.usefixtures("newer_inventory")
def test_a_cause_that_the_daemon_cannot_write_down_is_cleared_as_well(cdigen: Run, host: Path) -> None:
    row = cdigen("health", "--root", host, "--clear", GPU, "--json").json
    assert (row["cleared"], row["changed"]) == ([], True)
    assert said(host) == [("", BOOT)]


def test_an_instance_is_cleared_apart_from_its_gpu(cdigen: Run, host: Path) -> None:
    row = cdigen("health", "--root", host, "--clear", PART, "--json").json
    assert (row["cleared"], row["stay"]) == (["xid-48"], ["xid-79", "pci-fatal-error", "pci-off-bus"])
    assert said(host) == [("gi8/ci0", BOOT)]


def test_causes_of_another_device_in_its_place_are_not_its(cdigen: Run, host: Path) -> None:
    whole = example()["nvidia"]
    save(host, {"nvidia": replace(whole, accelerators=(replace(whole.accelerators[0], uuid="GPU-other"),))})
    row = cdigen("health", "--root", host, "--clear", GPU, "--json").json
    assert (row["cleared"], row["stay"], row["changed"]) == ([], [], False)


def test_where_no_daemon_runs_it_counts_when_one_does_again(cdigen: Run, host: Path) -> None:
    (host / "run/cdigen/status.json").unlink()
    assert cdigen("health", "--root", host).failed(3, "no cdigen daemon")
    assert cdigen("health", "--root", host, "--mark", GPU, "--reason", "r").failed(3, "no cdigen daemon")
    (host / "var/lib/cdigen/health.json").unlink()
    row = cdigen("health", "--root", host, "--clear", GPU, "--json").json
    assert (row["cleared"], row["changed"]) == ([], True), "the kernel's log may tell of more"
    assert said(host) == [("", BOOT)]


def test_words_of_earlier_boots_are_not_kept(cdigen: Run, host: Path) -> None:
    cdigen("health", "--root", host, "--clear", GPU)
    cdigen("health", "--root", host, "--clear", PART)
    assert said(host) == [("", BOOT), ("gi8/ci0", BOOT)]
    other = BOOT.replace("1", "9")
    (host / "proc/sys/kernel/random/boot_id").write_text(f"{other}\n")
    (host / "run/cdigen/status.json").unlink()
    cdigen("health", "--root", host, "--clear", GPU)
    assert said(host) == [("", other)]
