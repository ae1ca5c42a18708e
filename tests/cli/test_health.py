"""`cdigen health`: the devices that the daemon knows, and what is wrong with them."""

from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.command.statuses import end_process
from support.values.unhealthy_gpus import ECC, FELL, example, ill, save, split

from cdigen.value import replace

GPU = "nvidia.com/gpu"


def test_every_device_has_a_row_with_its_health(cdigen: Run, tmp_path: Path) -> None:
    save(tmp_path, ill(example(), 3, FELL))
    done = cdigen("health", "--root", tmp_path, "--json")
    assert (done.code, done.err) == (0, "")
    assert [row["device"] for row in done.json] == [f"{GPU}={number}" for number in range(8)]
    assert [row["health"] for row in done.json].count("healthy") == 7
    row = done.json[3]
    assert (row["health"], row["address"], row["uuid"][:4]) == ("unhealthy", "0000:61:00.0", "GPU-")
    assert row["causes"] == [
        {
            "cause": "xid-79",
            "since": FELL.since,
            "detail": FELL.detail,
            "clears_when": FELL.clears_when,
        }
    ]


def test_a_person_reads_the_cause_how_long_it_lasts_and_what_ends_it(cdigen: Run, tmp_path: Path) -> None:
    save(tmp_path, ill(example(), 3, FELL, ECC))
    done = cdigen("health", "--root", tmp_path)
    first, second = [line for line in done.out.splitlines() if "xid" in line]
    assert first.startswith(f"{GPU}=3  ")
    assert [
        word for word in ("unhealthy", "xid-79", "days", FELL.detail, FELL.clears_when) if word not in first
    ] == []
    assert "xid-48" in second
    assert GPU not in second  # the device's second cause, below its first


def test_an_instance_has_its_own_health_and_its_gpu_its(cdigen: Run, tmp_path: Path) -> None:
    whole = example()["nvidia"]
    gpus = (split(whole.accelerators[0]), *whole.accelerators[1:])
    save(tmp_path, {"nvidia": replace(whole, accelerators=gpus)})
    rows = {row["device"]: row for row in cdigen("health", "--root", tmp_path, "--json").json}
    assert (rows[f"{GPU}=0"]["health"], rows[f"{GPU}=0:0"]["health"]) == ("healthy", "healthy")
    assert (rows[f"{GPU}=0:1"]["health"], rows[f"{GPU}=0:1"]["instance"]) == ("unhealthy", "gi8/ci0")


def test_partitions_that_are_counted_among_all_devices_are_not_taken_for_gpus(
    cdigen: Run, tmp_path: Path
) -> None:
    save(tmp_path, example("ubuntu-2xmi300x-cpx"))
    rows = cdigen("health", "--root", tmp_path, "--json").json
    names = [row["device"] for row in rows]
    assert len(set(names)) == len(names)
    assert {f"amd.com/gpu={number}" for number in range(16)} <= {
        row["device"] for row in rows if row["instance"]
    }


def test_a_device_that_no_spec_offers_is_called_as_it_would_be(cdigen: Run, tmp_path: Path) -> None:
    whole = ill(example(), 3, FELL)["nvidia"]
    gpus = [
        replace(gpu, usable=gpu.index != 3, problem="" if gpu.index != 3 else "lost")
        for gpu in whole.accelerators
    ]
    save(tmp_path, {"nvidia": replace(whole, accelerators=tuple(gpus))})
    row = cdigen("health", "--root", tmp_path, "--json").json[3]
    assert (row["device"], row["usable"]) == (f"{GPU}=3", False)


def test_without_a_daemon_nothing_is_known(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("health", "--root", tmp_path, "--json")
    assert done.failed(3, "no cdigen daemon")
    assert done.json["error"]["kind"] == "no-daemon"


def test_what_a_daemon_that_died_knew_is_not_shown(cdigen: Run, tmp_path: Path) -> None:
    end_process(save(tmp_path).parent / "status.json")
    done = cdigen("health", "--root", tmp_path)
    assert done.failed(3, "the cdigen daemon is not running")
    assert done.out == ""


def test_a_host_without_devices_says_so(cdigen: Run, tmp_path: Path) -> None:
    save(tmp_path, {})
    done = cdigen("health", "--root", tmp_path)
    assert (done.code, done.out) == (0, "")
    assert "no device is known" in done.err


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": 9}', b"[" * 100_000])
def test_an_inventory_that_is_none_cannot_be_read(cdigen: Run, tmp_path: Path, content: bytes) -> None:
    save(tmp_path).write_bytes(content)
    assert cdigen("health", "--root", tmp_path).failed(5, "the inventory cannot be read")


def test_a_daemon_that_has_not_looked_yet_knows_nothing(cdigen: Run, tmp_path: Path) -> None:
    save(tmp_path).unlink()
    assert cdigen("health", "--root", tmp_path).failed(5, "there is no inventory")


def test_control_characters_of_a_kernel_log_do_not_reach_the_terminal(cdigen: Run, tmp_path: Path) -> None:
    path = save(tmp_path, ill(example(), 3, replace(FELL, detail="gone")))
    path.write_text(path.read_text().replace('"gone"', '"\\u001b[2Jgone"'))
    done = cdigen("health", "--root", tmp_path)
    assert "\x1b" not in done.out + done.err
