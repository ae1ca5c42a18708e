"""The cache of spec files: a file is read again only after it has changed."""

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
# This time is longer than one step of the clock for file times.
SETTLED_S = 0.03


class CountingRoot(Root):
    """A Root of this machine that records the opened files."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str) -> OpenFile:
        self.opened.append(path.rpartition("/")[2])
        return super().open(path)


class RewritingRoot(Root):
    """A Root of this machine that writes TEXT into the file PATH immediately after each read of the file."""

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


class CachedScan:
    """Repeated scans with one cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # If true, the files are so young that their times may not show the next change.
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
        """Return the result of a scan of the folder."""
        return scan((str(self.folder),), cache=self._cache)

    def names(self, library: str = "1.1.0") -> tuple[list[str], list[str]]:
        """Return the names that a scan finds, and the files that the scan opens."""
        host = CountingRoot()
        found = scan((str(self.folder),), host, library=library, cache=self._cache)
        return [device.partition("=")[2] for device, _ in found.devices], host.opened


@pytest.fixture
def cached(tmp_path: Path) -> CachedScan:
    made = CachedScan(tmp_path)
    made.put("a.json", "0", settle=False)
    made.put("b.yaml", "1")
    return made


def test_a_file_that_has_not_changed_is_read_once(cached: CachedScan) -> None:
    assert cached.names() == (["0", "1"], ["a.json", "b.yaml"])
    assert cached.names() == (["0", "1"], [])


def test_only_a_changed_file_is_read_again(cached: CachedScan) -> None:
    cached.names()
    cached.put("a.json", "7")
    assert cached.names() == (["1", "7"], ["a.json"])
    assert cached.names() == (["1", "7"], [])


def test_each_library_reads_the_files_separately(cached: CachedScan) -> None:
    cached.names()
    assert cached.names("1.0.1") == (["0", "1"], ["a.json", "b.yaml"])
    assert cached.names("1.0.1")[1] == cached.names()[1] == []


def test_new_and_removed_files_are_detected(cached: CachedScan) -> None:
    cached.names()
    (cached.folder / "a.json").rename(cached.folder / "c.json")
    assert cached.names()[0] == ["0", "1"]
    (cached.folder / "c.json").unlink()
    assert cached.names() == (["1"], [])


def test_new_content_with_the_same_size_and_modification_time_is_detected(cached: CachedScan) -> None:
    before = (cached.folder / "a.json").stat()
    cached.names()
    cached.put("a.json", "9")
    os.utime(cached.folder / "a.json", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cached.names()[0] == ["1", "9"]


def test_each_change_of_a_recently_written_file_is_detected(cached: CachedScan) -> None:
    cached.names()
    for device in (f"gpu{number}" for number in range(20)):
        cached.put("a.json", device, settle=False)
        assert device in cached.names()[0]


def test_a_change_during_the_read_is_detected_by_the_next_scan(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    rest = "\n#" + " x" * 2_000_000  # parsing takes longer than a step of the clock for files
    head = 'cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\ndevices: [{name: "%s", containerEdits: {env: [A=B]}}]'
    path.write_text(head % 0 + rest)
    pause(SETTLED_S)
    cache = SpecCache()
    scan((str(tmp_path),), RewritingRoot(path, head % 1 + rest), cache=cache)
    assert [name for name, _ in scan((str(tmp_path),), Root(), cache=cache).devices] == ["nvidia.com/gpu=1"]


def test_a_link_is_read_again_only_after_its_target_has_changed(cached: CachedScan, tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()
    os.replace(tmp_path / "a.json", tmp_path / "aside/a")
    (tmp_path / "a.json").symlink_to("aside/a")
    pause(SETTLED_S)
    cached.names()
    assert cached.names()[1] == []
    cached.put("aside/a", "5")
    assert cached.names() == (["1", "5"], ["a.json"])


def test_the_cache_is_bounded_and_the_results_stay_correct(tmp_path: Path) -> None:
    cached = CachedScan(tmp_path)
    for number in range(4_001):
        cached.put(f"{number}.json", str(number), settle=False)
    pause(SETTLED_S)
    names = list(map(str, range(4_001)))
    assert cached.names()[0] == names
    assert cached.names() == (names, ["999.json"])


def test_a_young_file_is_read_again_and_not_parsed_again_if_it_is_equal(tmp_path: Path) -> None:
    cached = CachedScan(tmp_path)
    cached.is_young = True
    cached.put("a.json", "0")
    (first,) = cached.scan().files
    (second,) = cached.scan().files
    assert second is first
    cached.is_young = False
    assert cached.names()[1] == ["a.json"]
    assert cached.names()[1] == []


def test_at_most_one_mebibyte_of_young_files_is_kept_for_comparison(tmp_path: Path) -> None:
    cached = CachedScan(tmp_path)
    cached.is_young = True
    for name in ("a.json", "b.json", "c.json"):
        cached.put(name, name[0], settle=False)
        with (tmp_path / name).open("a") as file:
            file.write(" " * 400_000)
    first = cached.scan().files
    are_kept = [one is two for one, two in zip(first, cached.scan().files, strict=True)]
    assert are_kept == [True, True, False]


def test_the_cache_does_not_keep_a_removed_file(cached: CachedScan) -> None:
    index = weakref.ref(cached.scan().index)
    kept = cached.scan().files[0]
    references = sys.getrefcount(kept)
    (cached.folder / "a.json").unlink()
    cached.names()
    gc.collect()
    assert sys.getrefcount(kept) < references
    assert index() is None


def test_the_cache_does_not_keep_a_removed_spec_directory(cached: CachedScan) -> None:
    kept = cached.scan().files
    shutil.rmtree(cached.folder)
    cached.names()
    gc.collect()
    assert [len(gc.get_referrers(file)) for file in kept] == [1, 1]


def test_a_kind_without_changed_files_keeps_its_names(cached: CachedScan) -> None:
    cached.put("c.json", "x", kind="example.com/claim")
    before = cached.scan().names
    cached.put("d.json", "y", kind="example.com/claim")
    after = cached.scan().names
    assert after[KIND] is before[KIND]
    assert after["example.com/claim"].sorted == ("x", "y")
    assert before["example.com/claim"].sorted == ("x",)


def test_each_loaded_document_is_prepared_once(cached: CachedScan) -> None:
    prepared: list[object] = []

    def prepare(document: dict[str, Any]) -> int:
        prepared.append(document)
        return len(prepared)

    cache = SpecCache(prepare)
    (cached.folder / "c.json").write_text("{")
    pause(SETTLED_S)
    for _ in range(2):
        found = scan((str(cached.folder),), library="1.0.1", cache=cache)
        assert [file.prepared for file in found.files] == [1, 2, None]
    assert len(prepared) == 2
    file = found.file(f"{KIND}=1")
    assert file is not None
    assert file.prepared == 2


def test_a_file_that_is_too_large_is_never_opened(cached: CachedScan) -> None:
    os.truncate(cached.folder / "a.json", (16 << 20) + 1)
    assert cached.names() == (["1"], ["b.yaml"])
