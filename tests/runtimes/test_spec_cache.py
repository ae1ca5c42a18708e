"""What spec files hold is kept: a file is read again only after it has changed."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from support.waiting import pause

from cdigen.host.filetimes import shows_changes
from cdigen.host.root import OpenFile, Root
from cdigen.runtimes.scan import scan
from cdigen.runtimes.spec_cache import SpecCache

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.runtimes.scan import SpecScan

KIND = "nvidia.com/gpu"
# Longer than the clock of files stands still.
SETTLED_S = 0.03


class CountingRoot(Root):
    """This machine, and the files that were opened on it."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str) -> OpenFile:
        self.opened.append(path.rpartition("/")[2])
        return super().open(path)


class RewritingRoot(Root):
    """This machine, where somebody writes TEXT into the file PATH as soon as its content was read."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__()
        self._path, self._text = path, text

    def open(self, path: str) -> OpenFile:
        file, written, text = super().open(path), self._path, self._text

        class Rewritten(OpenFile):
            def read_all(self, limit: int) -> bytes:
                content = super().read_all(limit)
                written.write_text(text)
                return content

        return Rewritten(file.descriptor, file.path, os.fstat(file.descriptor))


class Looking:
    """One cache, asked again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Whether files are so young that their times may not show the next change.
        self.is_young = False
        self._cache = SpecCache(
            shows_changes=lambda changed_ns, now_ns: not self.is_young and shows_changes(changed_ns, now_ns)
        )

    def put(self, name: str, *devices: str, settle: bool = True, kind: str = KIND) -> None:
        entries = [{"name": device, "containerEdits": {"env": ["A=B"]}} for device in devices]
        text = json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": entries})
        (self.folder / name).write_text(text)
        pause(SETTLED_S if settle else 0)

    def scan(self) -> SpecScan:
        """Return what a scan of the folder finds."""
        return scan((str(self.folder),), cache=self._cache)

    def look(self, library: str = "1.1.0") -> tuple[list[str], list[str]]:
        """Return the names that are found, and the files that were opened for it."""
        host = CountingRoot()
        found = scan((str(self.folder),), host, library=library, cache=self._cache)
        return [device.partition("=")[2] for device, _ in found.devices], host.opened


@pytest.fixture
def looking(tmp_path: Path) -> Looking:
    made = Looking(tmp_path)
    made.put("a.json", "0", settle=False)
    made.put("b.yaml", "1")
    return made


def test_a_file_that_has_not_changed_is_read_once(looking: Looking) -> None:
    assert looking.look() == (["0", "1"], ["a.json", "b.yaml"])
    assert looking.look() == (["0", "1"], [])


def test_one_changed_file_costs_one_reading(looking: Looking) -> None:
    looking.look()
    looking.put("a.json", "7")
    assert looking.look() == (["1", "7"], ["a.json"])
    assert looking.look() == (["1", "7"], [])


def test_each_library_reads_for_itself(looking: Looking) -> None:
    looking.look()
    assert looking.look("1.0.1") == (["0", "1"], ["a.json", "b.yaml"])
    assert looking.look("1.0.1")[1] == looking.look()[1] == []


def test_what_comes_and_goes_is_seen(looking: Looking) -> None:
    looking.look()
    (looking.folder / "a.json").rename(looking.folder / "c.json")
    assert looking.look()[0] == ["0", "1"]
    (looking.folder / "c.json").unlink()
    assert looking.look() == (["1"], [])


def test_another_content_of_the_same_size_and_times_is_seen(looking: Looking) -> None:
    before = (looking.folder / "a.json").stat()
    looking.look()
    looking.put("a.json", "9")
    os.utime(looking.folder / "a.json", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert looking.look()[0] == ["1", "9"]


def test_a_file_that_has_just_been_written_is_not_kept(looking: Looking) -> None:
    looking.look()
    for device in (f"gpu{number}" for number in range(20)):
        looking.put("a.json", device, settle=False)
        assert device in looking.look()[0]


def test_a_change_during_the_reading_is_seen_at_the_next_look(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    rest = "\n#" + " x" * 2_000_000  # parsing takes longer than the clock of files stands still
    head = 'cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\ndevices: [{name: "%s", containerEdits: {env: [A=B]}}]'
    path.write_text(head % 0 + rest)
    pause(SETTLED_S)
    cache = SpecCache()
    scan((str(tmp_path),), RewritingRoot(path, head % 1 + rest), cache=cache)
    assert [name for name, _ in scan((str(tmp_path),), Root(), cache=cache).devices] == ["nvidia.com/gpu=1"]


def test_a_link_is_kept_until_what_it_leads_to_changes(looking: Looking, tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()
    os.replace(tmp_path / "a.json", tmp_path / "aside/a")
    (tmp_path / "a.json").symlink_to("aside/a")
    pause(SETTLED_S)
    looking.look()
    assert looking.look()[1] == []
    looking.put("aside/a", "5")
    assert looking.look() == (["1", "5"], ["a.json"])


def test_what_is_kept_is_bounded_and_answers_stay_right(tmp_path: Path) -> None:
    looking = Looking(tmp_path)
    for number in range(4_001):
        looking.put(f"{number}.json", str(number), settle=False)
    pause(SETTLED_S)
    names = list(map(str, range(4_001)))
    assert looking.look()[0] == names
    assert looking.look() == (names, ["999.json"])


def test_a_file_that_was_read_right_after_a_change_is_compared_and_not_parsed_again(tmp_path: Path) -> None:
    looking = Looking(tmp_path)
    looking.is_young = True
    looking.put("a.json", "0")
    (first,) = looking.scan().files
    (second,) = looking.scan().files
    assert second is first
    looking.is_young = False
    assert looking.look()[1] == ["a.json"]
    assert looking.look()[1] == []


def test_only_a_mebibyte_is_kept_to_compare_what_was_just_written(tmp_path: Path) -> None:
    looking = Looking(tmp_path)
    looking.is_young = True
    for name in ("a.json", "b.json", "c.json"):
        looking.put(name, name[0], settle=False)
        with (tmp_path / name).open("a") as file:
            file.write(" " * 400_000)
    first = looking.scan().files
    are_kept = [one is two for one, two in zip(first, looking.scan().files, strict=True)]
    assert are_kept == [True, True, False]


def test_what_has_gone_is_forgotten(looking: Looking) -> None:
    file = weakref.ref(looking.scan().index)
    kept = looking.scan().files[0]
    holders = sys.getrefcount(kept)
    (looking.folder / "a.json").unlink()
    looking.look()
    gc.collect()
    assert sys.getrefcount(kept) < holders
    assert file() is None


def test_a_spec_directory_that_has_gone_is_forgotten(looking: Looking) -> None:
    kept = looking.scan().files
    shutil.rmtree(looking.folder)
    looking.look()
    gc.collect()
    assert [len(gc.get_referrers(file)) for file in kept] == [1, 1]


def test_a_kind_of_which_no_file_has_changed_keeps_its_names(looking: Looking) -> None:
    looking.put("c.json", "x", kind="example.com/claim")
    before = looking.scan().names
    looking.put("d.json", "y", kind="example.com/claim")
    after = looking.scan().names
    assert after[KIND] is before[KIND]
    assert after["example.com/claim"].sorted == ("x", "y")
    assert before["example.com/claim"].sorted == ("x",)


def test_each_loaded_document_is_given_to_whom_it_is_for_once(looking: Looking) -> None:
    given: list[object] = []

    def prepare(document: dict[str, Any]) -> int:
        given.append(document)
        return len(given)

    cache = SpecCache(prepare)
    (looking.folder / "c.json").write_text("{")
    pause(SETTLED_S)
    for _ in range(2):
        found = scan((str(looking.folder),), library="1.0.1", cache=cache)
        assert [file.prepared for file in found.files] == [1, 2, None]
    assert len(given) == 2
    file = found.file(f"{KIND}=1")
    assert file is not None
    assert file.prepared == 2


def test_a_file_that_is_too_large_is_never_opened(looking: Looking) -> None:
    os.truncate(looking.folder / "a.json", (16 << 20) + 1)
    assert looking.look() == (["1"], ["b.yaml"])
