"""Who a process is to those who find its run directory taken."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cdigen.frontend.owner import this_owner

if TYPE_CHECKING:
    from pathlib import Path

UNIFIED = "0::/system.slice/cdigen.service\n"
OLD = "12:pids:/system.slice/cdigen.service\n1:name=systemd:/system.slice/cdigen.service\n"


@pytest.mark.parametrize(
    ("environ", "owner"),
    [
        ({"CDIGEN_POD_NAME": "cdigen-x", "CDIGEN_POD_NAMESPACE": "gpus"}, "pod gpus/cdigen-x"),
        ({"CDIGEN_POD_NAME": "cdigen-x"}, "pod cdigen-x"),
        ({"CDIGEN_POD_NAMESPACE": "gpus"}, ""),
        ({"CDIGEN_POD_NAME": "a b\n", "CDIGEN_POD_NAMESPACE": "gpus"}, ""),
        ({"CDIGEN_POD_NAME": "x" * 300}, ""),
    ],
)
def test_a_pod_is_called_by_what_the_downward_api_says(
    tmp_path: Path, environ: dict[str, str], owner: str
) -> None:
    assert this_owner(environ, root=str(tmp_path)) == owner


@pytest.mark.parametrize(
    ("cgroup", "owner"),
    [
        (UNIFIED, "cdigen.service"),
        (OLD, "cdigen.service"),
        ("0::/user.slice/user-0.slice/user@0.service/app.slice/shell.scope\n", ""),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_a_service_is_called_by_its_cgroup(tmp_path: Path, cgroup: str, owner: str) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(cgroup)
    assert this_owner({}, root=str(tmp_path)) == owner


@pytest.mark.parametrize("file", [".dockerenv", "run/.containerenv"])
def test_a_container_is_called_by_its_hosts_name(tmp_path: Path, file: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / file).write_text("")
    assert this_owner({}, root=str(tmp_path)) == f"container {os.uname().nodename}"
