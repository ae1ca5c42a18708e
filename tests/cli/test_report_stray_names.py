"""File names that are no UTF-8: every command speaks of them, in text and as JSON; no spec holds them."""

import json
import os
from pathlib import Path

import pytest
from support.command.fixtures import Run

from cdigen.model.findings import Finding

STRAY = os.fsdecode(b"q\xff.json")


@pytest.fixture
def stray(cdigen: Run, host: Path) -> Path:
    """Return a copy of the host's spec in the directory of lower priority, under a name that is no UTF-8."""
    assert cdigen("generate", "--root", host, "--write").code == 0
    path = host / "etc/cdi" / STRAY
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((host / "run/cdi/nvidia.com-gpu.json").read_bytes())
    return path


def test_list_names_the_file_so_that_a_program_can_open_it(cdigen: Run, host: Path, stray: Path) -> None:
    rows = cdigen("list", "--root", host, "--json").json
    assert os.fsencode(str(stray)) in {os.fsencode(row["file"]) for row in rows}
    assert "q\\udcff.json" in cdigen("list", "--root", host).out


def test_generate_tells_of_a_file_that_it_hides(cdigen: Run, host: Path, stray: Path) -> None:
    done = cdigen("generate", "--root", host, "--write", "--json")
    assert done.code == 0
    assert str(stray) in {finding["path"] for finding in done.json[0]["findings"]}


def test_generate_tells_of_a_file_in_the_way(cdigen: Run, host: Path, stray: Path) -> None:
    beside = host / "run/cdi" / STRAY
    stray.rename(beside)
    assert cdigen("generate", "--root", host, "--write").failed(4, "q\\udcff.json")
    done = cdigen("generate", "--root", host, "--write", "--json")
    assert (done.code, "q\\udcff.json" in done.json["error"]["message"]) == (4, True)
    assert cdigen("generate", "--root", host, "--write", "--replace-foreign", "--json").code == 0
    assert not os.path.lexists(beside)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_validate_judges_the_file_by_its_content(cdigen: Run, stray: Path, options: tuple[str, ...]) -> None:
    done = cdigen("validate", stray, *options)
    assert (done.code, done.err) == (0, "")
    assert "udcff" in done.out


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("command", ["diff", "inspect", "prune"])
def test_other_commands_go_on_as_ever(
    cdigen: Run, host: Path, stray: Path, command: str, options: tuple[str, ...]
) -> None:
    assert stray.exists()
    done = cdigen(command, "--root", host, *options)
    assert done.code == 0
    assert "internal error" not in done.err


@pytest.mark.parametrize("options", [("--output", "o\udcff.json"), ("--output-dir", "d\udcff")])
def test_a_spec_can_be_put_where_the_name_is_no_utf_8(
    cdigen: Run, host: Path, tmp_path: Path, options: tuple[str, str]
) -> None:
    option, name = options
    done = cdigen("generate", "--root", host, option, tmp_path / name, "--json")
    assert (done.code, done.json[0]["result"]) == (0, "written")
    file = done.json[0]["file"]
    assert file.startswith(str(tmp_path / name))
    assert json.loads(Path(file).read_bytes())["kind"] == "nvidia.com/gpu"


def test_no_spec_names_a_file_of_the_host_whose_name_is_no_utf_8(cdigen: Run, host: Path) -> None:
    folder = next((host / "usr/lib").rglob("libcuda.so.*")).parent
    (folder / os.fsdecode(b"libnvidia-\xff.so.1")).write_bytes(b"")
    for options in ((), ("--json",)):
        done = cdigen("generate", "--root", host, *options)
        assert (done.code, "udcff" in done.out) == (0, False)
        assert cdigen("inspect", "--root", host, *options).code == 0


def test_a_finding_names_such_a_file_once() -> None:
    path = f"/etc/cdi/{STRAY}"
    finding = Finding(severity="error", rule="r", path=path, message="/etc/cdi/q\\udcff.json: is bad")
    assert finding.line() == "error: /etc/cdi/q\\udcff.json: is bad [r]"
