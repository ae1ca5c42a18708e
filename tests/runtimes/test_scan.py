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
    """Spec files below a folder that is the host's root."""

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

    def view(
        self,
        *,
        library: str = "1.0.1",
        reader: Reader = ROOT,
        dirs: tuple[str, ...] = DIRS,
        links: bool = False,
    ) -> SpecScan:
        reader = replace(reader, follows_links=links)
        return scan(dirs, Root(str(self.folder)), library=library, reader=reader)

    def ask(self, name: str = DEVICE, *, library: str = "1.0.1", reader: Reader = ROOT) -> Resolution:
        return self.view(library=library, reader=reader).resolve(name)


@pytest.fixture
def specs(tmp_path: Path) -> Specs:
    return Specs(tmp_path)


def cause(found: Resolution) -> tuple[str, str]:
    assert not found.ok
    assert found.reason
    return found.rule, found.file


def problems(found: SpecScan) -> list[tuple[str, str, str]]:
    return [(each.severity, each.rule, each.path) for each in found.problems]


# What is found


def test_a_device_is_found_in_its_file(specs: Specs) -> None:
    path = specs.put(f"{RUN}/a.json", document("0", "1"))
    assert specs.ask() == Resolution(device=DEVICE, ok=True, file=path, reason="", rule="", files=(path,))
    assert specs.view().devices == ((DEVICE, path), (f"{KIND}=1", path))


def test_the_later_directory_wins_device_by_device(specs: Specs) -> None:
    low, high = specs.put(f"{ETC}/a.json", document("0", "1")), specs.put(f"{RUN}/b.json", document("0"))
    assert specs.ask().file == high
    assert specs.ask().files == (low, high)
    assert specs.ask(f"{KIND}=1").file == low  # and with it that file's document-level edits


def test_one_directory_under_two_names_is_no_conflict_and_the_later_name_wins(specs: Specs) -> None:
    specs.put("/run/cdi/a.json", document("0"))
    specs.at("/var").mkdir()
    specs.at("/var/run").symlink_to("../run")
    found = specs.view(dirs=("/run/cdi", RUN)).resolve(DEVICE)
    assert (found.ok, found.file, found.files) == (True, f"{RUN}/a.json", (f"{RUN}/a.json",))
    assert specs.view(dirs=("/run/cdi", RUN, "/run/cdi/")).resolve(DEVICE).file == "/run/cdi/a.json"


def test_a_link_to_a_file_is_followed_within_the_host(specs: Specs) -> None:
    specs.put("/opt/real", document("0"))
    specs.at(RUN).mkdir(parents=True)
    specs.at(f"{RUN}/a.json").symlink_to("/opt/real")
    assert specs.ask().file == f"{RUN}/a.json"


def test_one_bad_file_never_hides_others(specs: Specs) -> None:
    good = specs.put(f"{RUN}/b.json", document("0"))
    for name, content in (("a.json", b"{"), ("c.json", b"\xff"), ("d.yaml", document("0", cdiVersion="9"))):
        specs.put(f"{RUN}/{name}", content)
    assert specs.ask().file == good
    assert [found.rule for found in specs.view().problems] == ["file-refused"] * 3


# Why not


def test_two_files_of_one_directory_lose_what_they_share_and_nothing_else(specs: Specs) -> None:
    first, second = (
        specs.put(f"{RUN}/a.json", document("0", "1")),
        specs.put(f"{RUN}/b.json", document("0", "2")),
    )
    found = specs.ask()
    assert cause(found) == ("conflict", first)
    assert second in found.reason
    assert specs.view().devices == ((f"{KIND}=1", first), (f"{KIND}=2", second))
    assert [problem.rule for problem in specs.view().problems] == ["conflict"]


def test_a_conflict_in_the_low_directory_sticks_to_the_clean_definition_above(specs: Specs) -> None:
    low = specs.put(f"{ETC}/a.json", document("0"))
    specs.put(f"{ETC}/b.json", document("0"))
    specs.put(f"{RUN}/c.json", document("0", "1"))
    assert cause(specs.ask()) == ("conflict", low)
    assert specs.ask(f"{KIND}=1").ok


def test_a_conflict_in_the_high_directory_does_not_fall_back(specs: Specs) -> None:
    specs.put(f"{ETC}/a.json", document("0"))
    high = specs.put(f"{RUN}/b.json", document("0"))
    specs.put(f"{RUN}/c.json", document("0"))
    assert cause(specs.ask()) == ("conflict", high)


def test_a_version_that_the_library_does_not_know_is_the_cause_and_a_newer_one_finds_the_device(
    specs: Specs,
) -> None:
    path = specs.put(f"{RUN}/a.json", document("0", cdiVersion="0.7.0", annotations={"a": "b"}))
    found = specs.ask(library="0.6.2")
    assert cause(found) == ("file-refused", path)
    assert f"cdigen validate {path}" in found.reason
    assert specs.ask(library="0.7.2").ok


def test_a_refused_file_does_not_hide_the_definition_below(specs: Specs) -> None:
    low = specs.put(f"{ETC}/a.json", document("0"))
    specs.put(f"{RUN}/a.json", document("0", cdiVersion="9.9.9"))
    assert specs.ask().file == low


def test_a_file_that_crashes_the_library_takes_everything_along(specs: Specs) -> None:
    specs.put(f"{RUN}/a.json", document("0"))
    bad = specs.put(f"{ETC}/bad.json", document("0", kind="v/g"))
    assert cause(specs.ask()) == ("runtime-crashes", bad)
    assert specs.view().devices == ()
    assert specs.ask(library="main").ok


def test_a_file_that_cannot_be_parsed_may_have_had_the_device(specs: Specs) -> None:
    path = specs.put(f"{RUN}/a.json", document("0")[:-20])
    found = specs.ask()
    assert cause(found) == ("file-refused", path)
    assert "may define" in found.reason


def test_a_file_beyond_all_measure_is_uncertain_and_not_read(specs: Specs) -> None:
    path = specs.put(f"{RUN}/a.json", b"{}")
    os.truncate(specs.at(path), (16 << 20) + 1)
    assert cause(specs.ask()) == ("file-uncertain", path)


def test_a_library_that_nobody_has_observed_makes_all_uncertain(specs: Specs) -> None:
    path = specs.put(f"{RUN}/a.json", document("0"))
    assert cause(specs.ask(library="0.3.2")) == ("file-uncertain", path)


@pytest.mark.parametrize("name", ["a.yml", "a.JSON", "a.Yaml"])
def test_a_file_with_nearly_the_right_name_is_the_cause(specs: Specs, name: str) -> None:
    path = specs.put(f"{RUN}/{name}", document("0"))
    assert cause(specs.ask()) == ("file-name-ignored", path)
    assert problems(specs.view()) == [("warning", "file-name-ignored", path)]
    assert specs.view().definitions() == ()


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
def test_other_files_and_those_of_folders_below_are_nothing(specs: Specs, name: str) -> None:
    specs.put(f"{RUN}/{name}", document("0"))
    assert cause(specs.ask()) == ("no-specs", "")
    assert (specs.view().problems, specs.view().definitions()) == ((), ())


def test_names_and_kinds_that_nothing_defines_come_with_what_there_is(specs: Specs) -> None:
    specs.put(f"{RUN}/a.json", document("0", "1"))
    assert cause(specs.ask(f"{KIND}=7")) == ("unknown-device", "")
    assert "0, 1" in specs.ask(f"{KIND}=7").reason
    assert cause(specs.ask("amd.com/gpu=0")) == ("unknown-kind", "")
    assert KIND in specs.ask("amd.com/gpu=0").reason


@pytest.mark.parametrize(
    "name", ["", "0", "/dev/null", "nvidia.com/gpu", "nvidia.com=0", f"{KIND}=a b", "v/g=0"]
)
def test_what_is_no_name_is_said_to_be_none(specs: Specs, name: str) -> None:
    specs.put(f"{RUN}/a.json", document("0"))
    assert cause(specs.ask(name)) == ("not-a-name", "")


# Links, modes, and what is no file


def test_a_linked_directory_is_the_cause_unless_the_runtime_follows_it(specs: Specs) -> None:
    specs.put("/opt/cdi/a.json", document("0"))
    specs.at("/etc").mkdir()
    specs.at(ETC).symlink_to("/opt/cdi")
    found = specs.ask()
    assert (found.rule, found.ok) == ("directory-symlink", False)
    assert "/opt/cdi" in found.reason
    assert problems(specs.view()) == [("error", "directory-symlink", ETC)]
    assert specs.view(links=True).resolve(DEVICE).ok
    assert specs.ask(library="main").ok


def test_a_link_above_the_directory_is_followed(specs: Specs) -> None:
    specs.put("/run/cdi/a.json", document("0"))
    specs.at("/var").mkdir()
    specs.at("/var/run").symlink_to("/run")
    assert specs.ask().file == f"{RUN}/a.json"


def test_no_link_leads_out_of_the_host(specs: Specs, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a.json").write_bytes(document("0"))
    specs.at(RUN).mkdir(parents=True)
    specs.at(f"{RUN}/a.json").symlink_to(outside / "a.json")
    assert cause(specs.ask()) == ("file-unreadable", f"{RUN}/a.json")


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
def test_a_file_is_read_as_its_mode_allows_the_reader(
    specs: Specs, *, mode: int, uid: int, gid: int, is_read: bool
) -> None:
    path = specs.put(f"{RUN}/a.json", document("0"), mode=mode)
    if os.geteuid() == 0:
        os.chown(specs.at(path), uid, gid)
    assert specs.ask().ok
    found = specs.ask(reader=USER)
    assert found.ok is is_read
    if not is_read:
        assert cause(found) == ("file-unreadable", path)
        assert "1234" in found.reason


@pytest.mark.needs_root
@pytest.mark.parametrize(("folder", "mode"), [(RUN, 0o700), (RUN, 0o744), (RUN, 0o711), ("/var", 0o700)])
def test_a_directory_that_the_reader_cannot_list_or_reach_gives_nothing(
    specs: Specs, folder: str, mode: int
) -> None:
    specs.put(f"{RUN}/a.json", document("0"))
    os.chmod(specs.at(folder), mode)
    assert specs.ask().ok
    assert cause(specs.ask(reader=USER)) == ("directory-unreadable", f"{RUN}/a.json")


def test_unreadable_for_the_reader_below_readable_above_costs_nothing(specs: Specs) -> None:
    specs.put(f"{ETC}/a.json", document("0"), mode=0o600)
    high = specs.put(f"{RUN}/b.json", document("0"))
    assert specs.ask(reader=USER).file == high


def test_main_of_the_library_stops_at_a_directory_that_is_none(specs: Specs) -> None:
    specs.put(f"{RUN}/a.json", document("0"))
    specs.put(ETC, b"")
    assert specs.ask().ok
    assert problems(specs.view()) == [("error", "not-a-directory", ETC)]
    assert cause(specs.ask(library="main")) == ("scan-stops", f"{RUN}/a.json")


def test_a_fifo_is_never_waited_for_and_costs_every_name_since_every_runtime_waits(specs: Specs) -> None:
    specs.put(f"{RUN}/b.json", document("0"))
    os.mkfifo(specs.at(f"{RUN}/a.json"))
    assert cause(specs.ask()) == ("runtime-hangs", f"{RUN}/a.json")
    assert specs.view().devices == ()


@pytest.mark.parametrize("what", ["dangling link", "link to a folder", "link to itself"])
def test_what_is_no_file_is_never_waited_for(specs: Specs, what: str) -> None:
    good = specs.put(f"{RUN}/b.json", document("0"))
    place = specs.at(f"{RUN}/a.json")
    match what:
        case "dangling link":
            place.symlink_to("nowhere")
        case "link to a folder":
            place.symlink_to("/")
        case "link to itself":
            place.symlink_to("a.json")
    assert specs.ask().file == good
    assert problems(specs.view()) == [("error", "file-unreadable", f"{RUN}/a.json")]


def test_of_thousands_of_names_some_are_told_and_always_the_same(specs: Specs) -> None:
    specs.put(f"{RUN}/a.json", document(*[f"claim{number}" for number in range(1_500)]))
    told = {specs.ask(f"{KIND}=0").reason for _ in range(3)}
    assert told == {
        f"{KIND} has claim0, claim1, claim10, claim100, claim1000, claim1001 and 1494 more",
    }
