"""`cdigen generate --write`: the files on the disk before and after the command."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from support.command.fixtures import Run
from support.command.specs import FOREIGN, put

SPEC = "run/cdi/nvidia.com-gpu.json"


def put_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of 8 KiB, which is too small for a spec."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_the_spec_is_written_into_the_spec_directory_of_the_host(cdigen: Run, host: Path) -> None:
    done = cdigen("generate", "--root", host, "--write")
    assert (done.code, done.out) == (0, "")
    assert (host / SPEC).read_text() == cdigen("generate", "--root", host).out
    assert (host / SPEC).stat().st_mode & 0o777 == 0o644


def test_json_has_the_written_files(cdigen: Run, host: Path) -> None:
    first, second = (cdigen("generate", "--root", host, "--write", "--json").json for _ in range(2))
    for row in (*first, *second):
        assert [finding["rule"] for finding in row.pop("findings")] == [
            "hook-missing",
            "no-forward-compatibility",
        ]
    row = {"kind": "nvidia.com/gpu", "file": str(host / SPEC)}
    assert first == [{**row, "result": "written", "changed": True}]
    assert second == [{**row, "result": "unchanged", "changed": False}]


def test_an_unchanged_spec_is_not_touched(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    before = (host / SPEC).stat()
    cdigen("generate", "--root", host, "--write")
    after = (host / SPEC).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_change_of_the_host_changes_the_spec(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    (host / "dev/nvidia1").unlink()
    done = cdigen("generate", "--root", host, "--write")
    assert "GPU 1" in done.err
    assert "/dev/nvidia1" not in (host / SPEC).read_text()


def test_the_spec_is_written_into_the_last_of_several_spec_directories(
    cdigen: Run, host: Path, tmp_path: Path
) -> None:
    cdigen("generate", "--root", host, "--write", "--spec-dir", tmp_path / "a", "--spec-dir", tmp_path / "b")
    assert not (tmp_path / "a").exists()
    assert os.listdir(tmp_path / "b") == ["nvidia.com-gpu.json"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("nvidia.json", json.dumps(FOREIGN)),
        ("nvidia.yaml", f"---\n{yaml.safe_dump(FOREIGN)}"),
        # The foreign spec has the file name of cdigen's spec.
        ("nvidia.com-gpu.json", json.dumps({**FOREIGN, "kind": "example.com/nic"})),
    ],
    ids=["JSON", "YAML", "our name"],
)
def test_a_conflict_with_a_foreign_spec_is_refused_and_the_foreign_spec_stays(
    cdigen: Run, host: Path, name: str, content: str
) -> None:
    foreign = put(host / "run/cdi" / name, content)
    assert cdigen("generate", "--root", host, "--write").failed(4, str(foreign), "--replace-foreign")
    assert listing(foreign.parent) == {name: content.encode()}


def test_replace_foreign_renames_the_foreign_spec_to_a_name_that_no_runtime_loads(
    cdigen: Run, host: Path
) -> None:
    foreign = put(host / "run/cdi/nvidia.json", json.dumps(FOREIGN))
    assert cdigen("generate", "--root", host, "--write", "--replace-foreign").code == 0
    aside = [name for name in os.listdir(foreign.parent) if name != "nvidia.com-gpu.json"]
    assert len(aside) == 1
    assert not aside[0].endswith((".json", ".yaml"))
    assert (foreign.parent / aside[0]).read_text() == json.dumps(FOREIGN)


def test_an_edited_spec_of_cdigen_is_a_foreign_spec(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    put(host / SPEC, (host / SPEC).read_text().replace('"rw"', '"rwm"'))
    before = (host / SPEC).read_bytes()
    assert cdigen("generate", "--root", host, "--write").code == 4
    assert (host / SPEC).read_bytes() == before


def test_a_foreign_spec_of_lower_priority_is_reported(cdigen: Run, host: Path) -> None:
    foreign = put(host / "etc/cdi/nvidia.json", json.dumps(FOREIGN))
    done = cdigen("generate", "--root", host, "--write")
    assert done.code == 0
    assert str(foreign) in done.err
    assert foreign.read_text() == json.dumps(FOREIGN)


def test_write_without_withdraw_keeps_the_spec_of_a_missing_driver(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    before = (host / SPEC).read_bytes()
    (host / "proc/driver/nvidia/version").unlink()
    assert cdigen("generate", "--root", host, "--write").failed(3, "not loaded")
    assert (host / SPEC).read_bytes() == before


def test_write_with_withdraw_removes_the_spec_of_a_missing_driver(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    (host / "proc/driver/nvidia/version").unlink()
    done = cdigen("generate", "--root", host, "--write", "--withdraw")
    assert "withdrawn" in done.err
    assert not (host / SPEC).exists()


def test_withdraw_removes_the_old_spec_of_a_kind_whose_new_spec_is_withheld(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    (host / "dev/nvidia-uvm").unlink()
    assert cdigen("generate", "--root", host, "--write").code == 3
    assert (host / SPEC).exists()
    done = cdigen("generate", "--root", host, "--write", "--withdraw", "--json")
    assert done.failed(3, "no spec of nvidia.com/gpu is written", "/dev/nvidia-uvm does not exist")
    assert [(row["file"], row["result"]) for row in done.json] == [
        (str(host / SPEC), "refused"),
        (str(host / SPEC), "withdrawn"),
    ]
    assert not (host / SPEC).exists()
    assert cdigen("generate", "--root", host, "--write", "--withdraw").failed(3, "/dev/nvidia-uvm")


def test_withdraw_keeps_a_foreign_spec_of_a_kind_whose_new_spec_is_withheld(cdigen: Run, host: Path) -> None:
    foreign = put(host / SPEC, json.dumps(FOREIGN))
    (host / "dev/nvidia-uvm").unlink()
    assert cdigen("generate", "--root", host, "--write", "--withdraw").code == 3
    assert foreign.read_text() == json.dumps(FOREIGN)


def test_withdraw_keeps_a_spec_that_hides_a_foreign_spec(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    (host / "etc/cdi").mkdir(parents=True)
    shutil.copy(host / SPEC, host / "etc/cdi/copy.json")
    (host / "dev/nvidia-uvm").unlink()
    done = cdigen("generate", "--root", host, "--write", "--withdraw")
    assert "etc/cdi/copy.json, which cdigen did not write" in done.err
    assert (host / SPEC).exists()


def test_write_with_withdraw_keeps_a_foreign_spec(cdigen: Run, host: Path) -> None:
    foreign = put(host / SPEC, json.dumps(FOREIGN))
    (host / "proc/driver/nvidia/version").unlink()
    cdigen("generate", "--root", host, "--write", "--withdraw")
    assert foreign.read_text() == json.dumps(FOREIGN)


def test_on_a_full_file_system_old_files_stay_and_no_temporary_file_remains(
    cdigen: Run, host: Path, small: Path
) -> None:
    old = put(small / "other.txt", "x" * 4096)
    done = cdigen("generate", "--root", host, "--write", "--spec-dir", small)
    assert done.failed(5, str(small), "No space left", "df")
    assert listing(small) == {old.name: old.read_bytes()}


def test_a_read_only_spec_directory_is_an_error_with_its_path(cdigen: Run, host: Path, small: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    assert cdigen("generate", "--root", host, "--write", "--spec-dir", small).failed(
        5, str(small), "Read-only"
    )


def test_a_spec_directory_that_is_a_file_is_an_error_with_its_path(
    cdigen: Run, host: Path, tmp_path: Path
) -> None:
    file = put(tmp_path / "file", "")
    assert cdigen("generate", "--root", host, "--write", "--spec-dir", file).failed(5, str(file))


def test_a_spec_directory_that_is_a_link_is_refused(cdigen: Run, host: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    assert cdigen("generate", "--root", host, "--write", "--spec-dir", link).failed(5, str(link))
    assert not os.listdir(tmp_path / "real")


@pytest.mark.parametrize("directory", ["/etc/cdi", "/var/run/cdi", "/srv/specs"])
@pytest.mark.parametrize("command", [("generate", "--write"), ("run",)])
def test_a_spec_directory_of_this_machine_is_refused_for_another_host(
    cdigen: Run, cdigen_process: Run, host: Path, directory: str, command: tuple[str, ...]
) -> None:
    put_text(host / "etc/cdigen/config.yaml", "spec_dirs: [/etc/cdi, /srv/specs]\n")
    run = cdigen_process if command == ("run",) else cdigen
    done = run(*command, "--root", host, "--spec-dir", "/srv/other", "--spec-dir", directory)
    assert done.failed(2, f"--spec-dir {directory} is a spec directory of this machine")
    inside = Path(done.err.split()[-1])
    assert inside.is_relative_to(host)
    if command != ("run",):
        # The option in the hint writes into the root.
        done = run(*command, "--root", host, "--spec-dir", inside)
        assert (done.code, [*inside.iterdir()]) == (0, [inside / SPEC[8:]])


def test_a_mount_point_is_a_spec_directory_of_the_other_host(cdigen: Run, host: Path, small: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=1m", small], check=True)
    put_text(host / "etc/cdigen/config.yaml", f"spec_dirs: [{small}]\n")
    done = cdigen("generate", "--write", "--root", host, "--spec-dir", small)
    assert (done.code, [*small.iterdir()]) == (0, [small / SPEC[8:]])


def test_a_missing_spec_directory_is_created(cdigen: Run, host: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a/b"
    assert cdigen("generate", "--root", host, "--write", "--spec-dir", folder).code == 0
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_link_in_the_root_does_not_lead_a_write_out_of_the_root(
    cdigen: Run, host: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (host / "run").rmdir()
    (host / "run").symlink_to(outside)
    assert cdigen("generate", "--root", host, "--write").code == 0
    assert not os.listdir(outside)
    assert os.listdir(f"{host}{outside}/cdi") == ["nvidia.com-gpu.json"]


def test_a_link_to_a_missing_folder_of_the_root_is_not_followed_on_this_machine(
    cdigen: Run, host: Path, tmp_path: Path
) -> None:
    """/var/run is a link to /run. In a tree without /run, this link must not lead to the machine's /run."""
    (tmp_path / "machine").mkdir()
    (host / "var/run").unlink()
    (host / "var/run").symlink_to(tmp_path / "machine")
    assert cdigen("generate", "--root", host, "--write").code == 0
    assert not os.listdir(tmp_path / "machine")
    assert (host / str(tmp_path / "machine/cdi/nvidia.com-gpu.json").lstrip("/")).exists()


def test_concurrent_writers_leave_one_complete_spec(cdigen_process: Run, host: Path) -> None:
    expected = cdigen_process("generate", "--root", host).out
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: cdigen_process("generate", "--root", host, "--write"), range(6)))
    assert [each.code for each in done] == [0] * 6
    assert listing(host / "run/cdi") == {"nvidia.com-gpu.json": expected.encode()}


def test_an_old_spec_is_checked_if_the_host_is_not_ready(cdigen: Run, host: Path) -> None:
    cdigen("generate", "--root", host, "--write")
    (host / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Mon\n"
    )
    done = cdigen("generate", "--root", host, "--write", "--verbose")
    assert done.failed(3, "580.65.06")
    assert "[old-spec-kept]" in done.err
    (host / "dev/nvidia0").unlink()
    done = cdigen("generate", "--root", host, "--write")
    assert done.failed(3, "580.65.06")
    assert "[old-spec-broken]" in done.err
    assert "--withdraw" in done.err
    assert (host / SPEC).exists()
