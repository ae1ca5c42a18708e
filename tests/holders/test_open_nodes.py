"""Who has device nodes open, of this machine's real processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cdigen.holders.open_nodes import NO_RIGHT, read_open

if TYPE_CHECKING:
    from pathlib import Path

NULL, ZERO, FULL = "1:3", "1:5", "1:7"


@pytest.fixture
def full() -> int:
    return os.open("/dev/full", os.O_RDONLY | os.O_CLOEXEC)


@pytest.fixture
def capable(tmp_path: Path) -> str:
    file = tmp_path / "status"
    file.write_text("Name:\tcdigen\nCapEff:\t000001ffffffffff\n")
    return str(file)


def test_a_process_that_has_a_node_open_is_found(full: int, capable: str) -> None:
    found = read_open((FULL,), status=capable)
    assert (os.getpid(), FULL) in found.nodes
    assert {number for _, number in found.nodes} == {FULL}
    os.close(full)
    assert (os.getpid(), FULL) not in read_open((FULL,), status=capable).nodes


@pytest.mark.parametrize("text", ["CapEff:\t0000000000000000\n", "", "CapEff: x\n"])
def test_without_the_right_nothing_is_looked_at(tmp_path: Path, text: str) -> None:
    (tmp_path / "status").write_text(text)
    found = read_open((NULL,), proc="/nothing", status=str(tmp_path / "status"))
    assert (found.nodes, found.problem) == ((), NO_RIGHT)


def test_a_file_that_cannot_be_looked_at_hides_no_node_of_its_process(tmp_path: Path, capable: str) -> None:
    held = tmp_path / "proc/7/fd"
    held.mkdir(parents=True)
    loop = tmp_path / "dev/loop"
    loop.parent.mkdir()
    loop.symlink_to(loop)
    # In both orders, whichever a folder is listed in.
    for name, target in (("1", loop), ("2", "/dev/full"), ("3", loop)):
        (held / name).symlink_to(target)
    found = read_open((FULL,), proc=str(tmp_path / "proc"), status=capable)
    assert (found.nodes, found.problem) == (((7, FULL),), "")


def test_a_folder_of_processes_that_is_not_there_is_a_problem(tmp_path: Path, capable: str) -> None:
    for proc in (tmp_path, tmp_path / "none"):
        assert "could not be looked at" in read_open((NULL,), proc=str(proc), status=capable).problem
