"""The names of sockets in the kubelet's folder."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import TYPE_CHECKING

from support.kubelet.double import leave_socket

from cdigen.kubelet.sockets import (
    KUBELET,
    MAX_PATH,
    OURS,
    fresh_socket,
    plugins_folder,
    socket_at,
    why_no_kubelet,
    why_no_socket,
)

if TYPE_CHECKING:
    import pytest

RESOURCE = "gpu.intel.com/" + "x" * 60


def test_ours_fits_wherever_the_kubelets_does_and_is_known_by_its_name() -> None:
    for size in range(2, MAX_PATH - len(KUBELET)):
        folder = "/" + "f" * (size - 1)
        assert len(f"{folder}/{KUBELET}") <= MAX_PATH
        made = [fresh_socket(folder, RESOURCE) for _ in range(2)]
        assert all(len(path) <= MAX_PATH and os.path.dirname(path) == folder for path in made)
        assert all(fnmatch.fnmatch(os.path.basename(path), OURS) for path in made)
        assert made[0] != made[1] or size > MAX_PATH - 20


def test_a_name_has_what_it_is_for() -> None:
    name = os.path.basename(fresh_socket("/f", "amd.com/gpu"))
    assert name.startswith("cdigen-amd.com_gpu-")
    assert name.endswith(".sock")


def test_a_socket_is_another_one_once_it_was_made_anew_and_not_where_its_mode_was_changed(
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


def test_why_the_kubelet_is_not_found_is_told_and_where_it_is_instead(tmp_path: Path) -> None:
    folder, usual = str(tmp_path / "k0s"), tmp_path / "usual"
    usual.mkdir()
    assert why_no_kubelet(folder, str(usual)).startswith(
        f"there is no {folder}/kubelet.sock: the kubelet has"
    )
    leave_socket(usual / KUBELET)
    said = why_no_kubelet(folder, str(usual))
    assert said.endswith(
        f"the kubelet's is in {usual}, whatever its --root-dir; make {folder} a link to that"
    )
    os.symlink(usual, folder)
    assert socket_at(f"{folder}/{KUBELET}") is not None


def test_why_no_socket_can_be_made_is_told_by_the_systems_own_word(tmp_path: Path) -> None:
    assert why_no_socket(str(tmp_path)) == ""
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "file"
    file.write_text("")
    assert why_no_socket(str(file)) == f"no socket can be made in {file}: Not a directory"


def test_the_folder_of_plugins_is_the_usual_one_where_the_kubelets_own_has_none(tmp_path: Path) -> None:
    own, usual = tmp_path / "k0s", tmp_path / "usual"
    usual.mkdir()
    assert plugins_folder(str(own), str(usual)) == f"{own}/device-plugins"
    leave_socket(usual / KUBELET)
    assert plugins_folder(str(own), str(usual)) == str(usual)
    (own / "device-plugins").mkdir(parents=True)
    assert plugins_folder(str(own), str(usual)) == f"{own}/device-plugins"
