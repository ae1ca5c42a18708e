"""The facts that show that a host is itself a container, such as a guest of LXC."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cdigen.host.containers import is_guest, may_create_nodes
from cdigen.host.root import Root

if TYPE_CHECKING:
    from pathlib import Path

# /proc/1/uid_map of a host, and of an unprivileged guest of LXC.
HOST_MAP = "         0          0 4294967295\n"
GUEST_MAP = "         0     100000      65536\n"


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("run/systemd/container", "lxc\n", True),
        ("proc/1/environ", "container=lxc\0", True),
        ("proc/1/environ", "TERM=linux\0container=lxc\0PATH=/sbin\0", True),
        ("proc/1/environ", "container=systemd-nspawn\0", True),
        ("proc/1/environ", "HOME=/\0TERM=linux\0", False),
        ("proc/1/environ", "PREVIOUS=container=lxc\0", False),
        # Only root can read the environment of process 1.
        ("proc/1/uid_map", GUEST_MAP, True),
        ("proc/1/uid_map", GUEST_MAP + "     65536     200000          1\n", True),
        ("proc/1/uid_map", HOST_MAP, False),
        ("proc/1/uid_map", "", False),
        ("etc/hostname", "host\n", False),
    ],
)
def test_a_guest_is_known_by_its_init_system_or_by_process_1(
    tmp_path: Path, path: str, content: str, *, expected: bool
) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(content)
    host = Root(str(tmp_path))
    assert is_guest(host) is expected
    assert may_create_nodes(host) is not expected


def test_an_unreadable_environment_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    os.mkfifo(tmp_path / "proc/1/environ")
    assert not is_guest(Root(str(tmp_path)))
