"""Volumes are stable paths to views. cdigen replaces a volume in one step, so it always leads to a view."""

import os
import threading
from pathlib import Path

import pytest
from support.store.views import LIBRARY, publish, put, state

from cdigen.host.root import Root
from cdigen.model.errors import StoreError
from cdigen.store.views.volumes import linked_views, point_link, remove_link, volumes

NAME = "nvidia_driver"


def folder(base: Path) -> Path:
    return Path(state(base)) / "volumes"


def test_a_volume_is_a_link_to_its_view_with_a_path_on_the_host(base: Path) -> None:
    view = publish(base)
    point_link(state(base), NAME, view.name)
    assert os.readlink(folder(base) / NAME) == f"../views/{view.name}"
    assert (folder(base) / NAME / "bin/nvidia-smi").is_file()
    assert volumes(state(base), Root(str(base))) == {NAME: f"/var/lib/cdigen/volumes/{NAME}"}
    assert volumes(state(base), Root("/")) == {NAME: f"{state(base)}/volumes/{NAME}"}
    assert linked_views(state(base)) == {view.name: f"{state(base)}/volumes/{NAME}"}


def test_a_volume_that_leads_to_the_view_already_is_not_changed(base: Path) -> None:
    point_link(state(base), NAME, publish(base).name)
    before = os.lstat(folder(base) / NAME)
    point_link(state(base), NAME, publish(base).name)
    after = os.lstat(folder(base) / NAME)
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


def test_a_volume_always_leads_to_the_old_or_the_new_view_during_its_replacement(base: Path) -> None:
    first = publish(base)
    put(base, LIBRARY, b"another driver")
    second = publish(base)
    names = (first.name, second.name)
    point_link(state(base), NAME, names[0])
    done = threading.Event()

    def exchange() -> None:
        for number in range(200):
            point_link(state(base), NAME, names[number % 2])
        done.set()

    other = threading.Thread(target=exchange)
    other.start()
    observed = set()
    while not done.is_set():
        observed.add(os.path.basename(os.readlink(folder(base) / NAME)))
        assert (folder(base) / NAME / "lib64/libcuda.so.1").exists()
    other.join()
    assert observed <= set(names)
    assert os.listdir(folder(base)) == [NAME]


def test_an_empty_folder_of_docker_at_the_path_of_a_volume_is_replaced(base: Path) -> None:
    (folder(base) / NAME).mkdir(parents=True)
    assert volumes(state(base), Root(str(base))) == {}
    point_link(state(base), NAME, publish(base).name)
    assert (folder(base) / NAME / "lib64").is_dir()


def test_a_foreign_folder_at_the_path_of_a_volume_stays(base: Path) -> None:
    put(folder(base), f"{NAME}/file", b"foreign")
    with pytest.raises(StoreError, match=f"volumes/{NAME} is not a link"):
        point_link(state(base), NAME, publish(base).name)
    remove_link(state(base), NAME)
    assert (folder(base) / NAME / "file").exists()


def test_no_volume_is_made_in_a_directory_that_other_users_may_write_to(base: Path) -> None:
    folder(base).mkdir(parents=True)
    folder(base).chmod(0o777)
    with pytest.raises(StoreError, match="writable by everyone"):
        point_link(state(base), NAME, publish(base).name)


def test_the_volume_directory_is_writable_only_by_its_owner(base: Path) -> None:
    point_link(state(base), NAME, publish(base).name)
    assert folder(base).stat().st_mode & 0o777 == 0o755


def test_a_volume_without_its_view_is_not_returned(base: Path) -> None:
    point_link(state(base), NAME, "nvidia-0123456789abcdef")
    assert volumes(state(base), Root(str(base))) == {}


@pytest.mark.parametrize("target", ["/etc", "../views/../../etc", "../views/nvidia", "../../views/x", ""])
def test_links_to_other_paths_are_not_volumes(base: Path, target: str) -> None:
    folder(base).mkdir(parents=True)
    (folder(base) / "other").symlink_to(target or "other")
    assert volumes(state(base), Root(str(base))) == {}
    assert linked_views(state(base)) == {}


def test_remove_link_removes_the_volume_if_it_exists(base: Path) -> None:
    remove_link(state(base), NAME)
    assert not Path(state(base)).exists()
    point_link(state(base), NAME, publish(base).name)
    for _ in range(2):
        remove_link(state(base), NAME)
        assert os.listdir(folder(base)) == []


def test_temporary_links_of_killed_writers_are_removed(base: Path) -> None:
    folder(base).mkdir(parents=True)
    (folder(base) / f".cdigen-{NAME}.1.0123abcd.tmp").symlink_to("../views/nvidia-0123456789abcdef")
    assert linked_views(state(base)) == {}
    point_link(state(base), NAME, publish(base).name)
    assert os.listdir(folder(base)) == [NAME]
