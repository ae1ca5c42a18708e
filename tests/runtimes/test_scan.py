from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from support.values.spec_documents import of_devices

from cdigen.host.root import Root
from cdigen.runtimes.scan import Resolution, SpecScan, scan
from cdigen.runtimes.users import ROOT, Reader
from cdigen.value import replace

if TYPE_CHECKING:
    from pathlib import Path

KIND = "nvidia.com/gpu"
DEVICE = f"{KIND}=0"
ETC, RUN = "/etc/cdi", "/var/run/cdi"
DIRS = (ETC, RUN)
USER = Reader(uid=1234, gids=(1234, 44))


def document(*names: str, **changes: Any) -> bytes:
    return json.dumps(of_devices(*names, **changes)).encode()


class Specs:
    """Spec files of a host with the root FOLDER."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, path: str, content: bytes, mode: int = 0o644) -> str:
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(mode)
        return path

    def at(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def scan(
        self,
        *,
        library: str = "1.0.1",
        reader: Reader = ROOT,
        dirs: tuple[str, ...] = DIRS,
        links: bool = False,
    ) -> SpecScan:
        reader = replace(reader, follows_links=links)
        return scan(dirs, Root(str(self.folder)), library=library, reader=reader)

    def resolve(self, name: str = DEVICE, *, library: str = "1.0.1", reader: Reader = ROOT) -> Resolution:
        return self.scan(library=library, reader=reader).resolve(name)


@pytest.fixture
def specs(tmp_path: Path) -> Specs:
    return Specs(tmp_path)


def cause(found: Resolution) -> tuple[str, str]:
    assert not found.ok
    assert found.reason
    return found.rule, found.file


def problems(found: SpecScan) -> list[tuple[str, str, str]]:
    return [(each.severity, each.rule, each.path) for each in found.problems]


# Devices that are found.


def test_a_device_is_found_in_its_file(specs: Specs) -> None:
    path = specs.put(f"{RUN}/a.json", document("0", "1"))
    assert specs.resolve() == Resolution(device=DEVICE, ok=True, file=path, reason="", rule="", files=(path,))
    assert specs.scan().devices == ((DEVICE, path), (f"{KIND}=1", path))


def test_a_later_directory_has_priority_for_each_device(specs: Specs) -> None:
    low, high = specs.put(f"{ETC}/a.json", document("0", "1")), specs.put(f"{RUN}/b.json", document("0"))
    assert specs.resolve().file == high
    assert specs.resolve().files == (low, high)
    assert specs.resolve(f"{KIND}=1").file == low  # with that file's document-level edits


def test_one_directory_under_two_names_is_no_conflict_and_the_later_name_is_used(specs: Specs) -> None:
    specs.put("/run/cdi/a.json", document("0"))
    specs.at("/var").mkdir()
    specs.at("/var/run").symlink_to("../run")
    found = specs.scan(dirs=("/run/cdi", RUN)).resolve(DEVICE)
    assert (found.ok, found.file, found.files) == (True, f"{RUN}/a.json", (f"{RUN}/a.json",))
    assert specs.scan(dirs=("/run/cdi", RUN, "/run/cdi/")).resolve(DEVICE).file == "/run/cdi/a.json"


def test_a_link_to_a_file_is_followed_within_the_host(specs: Specs) -> None:
    specs.put("/opt/real", document("0"))
    specs.at(RUN).mkdir(parents=True)
    specs.at(f"{RUN}/a.json").symlink_to("/opt/real")
    assert specs.resolve().file == f"{RUN}/a.json"


def test_invalid_files_do_not_hide_devices_of_other_files(specs: Specs) -> None:
    good = specs.put(f"{RUN}/b.json", document("0"))
    for name, content in (("a.json", b"{"), ("c.json", b"\xff"), ("d.yaml", document("0", cdiVersion="9"))):
        specs.put(f"{RUN}/{name}", content)
    assert specs.resolve().file == good
    assert [found.rule for found in specs.scan().problems] == ["file-refused"] * 3


# Reasons why devices are not found.


def test_only_devices_that_two_files_of_one_directory_define_are_in_conflict(specs: Specs) -> None:
    first, second = (
        specs.put(f"{RUN}/a.json", document("0", "1")),
        specs.put(f"{RUN}/b.json", document("0", "2")),
    )
    found = specs.resolve()
    assert cause(found) == ("conflict", first)
    assert second in found.reason
    assert specs.scan().devices == ((f"{KIND}=1", first), (f"{KIND}=2", second))
    assert [problem.rule for problem in specs.scan().problems] == ["conflict"]


def test_a_conflict_in_a_low_directory_also_hides_the_definition_in_a_higher_directory(specs: Specs) -> None:
    low = specs.put(f"{ETC}/a.json", document("0"))
    specs.put(f"{ETC}/b.json", document("0"))
    specs.put(f"{RUN}/c.json", document("0", "1"))
    assert cause(specs.resolve()) == ("conflict", low)
    assert specs.resolve(f"{KIND}=1").ok


def test_a_conflict_in_a_high_directory_also_hides_the_definition_in_a_lower_directory(specs: Specs) -> None:
    specs.put(f"{ETC}/a.json", document("0"))
    high = specs.put(f"{RUN}/b.json", document("0"))
    specs.put(f"{RUN}/c.json", document("0"))
    assert cause(specs.resolve()) == ("conflict", high)


def test_a_file_with_an_unknown_version_is_the_cause_and_a_newer_library_finds_the_device(
    specs: Specs,
) -> None:
    path = specs.put(f"{RUN}/a.json", document("0", cdiVersion="0.7.0", annotations={"a": "b"}))
    found = specs.resolve(library="0.6.2")
    assert cause(found) == ("file-refused", path)
    assert f"cdigen validate {path}" in found.reason
    assert specs.resolve(library="0.7.2").ok


def test_a_refused_file_does_not_hide_the_definition_in_a_lower_directory(specs: Specs) -> None:
    low = specs.put(f"{ETC}/a.json", document("0"))
    specs.put(f"{RUN}/a.json", document("0", cdiVersion="9.9.9"))
    assert specs.resolve().file == low


def test_no_device_is_found_if_a_file_crashes_the_library(specs: Specs) -> None:
    specs.put(f"{RUN}/a.json", document("0"))
    bad = specs.put(f"{ETC}/bad.json", document("0", kind="v/g"))
    assert cause(specs.resolve()) == ("runtime-crashes", bad)
    assert specs.scan().devices == ()
    assert specs.resolve(library="main").ok


def test_a_file_that_cannot_be_parsed_is_the_cause_of_a_missing_device(specs: Specs) -> None:
    path = specs.put(f"{RUN}/a.json", document("0")[:-20])
    found = specs.resolve()
    assert cause(found) == ("file-refused", path)
    assert "may define" in found.reason


def test_a_file_above_the_size_limit_is_uncertain(specs: Specs) -> None:
    path = specs.put(f"{RUN}/a.json", b"{}")
    os.truncate(specs.at(path), (16 << 20) + 1)
    assert cause(specs.resolve()) == ("file-uncertain", path)


def test_an_unobserved_library_refuses_later_versions_and_all_other_files_are_uncertain(
    specs: Specs,
) -> None:
    path = specs.put(f"{RUN}/a.json", document("0"))
    assert cause(specs.resolve(library="0.3.2")) == ("file-refused", path)
    specs.put(path, document("0", cdiVersion="0.3.0"))
    assert cause(specs.resolve(library="0.3.2")) == ("file-uncertain", path)


@pytest.mark.parametrize("name", ["a.yml", "a.JSON", "a.Yaml"])
def test_a_file_with_a_similar_suffix_is_the_cause_of_a_missing_device(specs: Specs, name: str) -> None:
    path = specs.put(f"{RUN}/{name}", document("0"))
    assert cause(specs.resolve()) == ("file-name-ignored", path)
    assert problems(specs.scan()) == [("warning", "file-name-ignored", path)]
    assert specs.scan().definitions() == ()


@pytest.mark.parametrize(
    "name",
    [
        "a.json.bak",
        "a.json.tmp",
        ".a.json.tmp",
        "a",
        "json",
        "a.json.foreign-20260811T120000Z",
        "below.json/a.json",
    ],
)
def test_files_with_other_names_and_files_in_subfolders_are_ignored(specs: Specs, name: str) -> None:
    specs.put(f"{RUN}/{name}", document("0"))
    assert cause(specs.resolve()) == ("no-specs", "")
    assert (specs.scan().problems, specs.scan().definitions()) == ((), ())


def test_the_reason_for_an_unknown_name_lists_the_existing_names(specs: Specs) -> None:
    specs.put(f"{RUN}/a.json", document("0", "1"))
    assert cause(specs.resolve(f"{KIND}=7")) == ("unknown-device", "")
    assert "0, 1" in specs.resolve(f"{KIND}=7").reason
    assert cause(specs.resolve("amd.com/gpu=0")) == ("unknown-kind", "")
    assert KIND in specs.resolve("amd.com/gpu=0").reason


@pytest.mark.parametrize(
    "name", ["", "0", "/dev/null", "nvidia.com/gpu", "nvidia.com=0", f"{KIND}=a b", "v/g=0"]
)
def test_a_malformed_name_is_reported(specs: Specs, name: str) -> None:
    specs.put(f"{RUN}/a.json", document("0"))
    assert cause(specs.resolve(name)) == ("not-a-name", "")


# Links, modes, and files that are not regular.


def test_a_linked_directory_is_the_cause_if_the_runtime_follows_no_links(specs: Specs) -> None:
    specs.put("/opt/cdi/a.json", document("0"))
    specs.at("/etc").mkdir()
    specs.at(ETC).symlink_to("/opt/cdi")
    found = specs.resolve()
    assert (found.rule, found.ok) == ("directory-symlink", False)
    assert "/opt/cdi" in found.reason
    assert problems(specs.scan()) == [("error", "directory-symlink", ETC)]
    assert specs.scan(links=True).resolve(DEVICE).ok
    assert specs.resolve(library="main").ok


def test_a_link_in_the_path_of_a_directory_is_followed(specs: Specs) -> None:
    specs.put("/run/cdi/a.json", document("0"))
    specs.at("/var").mkdir()
    specs.at("/var/run").symlink_to("/run")
    assert specs.resolve().file == f"{RUN}/a.json"


def test_a_link_out_of_the_host_is_not_followed(
    specs: Specs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a.json").write_bytes(document("0"))
    specs.at(RUN).mkdir(parents=True)
    specs.at(f"{RUN}/a.json").symlink_to(outside / "a.json")
    assert cause(specs.resolve()) == ("file-unreadable", f"{RUN}/a.json")


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "is_read"),
    [
        (0o644, 0, 0, True),
        (0o600, 0, 0, False),
        pytest.param(0o600, 1234, 0, True, marks=pytest.mark.needs_root),
        pytest.param(0o044, 1234, 1234, False, marks=pytest.mark.needs_root),
        pytest.param(0o640, 0, 44, True, marks=pytest.mark.needs_root),
        pytest.param(0o604, 0, 44, False, marks=pytest.mark.needs_root),
        pytest.param(0o604, 0, 45, True, marks=pytest.mark.needs_root),
    ],
)
def test_a_file_is_read_if_its_mode_permits_the_reader(
    specs: Specs, *, mode: int, uid: int, gid: int, is_read: bool
) -> None:
    path = specs.put(f"{RUN}/a.json", document("0"), mode=mode)
    if os.geteuid() == 0:
        os.chown(specs.at(path), uid, gid)
    assert specs.resolve().ok
    found = specs.resolve(reader=USER)
    assert found.ok is is_read
    if not is_read:
        assert cause(found) == ("file-unreadable", path)
        assert "1234" in found.reason


@pytest.mark.needs_root
@pytest.mark.parametrize(("folder", "mode"), [(RUN, 0o700), (RUN, 0o744), (RUN, 0o711), ("/var", 0o700)])
def test_a_directory_that_the_reader_cannot_list_or_reach_has_no_devices(
    specs: Specs, folder: str, mode: int
) -> None:
    specs.put(f"{RUN}/a.json", document("0"))
    os.chmod(specs.at(folder), mode)
    assert specs.resolve().ok
    assert cause(specs.resolve(reader=USER)) == ("directory-unreadable", f"{RUN}/a.json")


def test_an_unreadable_file_in_a_lower_directory_does_not_hide_a_higher_definition(specs: Specs) -> None:
    specs.put(f"{ETC}/a.json", document("0"), mode=0o600)
    high = specs.put(f"{RUN}/b.json", document("0"))
    assert specs.resolve(reader=USER).file == high


def test_the_main_branch_of_the_library_stops_at_a_path_that_is_not_a_directory(specs: Specs) -> None:
    specs.put(f"{RUN}/a.json", document("0"))
    specs.put(ETC, b"")
    assert specs.resolve().ok
    assert problems(specs.scan()) == [("error", "not-a-directory", ETC)]
    assert cause(specs.resolve(library="main")) == ("scan-stops", f"{RUN}/a.json")


def test_no_device_is_found_if_a_spec_is_a_fifo_and_the_scan_does_not_block(specs: Specs) -> None:
    specs.put(f"{RUN}/b.json", document("0"))
    os.mkfifo(specs.at(f"{RUN}/a.json"))
    assert cause(specs.resolve()) == ("runtime-hangs", f"{RUN}/a.json")
    assert specs.scan().devices == ()


@pytest.mark.parametrize("what", ["dangling link", "link to a folder", "link to itself"])
def test_a_link_without_a_regular_file_is_unreadable_and_hides_no_other_file(specs: Specs, what: str) -> None:
    good = specs.put(f"{RUN}/b.json", document("0"))
    place = specs.at(f"{RUN}/a.json")
    match what:
        case "dangling link":
            place.symlink_to("nowhere")
        case "link to a folder":
            place.symlink_to("/")
        case "link to itself":
            place.symlink_to("a.json")
    assert specs.resolve().file == good
    assert problems(specs.scan()) == [("error", "file-unreadable", f"{RUN}/a.json")]


def test_a_reason_always_lists_the_same_six_of_thousands_of_names(specs: Specs) -> None:
    specs.put(f"{RUN}/a.json", document(*[f"claim{number}" for number in range(1_500)]))
    reasons = {specs.resolve(f"{KIND}=0").reason for _ in range(3)}
    assert reasons == {
        f"{KIND} has claim0, claim1, claim10, claim100, claim1000, claim1001 and 1494 more",
    }
