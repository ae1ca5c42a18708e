"""cdigen reads the confinement of a process (SELinux, AppArmor) from the label of the kernel."""

from __future__ import annotations

from errno import EACCES, ENOENT
from typing import TYPE_CHECKING

import pytest

from cdigen.host.confinement import confinement, refusal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("label", "start"),
    [
        (b"system_u:system_r:container_t:s0:c1,c2\0", "SELinux runs this process as container_t: 'ausearch"),
        (
            b"cri-containerd.apparmor.d (enforce)\n",
            "AppArmor confines this process with cri-containerd.apparmor.d:",
        ),
        (b"unconfined\n", ""),
        (b"docker-default (complain)\n", ""),
        (b"", ""),
        (b"\xff\x01:::::", ""),
    ],
)
def test_a_label_names_the_confinement_of_the_process(tmp_path: Path, label: bytes, start: str) -> None:
    file = tmp_path / "current"
    file.write_bytes(label)
    found = confinement(str(file))
    assert found.startswith(start)
    assert bool(found) == bool(start)


def test_a_kernel_without_labels_has_no_confinement(tmp_path: Path) -> None:
    assert confinement(str(tmp_path / "none")) == ""


def test_only_the_text_of_a_permission_error_contains_the_confinement(tmp_path: Path) -> None:
    file = tmp_path / "current"
    file.write_text("system_u:system_r:container_t:s0")
    assert refusal(OSError(ENOENT, "No such file"), str(file)) == "No such file"
    found = refusal(OSError(EACCES, "Permission denied"), str(file))
    assert found.startswith("Permission denied (SELinux runs this process as container_t: ")
