"""Whether containers may have the pipe directory of a mps_control daemon of MPS."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.kubelet.host_offering import mps_control

from cdigen.kubelet.mps import mps_problem

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = 65534


def test_a_daemon_with_more_waiting_than_it_takes_is_there(tmp_path: Path) -> None:
    with mps_control(tmp_path):
        assert [mps_problem(str(tmp_path)) for _ in range(4)] == [""] * 4


@pytest.mark.needs_root
def test_a_way_that_another_user_has_made_is_refused_and_a_daemon_of_another_user_is_not(
    tmp_path: Path,
) -> None:
    root, target = tmp_path / "mps", tmp_path / "of-root"
    pipe = root / "r/pipe"
    with mps_control(pipe):
        os.chown(pipe, NOBODY, NOBODY)
        os.chown(pipe / "control", NOBODY, NOBODY)
        assert mps_problem(str(pipe)) == ""
        # As a folder that anybody may make in /tmp.
        os.chown(root, NOBODY, NOBODY)
        assert mps_problem(str(pipe)) == f"{root} belongs to the user {NOBODY}, not to root"
    (target / "r").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(target)
    with mps_control(target / "r/pipe"):
        assert mps_problem(f"{link}/r/pipe") == ""
        os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
        assert mps_problem(f"{link}/r/pipe") == f"{link} belongs to the user {NOBODY}, not to root"
