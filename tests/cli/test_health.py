"""`cdigen health` shows the devices of the daemon and their causes."""

from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.command.statuses import end_process
from support.values.unhealthy_gpus import ECC, FELL, example, save, split, with_causes

from cdigen.value import replace

GPU = "nvidia.com/gpu"


def test_the_json_has_a_row_for_each_device_with_its_health(cdigen: Run, tmp_path: Path) -> None:
    save(tmp_path, with_causes(example(), 3, FELL))
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
            "next_step": FELL.next_step,
        }
    ]


def test_the_table_has_each_cause_with_its_age_and_clearance(cdigen: Run, tmp_path: Path) -> None:
    save(tmp_path, with_causes(example(), 3, FELL, ECC))
    done = cdigen("health", "--root", tmp_path)
    first, second = [line for line in done.out.splitlines() if "xid" in line]
    assert first.startswith(f"{GPU}=3  ")
    assert [
        word for word in ("unhealthy", "xid-79", "days", FELL.detail, FELL.clears_when) if word not in first
    ] == []
    assert "xid-48" in second
    assert GPU not in second  # only the row of the first cause has the device name


def test_an_instance_and_its_gpu_have_separate_health(cdigen: Run, tmp_path: Path) -> None:
    whole = example()["nvidia"]
    gpus = (split(whole.accelerators[0]), *whole.accelerators[1:])
    save(tmp_path, {"nvidia": replace(whole, accelerators=gpus)})
    rows = {row["device"]: row for row in cdigen("health", "--root", tmp_path, "--json").json}
    assert (rows[f"{GPU}=0"]["health"], rows[f"{GPU}=0:0"]["health"]) == ("healthy", "healthy")
    assert (rows[f"{GPU}=0:1"]["health"], rows[f"{GPU}=0:1"]["instance"]) == ("unhealthy", "gi8/ci0")


def test_partitions_with_device_numbers_are_not_shown_as_gpus(cdigen: Run, tmp_path: Path) -> None:
    save(tmp_path, example("ubuntu-2xmi300x-cpx"))
    rows = cdigen("health", "--root", tmp_path, "--json").json
    names = [row["device"] for row in rows]
    assert len(set(names)) == len(names)
    assert {f"amd.com/gpu={number}" for number in range(16)} <= {
        row["device"] for row in rows if row["instance"]
    }


def test_a_device_that_is_not_usable_has_the_same_name_as_before(cdigen: Run, tmp_path: Path) -> None:
    whole = with_causes(example(), 3, FELL)["nvidia"]
    gpus = [
        replace(gpu, usable=gpu.index != 3, problem="" if gpu.index != 3 else "lost")
        for gpu in whole.accelerators
    ]
    save(tmp_path, {"nvidia": replace(whole, accelerators=tuple(gpus))})
    row = cdigen("health", "--root", tmp_path, "--json").json[3]
    assert (row["device"], row["usable"]) == (f"{GPU}=3", False)


def test_health_without_a_daemon_fails(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("health", "--root", tmp_path, "--json")
    assert done.failed(3, "no cdigen daemon")
    assert done.json["error"]["kind"] == "no-daemon"


def test_the_inventory_of_a_dead_daemon_is_not_shown(cdigen: Run, tmp_path: Path) -> None:
    end_process(save(tmp_path).parent / "status.json")
    done = cdigen("health", "--root", tmp_path)
    assert done.failed(3, "the cdigen daemon is not running")
    assert done.out == ""


def test_health_prints_a_note_for_a_host_without_devices(cdigen: Run, tmp_path: Path) -> None:
    save(tmp_path, {})
    done = cdigen("health", "--root", tmp_path)
    assert (done.code, done.out) == (0, "")
    assert "the daemon has found no device" in done.err


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": 9}', b"[" * 100_000])
def test_an_invalid_inventory_is_an_error(cdigen: Run, tmp_path: Path, content: bytes) -> None:
    save(tmp_path).write_bytes(content)
    assert cdigen("health", "--root", tmp_path).failed(5, "the inventory cannot be read")


def test_health_before_the_first_cycle_of_the_daemon_fails(cdigen: Run, tmp_path: Path) -> None:
    save(tmp_path).unlink()
    assert cdigen("health", "--root", tmp_path).failed(5, "there is no inventory")


def test_control_characters_of_a_kernel_log_do_not_reach_the_terminal(cdigen: Run, tmp_path: Path) -> None:
    path = save(tmp_path, with_causes(example(), 3, replace(FELL, detail="gone")))
    path.write_text(path.read_text().replace('"gone"', '"\\u001b[2Jgone"'))
    done = cdigen("health", "--root", tmp_path)
    assert "\x1b" not in done.out + done.err
