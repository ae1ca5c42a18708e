"""Several kinds in one run: an error of one kind does not affect other kinds, and --json is one document."""

import json
import os
from pathlib import Path

import pytest
from support.command.fixtures import Done, Run
from support.command.specs import FOREIGN, add_family, configure, put

GPU = "run/cdi/nvidia.com-gpu.json"
COMPUTE = "run/cdi/nvidia.com-gpu-compute.json"
MOFED = "run/cdi/nvidia.com-mofed.json"
PROFILES = """
profiles:
  - {name: all, class: gpu, names: [type-index]}
  - {name: compute, class: gpu-compute, names: [index]}
"""
# podman 4.2 rejects names that begin with a digit. All names of gpu-compute begin with a digit.
BROKEN = ("--target", "podman-4.2")


@pytest.fixture
def two(host: Path) -> Path:
    """Return a host whose configuration has two kinds."""
    configure(host, PROFILES)
    return host


def without_family(host: Path) -> None:
    (host / "dev/infiniband/uverbs0").unlink()
    (host / "dev/infiniband").rmdir()


def without_driver(host: Path) -> None:
    (host / "proc/driver/nvidia/version").unlink()


def results(done: Done) -> dict[str, str]:
    return {row["kind"]: row["result"] for row in done.json}


def test_a_broken_kind_does_not_affect_other_kinds(cdigen: Run, two: Path) -> None:
    done = cdigen("generate", "--root", two, "--write", "--json", *BROKEN)
    assert done.failed(4, "begins with a digit")
    assert results(done) == {"nvidia.com/gpu": "written", "nvidia.com/gpu-compute": "refused"}
    refused = done.json[1]
    assert refused["file"] == str(two / COMPUTE)
    assert [finding["severity"] for finding in refused["findings"]][-1] == "error"
    assert "begins with a digit" in refused["findings"][-1]["message"]
    assert (two / GPU).exists()
    assert not (two / COMPUTE).exists()


def test_with_a_broken_kind_generate_prints_one_document(cdigen: Run, two: Path) -> None:
    done = cdigen("generate", "--root", two, "--json", *BROKEN)
    assert done.failed(4, "begins with a digit")
    assert [document["kind"] for document in done.json] == ["nvidia.com/gpu"]


def test_a_run_with_only_broken_kinds_prints_one_error_document(
    cdigen: Run, two: Path, tmp_path: Path
) -> None:
    only = (*BROKEN, "--kind", "nvidia.com/gpu-compute")
    for where in ((), ("--write",), ("--output", tmp_path / "x"), ("--output-dir", tmp_path / "y")):
        done = cdigen("generate", "--root", two, "--json", *only, *where)
        assert done.failed(4, "begins with a digit")
        assert set(done.json) == {"error"}
    assert not (two / "run/cdi").exists()


def test_a_conflict_of_one_kind_does_not_affect_other_kinds(cdigen: Run, two: Path) -> None:
    path = put(two / "run/cdi/other.json", FOREIGN)
    done = cdigen("generate", "--root", two, "--write", "--json")
    assert done.failed(4, str(path), "--replace-foreign")
    assert results(done) == {"nvidia.com/gpu": "refused", "nvidia.com/gpu-compute": "written"}
    assert done.json[0]["findings"][-1]["rule"] == "foreign-spec"
    assert not (two / GPU).exists()
    assert (two / COMPUTE).exists()


def test_a_conflict_of_the_only_kind_is_one_error_document(cdigen: Run, host: Path) -> None:
    put(host / "run/cdi/other.json", FOREIGN)
    done = cdigen("generate", "--root", host, "--write", "--json")
    assert done.code == 4
    assert done.json["error"]["kind"] == "foreign-spec"


def test_a_file_that_cannot_be_written_does_not_affect_other_kinds(
    cdigen: Run, two: Path, tmp_path: Path
) -> None:
    (tmp_path / "out/nvidia.com-gpu.json").mkdir(parents=True)
    done = cdigen("generate", "--root", two, "--output-dir", tmp_path / "out", "--json")
    assert done.code == 5
    assert results(done) == {"nvidia.com/gpu": "refused", "nvidia.com/gpu-compute": "written"}


def test_json_has_the_file_of_the_option_output(cdigen: Run, host: Path, tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    row = cdigen("generate", "--root", host, "--output", file, "--json").json[0]
    assert (row["kind"], row["file"], row["result"]) == ("nvidia.com/gpu", str(file), "written")
    assert set(row) == {"kind", "file", "result", "changed", "findings"}
    assert json.loads(file.read_text())["kind"] == "nvidia.com/gpu"


def test_json_has_the_files_of_the_option_output_dir(cdigen: Run, two: Path, tmp_path: Path) -> None:
    done = cdigen("generate", "--root", two, "--output-dir", tmp_path, "--format", "yaml", "--json")
    names = ("nvidia.com-gpu.yaml", "nvidia.com-gpu-compute.yaml")
    assert [row["file"] for row in done.json] == [str(tmp_path / name) for name in names]


def test_several_kinds_cannot_be_written_into_one_file_with_json(
    cdigen: Run, two: Path, tmp_path: Path
) -> None:
    both = ("--kind", "nvidia.com/gpu", "--kind", "nvidia.com/gpu-compute")
    done = cdigen("generate", "--root", two, *both, "--output", tmp_path / "x", "--json")
    assert done.code == 2
    assert set(done.json) == {"error"}


def test_withdrawing_the_specs_of_a_missing_driver_prints_one_document(cdigen: Run, two: Path) -> None:
    cdigen("generate", "--root", two, "--write")
    without_driver(two)
    done = cdigen("generate", "--root", two, "--write", "--withdraw", "--json")
    assert done.failed(3, "not loaded")
    assert results(done) == {"nvidia.com/gpu": "withdrawn", "nvidia.com/gpu-compute": "withdrawn"}
    assert not os.listdir(two / "run/cdi")
    again = cdigen("generate", "--root", two, "--write", "--withdraw", "--json")
    assert again.failed(3, "not loaded")
    assert results(again) == {"nvidia.com/gpu": "absent"}


def test_withdraw_removes_the_spec_of_a_missing_family_and_keeps_the_spec_of_the_gpus(
    cdigen: Run, host: Path
) -> None:
    add_family(host)
    cdigen("generate", "--root", host, "--write")
    assert (host / MOFED).exists()
    without_family(host)
    assert cdigen("generate", "--root", host, "--write").code == 0
    assert (host / MOFED).exists()
    done = cdigen("generate", "--root", host, "--write", "--withdraw", "--json")
    assert done.code == 0
    assert results(done) == {"nvidia.com/gpu": "unchanged", "nvidia.com/mofed": "withdrawn"}
    assert "no device of that kind" in done.err
    assert not (host / MOFED).exists()


def test_withdraw_keeps_kinds_that_only_the_options_exclude(cdigen: Run, two: Path) -> None:
    cdigen("generate", "--root", two, "--write")
    for only in (("--kind", "nvidia.com/gpu"), ("--profile", "all")):
        done = cdigen("generate", "--root", two, "--write", "--withdraw", "--json", *only)
        assert results(done) == {"nvidia.com/gpu": "unchanged"}
    assert (two / COMPUTE).exists()


def test_withdraw_keeps_the_old_spec_of_a_broken_kind(cdigen: Run, two: Path) -> None:
    cdigen("generate", "--root", two, "--write")
    done = cdigen("generate", "--root", two, "--write", "--withdraw", "--json", *BROKEN)
    assert results(done)["nvidia.com/gpu-compute"] == "refused"
    assert (two / COMPUTE).exists()


def test_withdraw_keeps_specs_of_other_vendors_and_other_directories_and_edited_specs(
    cdigen: Run, two: Path, tmp_path: Path
) -> None:
    cdigen("generate", "--root", two, "--write", "--spec-dir", tmp_path / "other")
    cdigen("generate", "--root", two, "--write")
    state = two / "var/lib/cdigen/state.json"
    document = json.loads(state.read_text())
    document["specs"][str(two / COMPUTE)]["kind"] = "example.com/gpu-compute"
    state.write_text(json.dumps(document))
    (two / GPU).write_text("edited")
    without_driver(two)
    done = cdigen("generate", "--root", two, "--write", "--withdraw", "--json")
    assert (done.code, done.json["error"]["kind"]) == (4, "foreign-file")
    assert "was changed since cdigen wrote it and stays" in done.json["error"]["message"]
    assert sorted(os.listdir(two / "run/cdi")) == ["nvidia.com-gpu-compute.json", "nvidia.com-gpu.json"]
    assert len(os.listdir(tmp_path / "other")) == 2


def test_withdraw_reports_a_damaged_state_file(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    (host / "var/lib/cdigen/state.json").write_text("{")
    without_driver(host)
    done = cdigen("generate", "--root", host, "--write", "--withdraw")
    assert done.failed(3, "not loaded")
    assert "[state-damaged]" in done.err
    assert (host / GPU).exists()


def test_each_finding_is_printed_once(cdigen: Run, two: Path, tmp_path: Path) -> None:
    (two / "dev/nvidia1").unlink()
    for where in (("--json",), ("--write",), ("--output-dir", tmp_path)):
        lines = cdigen("generate", "--root", two, "--verbose", *where).err.splitlines()
        assert any("/dev/nvidia1" in line for line in lines)
        assert len(lines) == len(set(lines)), where


def test_notes_escape_control_characters(cdigen: Run, host: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a\nb\033[1m"
    for code, *arguments in (
        (0, "generate", "--write", "--spec-dir", odd),
        (0, "generate", "--output", odd / "x"),
        (0, "generate", "--output-dir", odd),
        (2, "list", "--spec-dir", odd / "none"),
    ):
        done = cdigen(*arguments, "--root", host)
        assert done.code == code
        assert "a\\nb\\x1b[1m" in done.err
        assert "\033" not in done.err
    listed = cdigen("list", "--spec-dir", odd, "--root", host)
    assert "a\\nb\\x1b[1m/nvidia.com-gpu.json" in listed.out
    without_driver(host)
    gone = cdigen("generate", "--write", "--withdraw", "--spec-dir", odd, "--root", host)
    assert "a\\nb\\x1b[1m/nvidia.com-gpu.json: withdrawn" in gone.err


@pytest.mark.parametrize(
    "option", ["--root", "--spec-dir", "--output", "--output-dir", "--config", "--inventory"]
)
def test_an_empty_path_is_a_usage_error(cdigen: Run, option: str) -> None:
    assert cdigen("generate", option, "").failed(2, option, "must not be empty")


@pytest.mark.parametrize(
    "option",
    [
        "--driver-root",
        "--dev-root",
        "--container-driver-root",
        "--library-search-path",
        "--config-search-path",
    ],
)
@pytest.mark.parametrize("path", ["", "run", "/run/../etc", "/./run", "/ru\nn", "/ru\x1bn"])
def test_an_option_rejects_the_host_paths_that_the_configuration_rejects(
    cdigen: Run, host: Path, option: str, path: str
) -> None:
    for command in ("generate", "inspect"):
        assert cdigen(command, "--root", host, option, path).failed(2, option)
