from __future__ import annotations

import pytest
from support.values.spec_documents import put_spec

from cdigen.runtimes.clashes import clashes
from cdigen.runtimes.scan import SpecScan, scan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cdigen.model.findings import Finding

KIND = "nvidia.com/gpu"


def scan_of(*directories: Path) -> SpecScan:
    return scan(tuple(map(str, directories)))


def rules(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(finding.severity, finding.rule) for finding in findings]


def clashes_with(found: SpecScan, directory: Path, *names: str) -> tuple[Finding, ...]:
    return clashes(
        found, directory=str(directory), file_name="nvidia.com-gpu.json", kind=KIND, device_names=names
    )


def test_an_empty_host_and_cdigens_own_file_are_no_clash(etc: Path, run: Path) -> None:
    assert clashes_with(scan_of(etc, run), run, "0") == ()
    put_spec(run, "nvidia.com-gpu.json", "0")
    assert clashes_with(scan_of(etc, run), run, "0", "1") == ()


def test_a_file_of_the_same_directory_with_a_common_device_is_an_error_with_a_hint(run: Path) -> None:
    foreign = put_spec(run, "nvidia.yaml", "0", "all", "old")
    (finding,) = clashes_with(scan_of(run), run, "0", "1", "all")
    assert rules([finding]) == [("error", "foreign-same-directory")]
    assert finding.path == foreign
    assert foreign in finding.message
    assert "devices 0, all of nvidia.com/gpu" in finding.message
    assert "cdigen generate --write --replace-foreign" in finding.hint


def test_a_file_of_the_same_directory_without_a_common_device_is_no_clash(run: Path) -> None:
    put_spec(run, "a.yaml", "other")
    put_spec(run, "b.yaml", "0", kind="amd.com/gpu")
    assert clashes_with(scan_of(run), run, "0") == ()


def test_a_refused_file_of_the_same_directory_is_only_a_warning(run: Path) -> None:
    put_spec(run, "nvidia.yaml", "0", cdiVersion="9.9.9")
    (finding,) = clashes_with(scan_of(run), run, "0")
    assert rules([finding]) == [("warning", "foreign-same-directory")]
    assert "no runtime loads" in finding.message


def test_the_warning_for_a_file_of_lower_priority_lists_hidden_devices(etc: Path, run: Path) -> None:
    foreign = put_spec(etc, "nvidia.yaml", "0", "1", "2")
    (finding,) = clashes_with(scan_of(etc, run), run, "0", "1")
    assert rules([finding]) == [("warning", "foreign-shadowed")]
    assert finding.path == foreign
    assert "devices 0, 1 of nvidia.com/gpu will be hidden" in finding.message
    assert "device 2 will stay visible" in finding.message
    assert "document-level edits" in finding.message


def test_a_file_of_lower_priority_with_only_the_same_kind_is_an_info(etc: Path, run: Path) -> None:
    put_spec(etc, "nvidia.yaml", "gpu0")
    (finding,) = clashes_with(scan_of(etc, run), run, "0")
    assert rules([finding]) == [("info", "foreign-same-kind")]
    assert "device gpu0 will stay visible" in finding.message


def test_a_conflict_of_two_files_of_lower_priority_also_hides_the_new_device(etc: Path, run: Path) -> None:
    first, second = put_spec(etc, "a.json", "0", "1", "2", "3"), put_spec(etc, "b.json", "0", "2")
    findings = clashes_with(scan_of(etc, run), run, "0", "1")
    assert "device 3 will stay visible" in findings[0].message
    assert "visible" not in findings[1].message
    assert rules(findings) == [
        ("warning", "foreign-shadowed"),
        ("warning", "foreign-shadowed"),
        ("warning", "foreign-conflict"),
    ]
    assert first in findings[-1].message
    assert second in findings[-1].message
    assert "device 0 of" in findings[-1].message


@pytest.mark.parametrize("exists", [True, False])
def test_a_file_of_higher_priority_hides_the_new_spec(etc: Path, run: Path, exists: bool) -> None:  # noqa: FBT001
    if exists:
        etc.mkdir(parents=True)
    foreign = put_spec(run, "nvidia.yaml", "0", "other")
    (finding,) = clashes_with(scan_of(etc, run), etc, "0", "1")
    assert rules([finding]) == [("warning", "foreign-shadows-ours")]
    assert foreign in finding.message
    assert "device 0 of nvidia.com/gpu will take precedence" in finding.message


def test_refused_files_in_other_directories_are_no_clash(etc: Path, run: Path) -> None:
    put_spec(etc, "nvidia.yaml", "0", cdiVersion="9.9.9")
    assert clashes_with(scan_of(etc, run), run, "0") == ()


def test_cdigens_own_file_is_recognized_under_both_names_of_its_directory(tmp_path: Path, run: Path) -> None:
    put_spec(run, "nvidia.com-gpu.json", "0")
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    other = tmp_path / "var/run/cdi"
    for directory in (run, other):
        assert clashes_with(scan_of(run, other), directory, "0") == ()
        put_spec(run, "nvidia.yaml", "0")
        assert rules(clashes_with(scan_of(run, other), directory, "0")) == [
            ("error", "foreign-same-directory")
        ]
        (run / "nvidia.yaml").unlink()


def test_a_directory_that_was_not_scanned_has_the_highest_priority(etc: Path, tmp_path: Path) -> None:
    put_spec(etc, "nvidia.yaml", "0")
    assert rules(clashes_with(scan_of(etc), tmp_path / "elsewhere", "0")) == [("warning", "foreign-shadowed")]


def test_a_long_list_of_devices_is_shortened(run: Path) -> None:
    put_spec(run, "nvidia.yaml", *map(str, range(20)))
    (finding,) = clashes_with(scan_of(run), run, *map(str, range(20)))
    assert "devices 0, 1, 2, 3, 4, 5 and 14 more" in finding.message
