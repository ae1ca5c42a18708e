from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.values.spec_documents import of_devices, put_spec

from cdigen.runtimes.scan import Definition, SpecScan, scan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.findings import Finding

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
KIND = "nvidia.com/gpu"


def scan_of(*directories: Path) -> SpecScan:
    return scan(tuple(map(str, directories)))


def usable(found: SpecScan) -> dict[str, str]:
    rows = [row for row in found.definitions() if row.usable]
    files = {row.name: row.file for row in rows}
    assert len(files) == len(rows)
    assert all(bool(row.reason) is not row.usable for row in found.definitions())
    return files


def reasons(found: SpecScan) -> dict[tuple[str, str], str]:
    return {(row.name, row.file): row.reason for row in found.definitions()}


def rules(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(finding.severity, finding.rule) for finding in findings]


# The definition that is used.


def test_the_devices_of_one_file_are_rows_in_natural_order(run: Path) -> None:
    path = put_spec(run, "a.json", "10", "2", "all")
    found = scan_of(run)
    assert found.definitions() == tuple(
        Definition(device=f"{KIND}={name}", kind=KIND, name=name, file=path, usable=True, reason="")
        for name in ("2", "10", "all")
    )
    assert found.problems == ()
    assert found.files[0].devices == ("10", "2", "all")


def test_missing_directories_are_no_problem(tmp_path: Path, run: Path) -> None:
    put_spec(run, "a.json", "0")
    found = scan_of(tmp_path / "none", run)
    assert list(usable(found)) == ["0"]
    assert found.problems == ()


def test_a_later_directory_has_priority_and_the_hidden_row_names_the_later_file(etc: Path, run: Path) -> None:
    low, high = put_spec(etc, "nvidia.yaml", "0", "1"), put_spec(run, "nvidia.json", "0")
    found = scan_of(etc, run)
    assert usable(found) == {"0": high, "1": low}
    assert reasons(found)["0", low] == f"{high} has priority"
    assert usable(scan_of(run, etc)) == {"0": low, "1": low}


def test_only_devices_that_two_files_of_one_directory_define_are_unresolvable(run: Path) -> None:
    first, second = put_spec(run, "a.json", "0", "1"), put_spec(run, "b.json", "0", "2")
    found = scan_of(run)
    assert usable(found) == {"1": first, "2": second}
    assert second in reasons(found)["0", first]
    assert first in reasons(found)["0", second]
    assert "same directory" in reasons(found)["0", first]


def test_a_conflict_in_a_low_directory_also_hides_the_definition_in_a_higher_directory(
    etc: Path, run: Path
) -> None:
    first, second = put_spec(etc, "a.json", "0"), put_spec(etc, "b.json", "0")
    high = put_spec(run, "c.json", "0", "1")
    found = scan_of(etc, run)
    assert usable(found) == {"1": high}
    assert first in reasons(found)["0", high]
    assert second in reasons(found)["0", high]


def test_a_conflict_in_a_high_directory_hides_the_definition_in_a_lower_directory(
    etc: Path, run: Path
) -> None:
    low = put_spec(etc, "a.json", "0")
    put_spec(run, "b.json", "0")
    put_spec(run, "c.json", "0")
    found = scan_of(etc, run)
    assert usable(found) == {}
    assert "no runtime resolves the device" in reasons(found)["0", low]


def test_equal_names_of_different_kinds_do_not_conflict(run: Path) -> None:
    put_spec(run, "a.json", "0")
    put_spec(run, "b.json", "0", kind="amd.com/gpu")
    assert [row.device for row in scan_of(run).definitions() if row.usable] == [
        "amd.com/gpu=0",
        "nvidia.com/gpu=0",
    ]


def test_one_directory_under_two_names_is_no_conflict_and_the_later_name_is_used(
    tmp_path: Path, run: Path
) -> None:
    put_spec(run, "a.json", "0")
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    found = scan_of(run, tmp_path / "var/run/cdi")
    assert usable(found) == {"0": f"{tmp_path}/var/run/cdi/a.json"}
    assert len(found.definitions()) == 1
    assert usable(scan_of(run, run)) == {"0": f"{run}/a.json"}


NAMES = ("0", "1", "all")
FILES = st.dictionaries(
    st.sampled_from(["a.json", "b.yaml", "c.json"]), st.sets(st.sampled_from(NAMES), min_size=1), max_size=3
)


def refresh(directories: list[dict[str, set[str]]]) -> dict[str, tuple[int, str]]:
    """Return the devices of Cache.refresh in container-device-interface v1.1.0 (pkg/cdi/cache.go)."""
    devices: dict[str, tuple[int, str]] = {}
    conflicts: set[str] = set()
    for priority, files in enumerate(directories):
        for file_name in sorted(files):
            for name in files[file_name]:
                old = devices.get(name)
                if old is not None and old[0] == priority:
                    conflicts.add(name)
                    continue
                devices[name] = (priority, file_name)
    return {name: where for name, where in devices.items() if name not in conflicts}


@given(directories=st.lists(FILES, min_size=1, max_size=3))
def test_any_directories_have_the_result_of_the_librarys_cache(
    directories: list[dict[str, set[str]]],
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        paths = [Path(folder) / str(number) for number in range(len(directories))]
        for path, files in zip(paths, directories, strict=True):
            path.mkdir()
            for file_name, names in files.items():
                put_spec(path, file_name, *sorted(names))
        found = scan_of(*paths)
        expected = {
            name: str(paths[priority] / file_name)
            for name, (priority, file_name) in refresh(directories).items()
        }
        assert usable(found) == expected
        assert len(found.definitions()) == sum(
            len(names) for files in directories for names in files.values()
        )


# Files that are read.


@pytest.mark.parametrize("name", [".hidden.json", ".json", "a.b.yaml", " .json"])
def test_dot_files_and_odd_names_with_the_extension_are_read(run: Path, name: str) -> None:
    put_spec(run, name, "0")
    assert list(usable(scan_of(run))) == ["0"]


def test_a_link_to_a_device_is_a_problem_and_is_never_opened(run: Path) -> None:
    put_spec(run, "b.json", "0")
    (run / "a.json").symlink_to("/dev/null")
    found = scan_of(run)
    assert list(usable(found)) == ["0"]
    assert rules(found.problems) == [("error", "file-unreadable")]


@pytest.mark.parametrize(
    ("what", "rule", "words"),
    [
        ("fifo", "runtime-hangs", ""),
        ("crashing file", "runtime-crashes", "runtimes crash on this file"),
    ],
)
def test_a_file_that_blocks_or_crashes_a_runtime_hides_every_device(
    etc: Path, run: Path, what: str, rule: str, words: str
) -> None:
    good = put_spec(etc, "b.json", "0")
    if what == "fifo":
        run.mkdir(parents=True)
        os.mkfifo(run / "a.json")
    else:
        put_spec(run, "a.json", "0", kind="v/g")
    found = scan_of(etc, run)
    assert (found.devices, usable(found)) == ((), {})
    assert f"{run}/a.json" in reasons(found)["0", good]
    assert rules(found.problems) == [("error", rule)]
    assert words in found.problems[0].message


def test_a_relative_directory_has_no_devices_and_a_finding() -> None:
    found = scan(("etc/cdi",))
    assert (found.files, rules(found.problems)) == ((), [("error", "not-a-directory")])


# Files that are loaded.


REFUSED = {
    "empty": b"",
    "half": b'{"cdiVersion": "0.5.0",',
    "binary": bytes(range(256)),
    "escaped slash": json.dumps(of_devices("0")).replace("/", "\\/").encode(),
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_a_file_that_cannot_be_parsed_is_a_problem_and_hides_no_other_file(
    run: Path, name: str, content: bytes
) -> None:
    put_spec(run, "b.json", "0")
    (run / name).write_bytes(content)
    found = scan_of(run)
    assert usable(found) == {"0": f"{run}/b.json"}
    assert [(finding.severity, finding.path) for finding in found.problems] == [("error", f"{run}/{name}")]
    assert "no runtime loads this file" in found.problems[0].message


@pytest.mark.parametrize(
    "changes", [{"cdiVersion": "9.9.9"}, {"unknown": 1}, {"devices": of_devices("0", "0")["devices"]}]
)
def test_the_devices_of_a_refused_file_are_rows_with_the_reason_and_hide_nothing(
    etc: Path, run: Path, changes: dict[str, object]
) -> None:
    low, high = put_spec(etc, "a.json", "0"), put_spec(run, "b.json", "0", "1", **changes)
    found = scan_of(etc, run)
    assert usable(found) == {"0": low}
    assert reasons(found)["0", high].startswith("no runtime loads this file: $")
    assert [finding.path for finding in found.problems] == [high]


def test_a_file_that_violates_only_rules_of_cdigen_is_usable(run: Path) -> None:
    relative = [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "dev/nvidia0"}]}}]
    path = put_spec(run, "a.json", devices=relative)
    found = scan_of(run)
    assert usable(found) == {"0": path}
    assert found.problems == ()


def test_a_file_that_only_the_runtimes_yaml_parser_reads_is_usable(run: Path) -> None:
    run.mkdir(parents=True)
    text = """# a comment, a letter case, a bare 0 and a trailing comma
    {"CDIVersion": "0.5.0", "KIND": "nvidia.com/gpu",
     "devices": [{"name": 0, "containerEdits": {"env": ["A=B"]}},]}"""
    (run / "a.json").write_text(text)
    assert usable(scan_of(run)) == {"0": f"{run}/a.json"}


def test_valid_files_are_read_without_the_yaml_library(run: Path) -> None:
    put_spec(run, "a.json", "0")
    code = (
        "import sys; from cdigen.runtimes.scan import scan; "
        f"assert scan(({str(run)!r},)).definitions()[0].usable; "
        "sys.exit('yaml' in sys.modules or 'cdigen.cdi.loaders.emulation' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
