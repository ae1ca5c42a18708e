"""The stable paths to views: exchanged in one step, by nobody but us, and readable at any moment."""

import os
import threading
from pathlib import Path

import pytest
from support.store.views import LIBRARY, publish, put, state

from cdigen.host.root import Root
from cdigen.model.errors import StoreError
from cdigen.store.views.volumes import drop, lead, led_to, volumes

NAME = "nvidia_driver"


def folder(base: Path) -> Path:
    return Path(state(base)) / "volumes"


def test_a_volume_leads_to_its_view_by_a_path_of_the_host(base: Path) -> None:
    view = publish(base)
    assert lead(state(base), NAME, view.name)
    assert os.readlink(folder(base) / NAME) == f"../views/{view.name}"
    assert (folder(base) / NAME / "bin/nvidia-smi").is_file()
    assert volumes(state(base), Root(str(base))) == {NAME: f"/var/lib/cdigen/volumes/{NAME}"}
    assert volumes(state(base), Root("/")) == {NAME: f"{state(base)}/volumes/{NAME}"}
    assert led_to(state(base)) == {view.name: f"{state(base)}/volumes/{NAME}"}


def test_a_volume_that_leads_there_already_is_not_touched(base: Path) -> None:
    lead(state(base), NAME, publish(base).name)
    before = os.lstat(folder(base) / NAME)
    assert not lead(state(base), NAME, publish(base).name)
    after = os.lstat(folder(base) / NAME)
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


def test_while_it_is_exchanged_it_always_leads_to_one_of_both(base: Path) -> None:
    first = publish(base)
    put(base, LIBRARY, b"another driver")
    second = publish(base)
    names = (first.name, second.name)
    lead(state(base), NAME, names[0])
    done = threading.Event()

    def exchange() -> None:
        for number in range(200):
            lead(state(base), NAME, names[number % 2])
        done.set()

    other = threading.Thread(target=exchange)
    other.start()
    seen = set()
    while not done.is_set():
        seen.add(os.path.basename(os.readlink(folder(base) / NAME)))
        assert (folder(base) / NAME / "lib64/libcuda.so.1").exists()
    other.join()
    assert seen <= set(names)
    assert os.listdir(folder(base)) == [NAME]


def test_the_folder_that_docker_made_of_a_missing_volume_gives_way(base: Path) -> None:
    (folder(base) / NAME).mkdir(parents=True)
    assert volumes(state(base), Root(str(base))) == {}
    assert lead(state(base), NAME, publish(base).name)
    assert (folder(base) / NAME / "lib64").is_dir()


def test_what_cdigen_did_not_make_stays(base: Path) -> None:
    put(folder(base), f"{NAME}/file", b"somebody's")
    with pytest.raises(StoreError, match=f"volumes/{NAME} is not a link"):
        lead(state(base), NAME, publish(base).name)
    assert not drop(state(base), NAME)
    assert (folder(base) / NAME / "file").exists()


def test_where_others_may_write_no_volume_is_made(base: Path) -> None:
    folder(base).mkdir(parents=True)
    folder(base).chmod(0o777)
    with pytest.raises(StoreError, match="writable by everyone"):
        lead(state(base), NAME, publish(base).name)


def test_the_folder_of_volumes_is_writable_by_its_owner_alone(base: Path) -> None:
    lead(state(base), NAME, publish(base).name)
    assert folder(base).stat().st_mode & 0o777 == 0o755


def test_a_volume_without_its_view_is_none(base: Path) -> None:
    lead(state(base), NAME, "nvidia-0123456789abcdef")
    assert volumes(state(base), Root(str(base))) == {}


@pytest.mark.parametrize("target", ["/etc", "../views/../../etc", "../views/nvidia", "../../views/x", ""])
def test_links_that_lead_elsewhere_are_no_volumes(base: Path, target: str) -> None:
    folder(base).mkdir(parents=True)
    (folder(base) / "other").symlink_to(target or "other")
    assert volumes(state(base), Root(str(base))) == {}
    assert led_to(state(base)) == {}


def test_a_volume_is_dropped_once(base: Path) -> None:
    assert not drop(state(base), NAME)
    assert not Path(state(base)).exists()
    lead(state(base), NAME, publish(base).name)
    assert drop(state(base), NAME)
    assert not drop(state(base), NAME)


def test_what_a_killed_writer_left_is_swept_up(base: Path) -> None:
    folder(base).mkdir(parents=True)
    (folder(base) / f".cdigen-{NAME}.1.0123abcd.tmp").symlink_to("../views/nvidia-0123456789abcdef")
    assert led_to(state(base)) == {}
    lead(state(base), NAME, publish(base).name)
    assert os.listdir(folder(base)) == [NAME]
