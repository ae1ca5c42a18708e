"""`cdigen health --mark` and `--clear` apply to a single device."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.values.unhealthy_gpus import example, save, split, with_causes

from cdigen.cli.main import main
from cdigen.health.marks import read_marks
from cdigen.model.health import Cause
from cdigen.value import replace

GPU = "nvidia.com/gpu"
UUID, ADDRESS = "GPU-e4d3c2b1-a098-4f76-b5c4-d3e2f1a0b9c8", "0000:61:00.0"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return a host whose daemon has eight GPUs; the first has two instances."""
    whole = example()["nvidia"]
    save(
        tmp_path,
        {"nvidia": replace(whole, accelerators=(split(whole.accelerators[0]), *whole.accelerators[1:]))},
    )
    return tmp_path


def marks(host: Path) -> list[tuple[str, str, str]]:
    found, problem = read_marks(f"{host}/var/lib/cdigen")
    assert problem is None
    return [(one.address, one.instance, one.reason) for one in found]


@pytest.mark.parametrize(
    "word",
    [
        f"{GPU}=3",
        "3",
        UUID,
        UUID.upper(),
        f"{GPU}={UUID}",
        ADDRESS,
        "61:00.0",
        "00000000:61:00.0",
        f"{GPU}={ADDRESS}",
    ],
)
def test_a_device_can_be_named_by_number_uuid_address_or_cdi_name(cdigen: Run, host: Path, word: str) -> None:
    done = cdigen("health", "--root", host, "--mark", word, "--reason", "burn-in failed", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json == {
        "device": f"{GPU}=3",
        "address": ADDRESS,
        "uuid": UUID,
        "instance": "",
        "marked": True,
        "reason": "burn-in failed",
        "changed": True,
        "cleared": [],
        "remaining": [],
    }
    assert marks(host) == [(ADDRESS, "", "burn-in failed")]
    assert cdigen("health", "--root", host, "--clear", word, "--json").json["changed"]
    assert marks(host) == []


@pytest.mark.parametrize("word", [f"{GPU}=0:1", "0:1", "MIG-d2e3f4a5-b6c7-4d8e-9f0a-1b2c3d4e5f61"])
def test_an_instance_is_marked_without_its_gpu(cdigen: Run, host: Path, word: str) -> None:
    assert cdigen("health", "--root", host, "--mark", word, "--reason", "r").code == 0
    assert marks(host) == [("0000:1b:00.0", "gi8/ci0", "r")]
    assert "not marked" in cdigen("health", "--root", host, "--clear", "0").out
    assert cdigen("health", "--root", host, "--clear", word).code == 0
    assert marks(host) == []


def health_of(cdigen: Run, host: Path) -> dict[str, tuple[str, list[str]]]:
    rows = cdigen("health", "--root", host, "--json").json
    return {row["device"]: (row["health"], [cause["cause"] for cause in row["causes"]]) for row in rows}


def test_the_health_has_a_mark_and_its_removal_before_the_next_cycle_of_the_daemon(
    cdigen: Run, host: Path
) -> None:
    before = health_of(cdigen, host)
    cdigen("health", "--root", host, "--mark", f"{GPU}=3", "--reason", "burn-in failed")
    cdigen("health", "--root", host, "--mark", f"{GPU}=0:0", "--reason", "slow")
    assert health_of(cdigen, host) == {
        **before,
        f"{GPU}=3": ("unhealthy", ["marked"]),
        f"{GPU}=0:0": ("unhealthy", ["marked"]),
    }
    cdigen("health", "--root", host, "--mark", f"{GPU}=0", "--reason", "broken")
    marked = health_of(cdigen, host)
    assert [marked[f"{GPU}={name}"][1] for name in ("0", "0:0", "0:1")] == [
        ["marked"],
        ["marked"],
        ["xid-48", "marked"],
    ]
    for name in ("0", "0:0", "3"):
        cdigen("health", "--root", host, "--clear", f"{GPU}={name}")
    assert health_of(cdigen, host) == before


def test_the_health_of_a_device_whose_only_cause_was_a_removed_mark_is_unknown(
    cdigen: Run, host: Path
) -> None:
    cause = Cause(cause="marked", since="2026-01-01T00:00:00.000Z", detail="slow", clears_when="a clear")
    save(host, with_causes(example(), 3, cause))
    assert health_of(cdigen, host)[f"{GPU}=3"] == ("unknown", [])


def test_the_option_run_dir_selects_the_daemon(cdigen: Run, host: Path) -> None:
    moved = host / "run/elsewhere"
    (host / "run/cdigen").rename(moved)
    assert cdigen("health", "--root", host).failed(3, "no cdigen daemon")
    assert len(cdigen("health", "--root", host, "--run-dir", moved, "--json").json) == 10
    done = cdigen("health", "--root", host, "--run-dir", moved, "--mark", f"{GPU}=3", "--reason", "slow")
    assert done.out == f"{GPU}=3: marked as unhealthy (slow)\n"
    (moved / "status.json").unlink()
    assert cdigen("health", "--root", host, "--run-dir", moved, "--clear", f"{GPU}=3").code == 0


def test_the_same_mark_again_changes_nothing(cdigen: Run, host: Path) -> None:
    mark = ("health", "--root", host, "--mark", "3", "--reason", "r", "--json")
    assert cdigen(*mark).json["changed"]
    before = (host / "var/lib/cdigen/health-marks.json").stat().st_ino
    again = cdigen(*mark)
    assert (again.code, again.json["marked"], again.json["changed"]) == (0, True, False)
    assert (host / "var/lib/cdigen/health-marks.json").stat().st_ino == before
    assert cdigen("health", "--root", host, "--clear", "3", "--json").json["changed"]
    assert not cdigen("health", "--root", host, "--clear", "3", "--json").json["changed"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (f"{GPU}=all", f"matches 9 devices: {GPU}=0:0, "),
        ("8", "matches no device"),
        (f"{GPU}=none", "matches no device"),
        ("amd.com/gpu=3", "matches no device"),
        ("all", "matches no device"),
        ("GPU-", "matches no device"),
        ("\x1b[2J", "matches no device"),
        ("x" * 10_000, "matches no device"),
        ("--", "expected one argument"),
        ("", "must not be empty"),
    ],
)
@pytest.mark.parametrize("option", ["--mark", "--clear"])
def test_an_argument_that_matches_no_device_or_several_devices_is_an_error(
    cdigen: Run, host: Path, word: str, message: str, option: str
) -> None:
    reason = ("--reason", "r") if option == "--mark" else ()
    done = cdigen("health", "--root", host, option, word, *reason)
    assert done.failed(2, message)
    assert "\x1b" not in done.err
    assert len(done.err) < 400
    assert not (host / "var/lib/cdigen").exists()


def test_a_device_number_that_two_vendors_have_is_an_error(cdigen: Run, tmp_path: Path) -> None:
    save(tmp_path, {**example(), **example("ubuntu-flex170-sriov")})
    done = cdigen("health", "--root", tmp_path, "--mark", "1", "--reason", "r")
    assert done.failed(2, "matches 2 devices", f"{GPU}=1", "intel.com/gpu=1", "name one of these devices")


def test_the_address_of_a_partitioned_gpu_marks_the_gpu_and_no_partition(cdigen: Run, tmp_path: Path) -> None:
    found = example("ubuntu-2xmi300x-cpx")
    address = found["amd"].accelerators[0].address
    save(tmp_path, found)
    row = cdigen("health", "--root", tmp_path, "--mark", address, "--reason", "r", "--json").json
    assert (row["address"], row["instance"]) == (address, "")
    # This number belongs to a partition.
    assert cdigen("health", "--root", tmp_path, "--mark", "1", "--reason", "r", "--json").json["instance"]


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("", "0 characters"),
        ("   ", "of 1 to 200"),
        ("x" * 201, "201 characters"),
        ("x" * 10_240, "10240 characters"),
        ("two\nlines", "a line break: 'two\\nlines'"),
        ("\x1b[2J", "'\\x1b[2J'"),
        ("\udcff", "unprintable"),
        ("\u202e", "unprintable"),
    ],
)
def test_a_reason_that_is_not_one_line_of_1_to_200_characters_is_refused(
    cdigen: Run, host: Path, reason: str, message: str
) -> None:
    done = cdigen("health", "--root", host, "--mark", "3", "--reason", reason)
    assert done.failed(2, "--reason has", message)
    assert len(done.err) < 300
    assert not (host / "var/lib/cdigen/health-marks.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--mark", "3"), "--mark needs --reason"),
        (("--reason", "r"), "--reason needs --mark"),
        (("--clear", "3", "--reason", "r"), "--reason needs --mark"),
        (("--mark", "3", "--reason", "r", "--clear", "3"), "exclude each other"),
    ],
)
def test_contradictory_or_incomplete_options_of_health_are_an_error(
    cdigen: Run, host: Path, options: tuple[str, ...], message: str
) -> None:
    assert cdigen("health", "--root", host, *options).failed(2, message)


def test_without_a_daemon_a_mark_is_an_error(cdigen: Run, tmp_path: Path) -> None:
    assert cdigen("health", "--root", tmp_path, "--mark", "3", "--reason", "r").failed(3, "no cdigen daemon")


def test_the_mark_of_a_missing_device_can_be_cleared(cdigen: Run, host: Path) -> None:
    cdigen("health", "--root", host, "--mark", "3", "--reason", "r")
    whole = example()["nvidia"]
    save(host, {"nvidia": replace(whole, accelerators=whole.accelerators[:3])})
    assert cdigen("health", "--root", host, "--clear", "3").failed(2, "matches no device")
    row = cdigen("health", "--root", host, "--clear", ADDRESS, "--json").json
    assert (row["marked"], row["changed"], row["uuid"]) == (False, True, UUID)
    assert marks(host) == []


def test_a_damaged_file_of_marks_is_renamed(cdigen: Run, host: Path) -> None:
    cdigen("health", "--root", host, "--mark", "3", "--reason", "r")
    (host / "var/lib/cdigen/health-marks.json").write_text("{")
    assert cdigen("health", "--root", host, "--mark", "4", "--reason", "r").code == 0
    assert [address for address, _, _ in marks(host)] == ["0000:9d:00.0"]


@pytest.fixture
def shared(host: Path) -> Iterator[Path]:
    """Return a copy of the host that every user may read."""

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root = Path(folder, "host")
        shutil.copytree(host, root)
        root.chmod(0o755)
        yield root


@pytest.mark.needs_root
def test_a_user_other_than_root_can_read_the_health_but_cannot_mark_a_device(
    shared: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    os.seteuid(65534)
    try:
        shown = main(["health", "--root", str(shared), "--json"])
        rows = json.loads(capsysbinary.readouterr().out)
        code = main(["health", "--root", str(shared), "--mark", "3", "--reason", "r"])
    finally:
        os.seteuid(0)
    assert (shown, len(rows), code) == (0, 10, 5)
    (line,) = capsysbinary.readouterr().err.decode().splitlines()
    assert "Permission denied" in line


def test_an_invalid_state_directory_causes_a_single_error_line(cdigen: Run, host: Path) -> None:
    (host / "var/lib").mkdir(parents=True)
    (host / "var/lib/cdigen").write_text("")
    assert cdigen("health", "--root", host, "--mark", "3", "--reason", "r").failed(5, "var/lib/cdigen")


@pytest.mark.usefixtures("own_mounts")
def test_a_read_only_file_system_causes_a_single_error_line(host: Path) -> None:
    (host / "var/lib").mkdir(parents=True)
    script = (
        f"mount -t tmpfs -o ro tmpfs {host}/var/lib && "
        f"exec {sys.executable} -m cdigen health --root {host} --mark 3 --reason r"
    )
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 5
    assert "Read-only file system" in done.stderr
    assert len(done.stderr.splitlines()) == 1
