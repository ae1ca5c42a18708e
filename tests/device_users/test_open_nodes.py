"""cdigen finds the processes that have a device node open. The tests use real processes of this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cdigen.device_users.open_nodes import NO_PTRACE, read_open_nodes

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
    found = read_open_nodes((FULL,), status=capable)
    assert (os.getpid(), FULL) in found.nodes
    assert {number for _, number in found.nodes} == {FULL}
    os.close(full)
    assert (os.getpid(), FULL) not in read_open_nodes((FULL,), status=capable).nodes


@pytest.mark.parametrize("text", ["CapEff:\t0000000000000000\n", "", "CapEff: x\n"])
def test_without_cap_sys_ptrace_no_process_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "status").write_text(text)
    found = read_open_nodes((NULL,), proc="/nothing", status=str(tmp_path / "status"))
    assert (found.nodes, found.problem) == ((), NO_PTRACE)


def test_an_unreadable_file_does_not_hide_other_nodes_of_its_process(tmp_path: Path, capable: str) -> None:
    descriptors = tmp_path / "proc/7/fd"
    descriptors.mkdir(parents=True)
    loop = tmp_path / "dev/loop"
    loop.parent.mkdir()
    loop.symlink_to(loop)
    # The loops are before and after the node, because the order of a folder's list is arbitrary.
    for name, target in (("1", loop), ("2", "/dev/full"), ("3", loop)):
        (descriptors / name).symlink_to(target)
    found = read_open_nodes((FULL,), proc=str(tmp_path / "proc"), status=capable)
    assert (found.nodes, found.problem) == (((7, FULL),), "")


def test_a_missing_or_empty_proc_folder_is_reported_as_a_problem(tmp_path: Path, capable: str) -> None:
    for proc in (tmp_path, tmp_path / "none"):
        assert "could not be read" in read_open_nodes((NULL,), proc=str(proc), status=capable).problem
