"""Guests of LXC and Incus: they list the devices of their host, and have the nodes of some of the devices."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.doctor.broken_host import BrokenHost

GUEST = "run/systemd/container"
# Guests without systemd, such as Alpine's.
ENVIRONMENT = "proc/1/environ"


@pytest.mark.parametrize(
    ("file", "content", "is_guest"),
    [
        (GUEST, "lxc\n", True),
        (ENVIRONMENT, "container=lxc\0", True),
        (ENVIRONMENT, "TERM=linux\0", False),
    ],
)
def test_the_node_of_a_gpu_of_another_guest_is_no_failure(
    host: BrokenHost, file: str, content: str, *, is_guest: bool
) -> None:
    host.path("dev/nvidia1").unlink()
    host.put(file, content)
    host.shell(f"cdigen generate --write --root {host.root}")
    rows = [row for row in host.results("--device", "nvidia.com/gpu=0") if not row["ok"]]
    assert [row["check"] for row in rows] == ([] if is_guest else ["node-missing"])


def test_without_any_gpu_the_doctor_of_a_guest_prints_no_mknod(host: BrokenHost) -> None:
    for name in ("nvidia0", "nvidia1"):
        host.path(f"dev/{name}").unlink()
    host.put(GUEST, "incus\n")
    row = host.result("node-missing")
    assert (row["ok"], row["commands"]) == (False, [])
    assert "the host must pass the node" in row["detail"]
    assert "mknod -m" not in row["detail"]


def test_a_wrong_node_of_a_guest_is_not_removed(host: BrokenHost) -> None:
    node = host.path("dev/nvidia0")
    node.unlink()
    os.mknod(node, 0o20666, os.makedev(195, 7))
    host.put(GUEST, "lxc\n")
    row = host.result("node-wrong")
    assert (row["ok"], row["commands"]) == (False, [])
