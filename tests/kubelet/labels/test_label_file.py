"""The file with the node's labels on the disk: whole or not there, ours alone, and for a time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from support.kubelet.nfd_worker import FOLDER, LIMIT, labels_of

from cdigen.kubelet.labels.feature_file import MAX_BYTES, MAX_LABELS, bounded, content, is_ours
from cdigen.kubelet.labels.keeper import LASTS_S, RENEW_S, LabelFile

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.kubelet.labels.keeper import LabelState

LABELS = (("nvidia.com/gpu.count", "8"), ("nvidia.com/gpu.product", "T4"))


class Kept:
    """A file of labels below ROOT, and what was said of it."""

    def __init__(self, root: Path) -> None:
        self.said: list[tuple[str, str, str]] = []
        self.folder = root / FOLDER
        self.path = self.folder / "cdigen"
        self.now_s = time.time()
        self.file = LabelFile(lambda *words: self.said.append(words), lambda: self.now_s)

    def state(self, labels: tuple[tuple[str, str], ...] | None, name: str = "cdigen") -> LabelState:
        """Let the file NAME have LABELS, and return its state."""
        state = self.file.keep(f"{self.folder}/{name}", labels)
        assert state is not None
        return state

    def keep(self, labels: tuple[tuple[str, str], ...] | None = LABELS) -> str:
        return self.state(labels).state


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    made = Kept(tmp_path)
    made.folder.mkdir(parents=True)
    return made


def expires_s(path: Path) -> float:
    found = re.search(r"expiry-time=(.*)", path.read_text())
    assert found
    return time.mktime(time.strptime(found[1], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone


def test_nfd_has_the_labels_for_a_quarter_of_an_hour(kept: Kept) -> None:
    assert kept.keep() == "written"
    assert labels_of(kept.folder, kept.now_s) == dict(LABELS)
    assert labels_of(kept.folder, kept.now_s + LASTS_S - 1) == dict(LABELS)
    assert labels_of(kept.folder, kept.now_s + LASTS_S) == {}
    # NFD's worker is any user, and the file is no secret.
    assert kept.path.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in kept.folder.iterdir()] == ["cdigen"]
    assert kept.said == [("info", f"{kept.path} is written, with 2 labels", "")]


def test_it_is_written_anew_for_a_change_alone(kept: Kept) -> None:
    kept.keep()
    first = kept.path.stat().st_ino
    for _ in range(3):
        kept.keep()
    assert kept.path.stat().st_ino == first
    kept.keep(LABELS[:1])
    assert labels_of(kept.folder) == dict(LABELS[:1])
    kept.keep(())
    assert labels_of(kept.folder) == {}


@pytest.mark.parametrize("moved_s", [LASTS_S - RENEW_S + 1, 1e6, -1e6])
def test_it_is_written_anew_before_its_time_is_over_and_when_the_clock_was_set(
    kept: Kept, moved_s: float
) -> None:
    kept.keep()
    kept.now_s += moved_s
    kept.keep()
    assert expires_s(kept.path) == int(kept.now_s) + LASTS_S
    assert len(kept.said) == 1


def test_what_others_do_to_it_is_undone(kept: Kept) -> None:
    kept.keep()
    kept.path.unlink()
    kept.keep()
    assert labels_of(kept.folder) == dict(LABELS)
    with kept.path.open("a") as file:
        file.write("nvidia.com/gpu.count=9\n")
    kept.keep()
    assert labels_of(kept.folder) == dict(LABELS)


def test_while_nobody_knows_the_labels_those_from_before_go_on(kept: Kept) -> None:
    assert kept.keep(None) == "waiting"
    assert not kept.path.exists()
    kept.keep()
    kept.path.unlink()
    assert kept.keep(None) == "written"
    assert labels_of(kept.folder) == dict(LABELS)


def test_a_folder_that_is_not_there_is_said_once_and_is_nfds_to_make(kept: Kept) -> None:
    kept.folder.rmdir()
    for _ in range(3):
        assert kept.keep() == "waiting"
    assert not kept.folder.exists()
    assert [(level, "is not there" in text) for level, text, _ in kept.said] == [("info", True)]
    kept.folder.mkdir()
    assert kept.keep() == "written"
    assert labels_of(kept.folder) == dict(LABELS)


@pytest.mark.parametrize("text", ["", "nvidia.com/gpu.count=4\n", "\0" * 70_000])
def test_another_programs_file_is_left_as_it_is(kept: Kept, text: str) -> None:
    kept.path.write_text(text)
    for _ in range(3):
        assert kept.keep() == "failed"
    assert kept.path.read_text() == text
    ((level, message, hint),) = kept.said
    assert level == "warning"
    assert str(kept.path) in message
    assert "kubelet: {labels}" in hint
    # Nor is it removed where we stop.
    kept.file.keep("", None)
    assert kept.path.read_text() == text


def test_our_own_of_an_earlier_process_is_taken_over(kept: Kept) -> None:
    kept.path.write_bytes(content((("a.com/old", "1"),), 1))
    (kept.folder / f".cdigen-cdigen.1.{'a' * 8}.tmp").write_text("half")
    kept.keep()
    assert labels_of(kept.folder) == dict(LABELS)
    assert [path.name for path in kept.folder.iterdir()] == ["cdigen"]


def test_no_link_is_followed(kept: Kept, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(content((), 1))
    before = other.read_bytes()
    kept.path.symlink_to(other)
    assert kept.keep() == "failed"
    assert other.read_bytes() == before
    assert kept.path.is_symlink()


def test_no_folder_is_entered_through_a_link(kept: Kept, tmp_path: Path) -> None:
    kept.folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    kept.folder.symlink_to(tmp_path / "elsewhere")
    assert kept.keep() == "failed"
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_what_is_no_file_is_left_as_it_is(kept: Kept, kind: str) -> None:
    if kind == "folder":
        kept.path.mkdir()
    else:
        os.mkfifo(kept.path)
    assert kept.keep() == "failed"
    assert not kept.path.is_file()


@pytest.mark.parametrize(("name", "reason"), [(".cdigen", "begins with a dot"), ("", "is a folder")])
def test_a_name_that_nfd_passes_over_is_refused(kept: Kept, name: str, reason: str) -> None:
    assert kept.state(LABELS, name).state == "failed"
    ((level, text, hint),) = kept.said
    assert (level, reason in text, "features.d/cdigen" in hint) == ("warning", True, True)
    assert not list(kept.folder.iterdir())


def test_without_the_key_or_by_another_path_ours_is_removed(kept: Kept) -> None:
    kept.keep()
    assert kept.file.keep("", None) is None
    assert not kept.path.exists()
    kept.keep()
    other = kept.folder / "other"
    kept.file.keep(str(other), LABELS)
    assert [path.name for path in kept.folder.iterdir()] == ["other"]
    assert kept.said[-1][1] == f"{other} is written, with 2 labels"


FULL = """
import resource, sys
from cdigen.kubelet.labels.keeper import LabelFile
path = sys.argv[1]
file = LabelFile(lambda *words: print(*words))
assert file.keep(path, (("a.com/one", "1"),)).state == "written"
# No file may have more than this: as a full disk, it takes a part of what is written.
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
state = file.keep(path, tuple((f"a.com/label{n}", "1") for n in range(100)))
print(state.state, state.reason)
"""


def test_a_full_disk_leaves_the_old_file_whole(kept: Kept) -> None:
    command = [sys.executable, "-c", FULL, str(kept.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "failed cannot write" in done.stdout, done.stderr
    assert labels_of(kept.folder) == {"a.com/one": "1"}
    assert [path.name for path in kept.folder.iterdir()] == ["cdigen"]


def test_a_failure_is_tried_again_after_a_moment(kept: Kept) -> None:
    kept.path.write_text("another program's")
    kept.keep()
    kept.path.unlink()
    assert kept.keep() == "failed"
    kept.now_s += 6
    assert kept.keep() == "written"
    assert [level for level, *_ in kept.said] == ["warning", "info"]


def test_a_file_never_has_more_than_nfd_reads() -> None:
    many = tuple((f"nvidia.com/gpu.product.{'x' * 40}{n:04}", "1") for n in range(3_000))
    plain = (("nvidia.com/gpu.sharing-strategy", "none"),)
    kept = bounded((*many, *plain))
    assert len(kept) == MAX_LABELS
    assert plain[0] in kept
    assert len(content(kept, time.time())) <= MAX_BYTES <= LIMIT
    long = tuple((f"intel.feature.node.kubernetes.io/{n:063}", "y" * 63) for n in range(3_000))
    assert len(content(bounded(long), time.time())) <= MAX_BYTES
    assert bounded(plain) == plain
    assert is_ours(content(kept, 0))


def test_what_has_no_room_is_said(kept: Kept) -> None:
    many = tuple((f"nvidia.com/gpu.product.{n}", "1") for n in range(MAX_LABELS + 3))
    state = kept.state(many)
    assert (state.state, state.left_out) == ("written", 3)
    ((level, text, _),) = kept.said
    assert (level, text) == ("warning", f"{kept.path} has no room for 3 more labels")
    assert len(labels_of(kept.folder)) == MAX_LABELS
