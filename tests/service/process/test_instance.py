"""The name of a process, which other instances show while they wait for the run directory of the process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cdigen.service.process.instance import this_instance

if TYPE_CHECKING:
    from pathlib import Path

UNIFIED = "0::/system.slice/cdigen.service\n"
OLD = "12:pids:/system.slice/cdigen.service\n1:name=systemd:/system.slice/cdigen.service\n"


@pytest.mark.parametrize(
    ("environ", "instance"),
    [
        ({"CDIGEN_POD_NAME": "cdigen-x", "CDIGEN_POD_NAMESPACE": "gpus"}, "pod gpus/cdigen-x"),
        ({"CDIGEN_POD_NAME": "cdigen-x"}, "pod cdigen-x"),
        ({"CDIGEN_POD_NAMESPACE": "gpus"}, ""),
        ({"CDIGEN_POD_NAME": "a b\n", "CDIGEN_POD_NAMESPACE": "gpus"}, ""),
        ({"CDIGEN_POD_NAME": "x" * 300}, ""),
    ],
)
def test_in_a_pod_the_name_is_read_from_the_downward_api(
    tmp_path: Path, environ: dict[str, str], instance: str
) -> None:
    assert this_instance(environ, root=str(tmp_path)) == instance


@pytest.mark.parametrize(
    ("cgroup", "instance"),
    [
        (UNIFIED, "cdigen.service"),
        (OLD, "cdigen.service"),
        ("0::/user.slice/user-0.slice/user@0.service/app.slice/shell.scope\n", ""),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_in_a_service_the_name_is_read_from_the_cgroup(tmp_path: Path, cgroup: str, instance: str) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(cgroup)
    assert this_instance({}, root=str(tmp_path)) == instance


@pytest.mark.parametrize("file", [".dockerenv", "run/.containerenv"])
def test_in_a_container_the_name_is_the_host_name(tmp_path: Path, file: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / file).write_text("")
    assert this_instance({}, root=str(tmp_path)) == f"container {os.uname().nodename}"
