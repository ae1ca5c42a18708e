"""File names that are not UTF-8 (stray names): every command prints them, and no spec contains them."""

import json
import os
from pathlib import Path

import pytest
from support.command.fixtures import Run

from cdigen.model.findings import Finding

STRAY = os.fsdecode(b"q\xff.json")


@pytest.fixture
def stray(cdigen: Run, host: Path) -> Path:
    """Return a copy of the host's spec in the directory of lower priority, with a name that is not UTF-8."""
    assert cdigen("generate", "--root", host, "--write").code == 0
    path = host / "etc/cdi" / STRAY
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((host / "run/cdi/nvidia.com-gpu.json").read_bytes())
    return path


def test_list_prints_a_file_name_that_programs_can_decode(cdigen: Run, host: Path, stray: Path) -> None:
    rows = cdigen("list", "--root", host, "--json").json
    assert os.fsencode(str(stray)) in {os.fsencode(row["file"]) for row in rows}
    assert "q\\udcff.json" in cdigen("list", "--root", host).out


def test_generate_reports_a_hidden_file_with_a_stray_name(cdigen: Run, host: Path, stray: Path) -> None:
    done = cdigen("generate", "--root", host, "--write", "--json")
    assert done.code == 0
    assert str(stray) in {finding["path"] for finding in done.json[0]["findings"]}


def test_generate_reports_a_conflicting_file_with_a_stray_name(cdigen: Run, host: Path, stray: Path) -> None:
    beside = host / "run/cdi" / STRAY
    stray.rename(beside)
    assert cdigen("generate", "--root", host, "--write").failed(4, "q\\udcff.json")
    done = cdigen("generate", "--root", host, "--write", "--json")
    assert (done.code, "q\\udcff.json" in done.json["error"]["message"]) == (4, True)
    assert cdigen("generate", "--root", host, "--write", "--replace-foreign", "--json").code == 0
    assert not os.path.lexists(beside)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_validate_checks_a_file_with_a_stray_name(cdigen: Run, stray: Path, options: tuple[str, ...]) -> None:
    done = cdigen("validate", stray, *options)
    assert (done.code, done.err) == (0, "")
    assert "udcff" in done.out


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("command", ["diff", "inspect", "prune"])
def test_other_commands_work_with_a_stray_file_name(
    cdigen: Run, host: Path, stray: Path, command: str, options: tuple[str, ...]
) -> None:
    assert stray.exists()
    done = cdigen(command, "--root", host, *options)
    assert done.code == 0
    assert "internal error" not in done.err


@pytest.mark.parametrize("options", [("--output", "o\udcff.json"), ("--output-dir", "d\udcff")])
def test_a_spec_can_be_written_to_a_path_that_is_not_utf8(
    cdigen: Run, host: Path, tmp_path: Path, options: tuple[str, str]
) -> None:
    option, name = options
    done = cdigen("generate", "--root", host, option, tmp_path / name, "--json")
    assert (done.code, done.json[0]["result"]) == (0, "written")
    file = done.json[0]["file"]
    assert file.startswith(str(tmp_path / name))
    assert json.loads(Path(file).read_bytes())["kind"] == "nvidia.com/gpu"


def test_no_spec_contains_a_host_path_that_is_not_utf8(cdigen: Run, host: Path) -> None:
    folder = next((host / "usr/lib").rglob("libcuda.so.*")).parent
    (folder / os.fsdecode(b"libnvidia-\xff.so.1")).write_bytes(b"")
    for options in ((), ("--json",)):
        done = cdigen("generate", "--root", host, *options)
        assert (done.code, "udcff" in done.out) == (0, False)
        assert cdigen("inspect", "--root", host, *options).code == 0


def test_a_finding_contains_a_stray_path_once() -> None:
    path = f"/etc/cdi/{STRAY}"
    finding = Finding(severity="error", rule="r", path=path, message="/etc/cdi/q\\udcff.json: is bad")
    assert finding.line() == "error: /etc/cdi/q\\udcff.json: is bad [r]"
