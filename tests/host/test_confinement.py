"""What confines a process besides its rights, by the label that the kernel gives it."""

from __future__ import annotations

from errno import EACCES, ENOENT
from typing import TYPE_CHECKING

import pytest

from cdigen.host.confinement import confinement, refusal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("label", "told"),
    [
        (b"system_u:system_r:container_t:s0:c1,c2\0", "SELinux runs this process as container_t: 'ausearch"),
        (
            b"cri-containerd.apparmor.d (enforce)\n",
            "AppArmor confines this process by cri-containerd.apparmor.d:",
        ),
        (b"unconfined\n", ""),
        (b"docker-default (complain)\n", ""),
        (b"", ""),
        (b"\xff\x01:::::", ""),
    ],
)
def test_a_label_says_by_what_a_process_is_confined(tmp_path: Path, label: bytes, told: str) -> None:
    file = tmp_path / "current"
    file.write_bytes(label)
    found = confinement(str(file))
    assert found.startswith(told)
    assert bool(found) == bool(told)


def test_a_kernel_without_labels_confines_nothing(tmp_path: Path) -> None:
    assert confinement(str(tmp_path / "none")) == ""


def test_a_refusal_names_what_confines_the_process_and_another_error_does_not(tmp_path: Path) -> None:
    file = tmp_path / "current"
    file.write_text("system_u:system_r:container_t:s0")
    assert refusal(OSError(ENOENT, "No such file"), str(file)) == "No such file"
    found = refusal(OSError(EACCES, "Permission denied"), str(file))
    assert found.startswith("Permission denied (SELinux runs this process as container_t: ")
