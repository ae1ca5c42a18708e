"""mps_problem checks the MPS pipe directory before a container uses the directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.kubelet.host_resources import mps_control

from cdigen.kubelet.allocation.mps import mps_problem

if TYPE_CHECKING:
    from pathlib import Path

OTHER_USER = 65534


def test_a_control_daemon_with_a_full_connection_queue_is_available(tmp_path: Path) -> None:
    with mps_control(tmp_path):
        assert [mps_problem(str(tmp_path)) for _ in range(4)] == [""] * 4


@pytest.mark.needs_root
def test_a_pipe_directory_may_belong_to_any_user_and_its_parent_folders_only_to_root(
    tmp_path: Path,
) -> None:
    root, target = tmp_path / "mps", tmp_path / "of-root"
    pipe = root / "r/pipe"
    with mps_control(pipe):
        os.chown(pipe, OTHER_USER, OTHER_USER)
        os.chown(pipe / "control", OTHER_USER, OTHER_USER)
        assert mps_problem(str(pipe)) == ""
        # Any user can create such a folder in /tmp.
        os.chown(root, OTHER_USER, OTHER_USER)
        assert mps_problem(str(pipe)) == f"{root} belongs to the user {OTHER_USER}, not to root"
    (target / "r").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(target)
    with mps_control(target / "r/pipe"):
        assert mps_problem(f"{link}/r/pipe") == ""
        os.chown(link, OTHER_USER, OTHER_USER, follow_symlinks=False)
        assert mps_problem(f"{link}/r/pipe") == f"{link} belongs to the user {OTHER_USER}, not to root"
