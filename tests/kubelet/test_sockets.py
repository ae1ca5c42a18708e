"""Names and identities of sockets in the kubelet's folder, and the reasons for missing sockets."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import TYPE_CHECKING

from support.kubelet.double import leave_socket

from cdigen.kubelet.registration.sockets import (
    KUBELET,
    MAX_PATH,
    OURS,
    fresh_socket,
    kubelet_absence_reason,
    plugins_folder,
    socket_at,
    socket_failure_reason,
)

if TYPE_CHECKING:
    import pytest

RESOURCE = "gpu.intel.com/" + "x" * 60


def test_a_socket_path_matches_the_name_pattern_and_fits_if_the_path_of_kubelet_sock_fits() -> None:
    for size in range(2, MAX_PATH - len(KUBELET)):
        folder = "/" + "f" * (size - 1)
        assert len(f"{folder}/{KUBELET}") <= MAX_PATH
        made = [fresh_socket(folder, RESOURCE) for _ in range(2)]
        assert all(len(path) <= MAX_PATH and os.path.dirname(path) == folder for path in made)
        assert all(fnmatch.fnmatch(os.path.basename(path), OURS) for path in made)
        assert made[0] != made[1] or size > MAX_PATH - 20


def test_a_socket_name_contains_the_resource_name() -> None:
    name = os.path.basename(fresh_socket("/f", "amd.com/gpu"))
    assert name.startswith("cdigen-amd.com_gpu-")
    assert name.endswith(".sock")


def test_the_identity_of_a_socket_changes_with_the_file_but_not_with_mode_or_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert socket_at(KUBELET) is None
    leave_socket(Path(KUBELET))
    first = socket_at(KUBELET)
    assert first is not None
    os.chmod(KUBELET, 0o600)
    os.chown(KUBELET, os.getuid(), os.getgid())
    assert socket_at(KUBELET) == first
    leave_socket(Path("new"))
    os.rename("new", KUBELET)
    assert socket_at(KUBELET) not in {first, None}
    (tmp_path / "file").write_text("")
    os.rename("file", KUBELET)
    assert socket_at(KUBELET) is None


def test_the_reason_for_a_missing_kubelet_names_the_folder_that_kubelets_use(tmp_path: Path) -> None:
    folder, usual = str(tmp_path / "k0s"), tmp_path / "usual"
    usual.mkdir()
    assert kubelet_absence_reason(folder, str(usual)).startswith(
        f"{folder}/kubelet.sock does not exist: the kubelet has"
    )
    leave_socket(usual / KUBELET)
    reason = kubelet_absence_reason(folder, str(usual))
    assert reason.endswith(
        f"the kubelet's socket is in {usual}, whatever --root-dir is; make {folder} a link to that folder"
    )
    os.symlink(usual, folder)
    assert socket_at(f"{folder}/{KUBELET}") is not None


def test_the_reason_for_a_failed_socket_has_the_systems_error_text(tmp_path: Path) -> None:
    assert socket_failure_reason(str(tmp_path)) == ""
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "file"
    file.write_text("")
    assert socket_failure_reason(str(file)) == f"{file}: cannot make a socket: Not a directory"


def test_the_usual_folder_is_used_if_the_kubelets_folder_has_no_device_plugins_folder(tmp_path: Path) -> None:
    own, usual = tmp_path / "k0s", tmp_path / "usual"
    usual.mkdir()
    assert plugins_folder(str(own), str(usual)) == f"{own}/device-plugins"
    leave_socket(usual / KUBELET)
    assert plugins_folder(str(own), str(usual)) == str(usual)
    (own / "device-plugins").mkdir(parents=True)
    assert plugins_folder(str(own), str(usual)) == f"{own}/device-plugins"
