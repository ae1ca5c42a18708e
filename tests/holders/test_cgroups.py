"""Whose a process is, by its control group."""

import os
from pathlib import Path

import pytest

from cdigen.holders.cgroups import container_of, containers_of, living

ID, OTHER = "3f2a91c0b7de" + "0" * 52, "b" * 64


@pytest.mark.parametrize(
    ("text", "container"),
    [
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n", ID),
        (f"0::/kubepods.slice/kubepods-pod1.slice/crio-{ID}.scope/container\n", ID),
        (f"0::/kubepods/besteffort/pod0a1b/{ID}\n", ID),
        (f"12:devices:/docker/{ID}\n11:memory:/docker/{ID}\n0::/\n", ID),
        (f"0::/system.slice/docker-{ID}.scope\n", ID),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", ID),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope\n", ID),
        (f"9:name=systemd:/libpod_parent/libpod-{ID}\n", ID),
        (f"0::/docker/{OTHER}/kubelet/kubepods/pod1/{ID}\n", ID),
        (f"0::/machine.slice/libpod-conmon-{ID}.scope\n", ""),
        (f"0::/system.slice/crio-conmon-{ID}.scope\n", ""),
        ("0::/system.slice/sshd.service\n", ""),
        ("0::/init.scope\n", ""),
        (f"0::/{ID}0\n", ""),
        (f"0::/{ID.upper()}\n", ""),
        ("", ""),
    ],
)
def test_the_container_is_the_innermost_one(text: str, container: str) -> None:
    assert container_of(text) == container


def test_processes_that_are_gone_or_in_none_are_left_out(tmp_path: Path) -> None:
    for pid, text in {"7": f"0::/docker/{ID}\n", "8": "0::/\n"}.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(text)
    assert containers_of([7, 8, 9], proc=str(tmp_path)) == {7: ID}


def test_of_a_proc_that_shows_not_all_nothing_is_concluded(tmp_path: Path) -> None:
    assert living(proc=str(tmp_path)) is None


def test_this_machines_processes_are_read() -> None:
    found = living()
    is_first = os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC
    assert (found is not None) == is_first
