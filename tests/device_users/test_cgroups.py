"""cdigen finds the container of a process by the control group of the process."""

import os
from pathlib import Path

import pytest

from cdigen.device_users.cgroups import container_of, containers_of, running_containers

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
def test_the_innermost_container_is_returned(text: str, container: str) -> None:
    assert container_of(text) == container


def test_ended_processes_and_processes_outside_of_containers_are_omitted(tmp_path: Path) -> None:
    for pid, text in {"7": f"0::/docker/{ID}\n", "8": "0::/\n"}.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(text)
    assert containers_of([7, 8, 9], proc=str(tmp_path)) == {7: ID}


def test_running_containers_is_none_if_proc_lacks_processes(tmp_path: Path) -> None:
    assert running_containers(proc=str(tmp_path)) is None


def test_running_containers_are_known_only_in_the_first_pid_namespace() -> None:
    found = running_containers()
    is_first = os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC
    assert (found is not None) == is_first
