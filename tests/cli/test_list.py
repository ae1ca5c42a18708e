"""`cdigen list` on valid and invalid spec directories."""

from pathlib import Path

from support.command.fixtures import Run
from support.command.specs import GOOD, put


def test_list_names_devices_with_their_files(cdigen: Run, tmp_path: Path) -> None:
    file = put(tmp_path / "a/gpu.json", GOOD)
    row = {"device": "example.com/gpu=0", "kind": "example.com/gpu", "name": "0", "file": str(file)}
    done = cdigen("list", "--spec-dir", tmp_path / "a", "--json")
    assert done.json == [{**row, "usable": True, "reason": "", "health": "unknown", "causes": []}]
    assert "example.com/gpu=0  usable" in cdigen("list", "--spec-dir", tmp_path / "a").out


def test_list_has_the_reason_why_a_device_is_not_usable(cdigen: Run, tmp_path: Path) -> None:
    put(tmp_path / "low/gpu.json", GOOD)
    high = put(tmp_path / "high/gpu.json", GOOD)
    done = cdigen("list", "--spec-dir", tmp_path / "low", "--spec-dir", tmp_path / "high", "--json")
    usable = {row["file"]: (row["usable"], row["reason"]) for row in done.json}
    assert usable[str(high)] == (True, "")
    assert usable[str(tmp_path / "low/gpu.json")][0] is False
    assert str(high) in usable[str(tmp_path / "low/gpu.json")][1]


def test_list_reports_files_that_no_runtime_loads(cdigen: Run, tmp_path: Path) -> None:
    bad = put(tmp_path / "bad.json", "{")
    done = cdigen("list", "--spec-dir", tmp_path)
    assert done.code == 0
    assert str(bad) in done.err


def test_list_can_select_one_kind(cdigen: Run, tmp_path: Path) -> None:
    put(tmp_path / "gpu.json", GOOD)
    put(tmp_path / "nic.json", {**GOOD, "kind": "example.com/nic"})
    rows = cdigen("list", "--spec-dir", tmp_path, "--kind", "example.com/nic", "--json").json
    assert {row["kind"] for row in rows} == {"example.com/nic"}


def test_list_prints_the_spec_directories_if_there_is_no_device(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("list", "--root", tmp_path)
    assert done.code == 0
    assert "etc/cdi" in done.err


def test_the_json_output_contains_no_control_characters(cdigen: Run, tmp_path: Path) -> None:
    file = put(tmp_path / "etc/cdi/gpu\x9b31m\x7f\u202e.json", GOOD)
    done = cdigen("list", "--root", tmp_path, "--json")
    assert not any(character in done.out for character in "\x9b\x7f\u202e")
    assert str(file) in done.json[0].values()
