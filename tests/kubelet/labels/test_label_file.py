"""The file of node labels is complete or missing, expires, and replaces only files of cdigen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from support.kubelet.nfd_worker import FOLDER, LIMIT, labels_of

from cdigen.kubelet.labels.label_file import (
    LASTS_S,
    MAX_BYTES,
    MAX_LABELS,
    RENEW_S,
    LabelFile,
    bounded,
    content,
    is_ours,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.kubelet.labels.label_file import LabelState

LABELS = (("nvidia.com/gpu.count", "8"), ("nvidia.com/gpu.product", "T4"))


class LabelledFolder:
    """A file of labels below ROOT, and its log."""

    def __init__(self, root: Path) -> None:
        self.logged: list[tuple[str, str, str]] = []
        self.folder = root / FOLDER
        self.path = self.folder / "cdigen"
        self.now_s = time.time()
        self.file = LabelFile(lambda *words: self.logged.append(words), lambda: self.now_s)

    def state(self, labels: tuple[tuple[str, str], ...] | None, name: str = "cdigen") -> LabelState:
        """Update the file NAME with LABELS, and return its state."""
        state = self.file.update(f"{self.folder}/{name}", labels)
        assert state is not None
        return state

    def update(self, labels: tuple[tuple[str, str], ...] | None = LABELS) -> str:
        return self.state(labels).state


@pytest.fixture
def labelled(tmp_path: Path) -> LabelledFolder:
    made = LabelledFolder(tmp_path)
    made.folder.mkdir(parents=True)
    return made


def expires_s(path: Path) -> float:
    found = re.search(r"expiry-time=(.*)", path.read_text())
    assert found
    return time.mktime(time.strptime(found[1], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone


def test_nfd_reads_the_labels_until_they_expire_after_15_minutes(labelled: LabelledFolder) -> None:
    assert labelled.update() == "written"
    assert labels_of(labelled.folder, labelled.now_s) == dict(LABELS)
    assert labels_of(labelled.folder, labelled.now_s + LASTS_S - 1) == dict(LABELS)
    assert labels_of(labelled.folder, labelled.now_s + LASTS_S) == {}
    # NFD's worker may run as any user, and the file is not secret.
    assert labelled.path.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in labelled.folder.iterdir()] == ["cdigen"]
    assert labelled.logged == [("info", f"{labelled.path} is written, with 2 labels", "")]


def test_the_file_is_written_again_only_after_a_change(labelled: LabelledFolder) -> None:
    labelled.update()
    first = labelled.path.stat().st_ino
    for _ in range(3):
        labelled.update()
    assert labelled.path.stat().st_ino == first
    labelled.update(LABELS[:1])
    assert labels_of(labelled.folder) == dict(LABELS[:1])
    labelled.update(())
    assert labels_of(labelled.folder) == {}


@pytest.mark.parametrize("moved_s", [LASTS_S - RENEW_S + 1, 1e6, -1e6])
def test_the_file_is_written_again_before_it_expires_and_after_a_change_of_the_clock(
    labelled: LabelledFolder, moved_s: float
) -> None:
    labelled.update()
    labelled.now_s += moved_s
    labelled.update()
    assert expires_s(labelled.path) == int(labelled.now_s) + LASTS_S
    assert len(labelled.logged) == 1


def test_changes_of_the_file_by_other_programs_are_reverted(labelled: LabelledFolder) -> None:
    labelled.update()
    labelled.path.unlink()
    labelled.update()
    assert labels_of(labelled.folder) == dict(LABELS)
    with labelled.path.open("a") as file:
        file.write("nvidia.com/gpu.count=9\n")
    labelled.update()
    assert labels_of(labelled.folder) == dict(LABELS)


def test_the_former_labels_stay_while_the_labels_are_unknown(labelled: LabelledFolder) -> None:
    assert labelled.update(None) == "waiting"
    assert not labelled.path.exists()
    labelled.update()
    labelled.path.unlink()
    assert labelled.update(None) == "written"
    assert labels_of(labelled.folder) == dict(LABELS)


def test_a_missing_folder_is_logged_once_and_not_made(labelled: LabelledFolder) -> None:
    labelled.folder.rmdir()
    for _ in range(3):
        assert labelled.update() == "waiting"
    assert not labelled.folder.exists()
    assert [(level, "has not made the folder" in text) for level, text, _ in labelled.logged] == [
        ("info", True)
    ]
    labelled.folder.mkdir()
    assert labelled.update() == "written"
    assert labels_of(labelled.folder) == dict(LABELS)


@pytest.mark.parametrize("text", ["", "nvidia.com/gpu.count=4\n", "\0" * 70_000])
def test_a_file_of_another_program_stays_unchanged(labelled: LabelledFolder, text: str) -> None:
    labelled.path.write_text(text)
    for _ in range(3):
        assert labelled.update() == "failed"
    assert labelled.path.read_text() == text
    ((level, message, hint),) = labelled.logged
    assert level == "warning"
    assert str(labelled.path) in message
    assert "kubelet: {labels}" in hint
    # The file also stays if labels are disabled.
    labelled.file.update("", None)
    assert labelled.path.read_text() == text


def test_the_file_of_an_earlier_process_is_replaced(labelled: LabelledFolder) -> None:
    labelled.path.write_bytes(content((("a.com/old", "1"),), 1))
    (labelled.folder / f".cdigen-cdigen.1.{'a' * 8}.tmp").write_text("half")
    labelled.update()
    assert labels_of(labelled.folder) == dict(LABELS)
    assert [path.name for path in labelled.folder.iterdir()] == ["cdigen"]


def test_a_file_that_is_a_symbolic_link_is_not_followed(labelled: LabelledFolder, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(content((), 1))
    before = other.read_bytes()
    labelled.path.symlink_to(other)
    assert labelled.update() == "failed"
    assert other.read_bytes() == before
    assert labelled.path.is_symlink()


def test_a_folder_that_is_a_symbolic_link_is_not_entered(labelled: LabelledFolder, tmp_path: Path) -> None:
    labelled.folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    labelled.folder.symlink_to(tmp_path / "elsewhere")
    assert labelled.update() == "failed"
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_folder_or_fifo_with_the_name_of_the_file_stays_unchanged(
    labelled: LabelledFolder, kind: str
) -> None:
    if kind == "folder":
        labelled.path.mkdir()
    else:
        os.mkfifo(labelled.path)
    assert labelled.update() == "failed"
    assert not labelled.path.is_file()


@pytest.mark.parametrize(("name", "reason"), [(".cdigen", "begins with a dot"), ("", "is a folder")])
def test_a_file_name_that_nfd_ignores_is_refused(labelled: LabelledFolder, name: str, reason: str) -> None:
    assert labelled.state(LABELS, name).state == "failed"
    ((level, text, hint),) = labelled.logged
    assert (level, reason in text, "features.d/cdigen" in hint) == ("warning", True, True)
    assert not list(labelled.folder.iterdir())


def test_the_file_is_removed_if_the_configuration_has_no_path_or_another_path(
    labelled: LabelledFolder,
) -> None:
    labelled.update()
    assert labelled.file.update("", None) is None
    assert not labelled.path.exists()
    labelled.update()
    other = labelled.folder / "other"
    labelled.file.update(str(other), LABELS)
    assert [path.name for path in labelled.folder.iterdir()] == ["other"]
    assert labelled.logged[-1][1] == f"{other} is written, with 2 labels"


FULL = """
import resource, sys
from cdigen.kubelet.labels.label_file import LabelFile
path = sys.argv[1]
file = LabelFile(lambda *words: print(*words))
assert file.update(path, (("a.com/one", "1"),)).state == "written"
# The limit of the file size simulates a full disk, which stores only a part of the data.
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
state = file.update(path, tuple((f"a.com/label{n}", "1") for n in range(100)))
print(state.state, state.reason)
"""


def test_on_a_full_disk_the_old_file_stays_complete(labelled: LabelledFolder) -> None:
    command = [sys.executable, "-c", FULL, str(labelled.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "failed cannot write" in done.stdout, done.stderr
    assert labels_of(labelled.folder) == {"a.com/one": "1"}
    assert [path.name for path in labelled.folder.iterdir()] == ["cdigen"]


def test_a_failed_write_is_repeated_after_a_few_seconds(labelled: LabelledFolder) -> None:
    labelled.path.write_text("another program's")
    labelled.update()
    labelled.path.unlink()
    assert labelled.update() == "failed"
    labelled.now_s += 6
    assert labelled.update() == "written"
    assert [level for level, *_ in labelled.logged] == ["warning", "info"]


def test_the_file_is_never_larger_than_the_limit_of_nfd() -> None:
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


def test_the_number_of_labels_that_do_not_fit_is_logged(labelled: LabelledFolder) -> None:
    many = tuple((f"nvidia.com/gpu.product.{n}", "1") for n in range(MAX_LABELS + 3))
    state = labelled.state(many)
    assert (state.state, state.left_out) == ("written", 3)
    ((level, text, _),) = labelled.logged
    assert (level, text) == ("warning", f"{labelled.path}: 3 more labels do not fit")
    assert len(labels_of(labelled.folder)) == MAX_LABELS
