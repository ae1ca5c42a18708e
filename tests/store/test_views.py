"""Views on the disk: what is in them, what is not, and how they are named."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.store.traces import traces
from support.store.views import (
    FILES,
    LAYER,
    LIBRARY,
    PLAN,
    SMI,
    find,
    is_whole,
    left,
    publish,
    put,
    state,
    view,
    while_locked,
)

from cdigen.host.root import Root
from cdigen.model.errors import StoreError
from cdigen.model.view import ViewFile, ViewPlan
from cdigen.store.views import publishing
from cdigen.store.views.sources import view_layout
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CAPABILITIES = (
    b"\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"  # cap_net_bind
)


def name(base: Path, plan: ViewPlan = PLAN) -> str:
    return view_layout(plan, Root(str(base))).name


def refusal(base: Path, plan: ViewPlan = PLAN) -> StoreError:
    with pytest.raises(StoreError) as caught:
        publish(base, plan)
    assert "\n" not in caught.value.message
    return caught.value


def test_a_view_holds_every_file_as_a_hard_link_and_every_link(base: Path) -> None:
    published = publish(base)
    assert published == publishing.PublishedView(
        name=name(base), path=f"/var/lib/cdigen/views/{name(base)}", how="linked"
    )
    assert is_whole(base, published)
    for path, source in FILES.items():
        assert (view(base, published) / path).samefile(base / source[1:])
    assert left(base) == [published.name]


def test_a_view_that_is_there_is_used_and_not_touched_but_for_its_time(base: Path) -> None:
    published = publish(base)
    folder = view(base, published)
    os.utime(folder, (0, 0))
    before = {path: traces(path) for path in folder.rglob("*")}
    assert publish(base) == replace(published, how="found")
    assert {path: traces(path) for path in folder.rglob("*")} == before
    assert folder.stat().st_mtime > 0


def test_finding_finds_what_publishing_made_and_changes_nothing(base: Path) -> None:
    assert find(base) is None
    assert not Path(state(base)).exists()
    published = publish(base)
    before = traces(view(base, published))
    assert find(base) == replace(published, how="found")
    assert traces(view(base, published)) == before


def test_directories_are_0755_whatever_the_umask(base: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = view(base, publish(base))
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*")) if path.is_dir()}
    assert modes == {0o755}


def test_the_name_does_not_depend_on_the_order_of_the_plan(base: Path) -> None:
    turned = replace(PLAN, files=PLAN.files[::-1], links=PLAN.links[::-1])
    assert name(base, turned) == name(base)


def test_the_name_does_not_change_with_inode_or_ctime(base: Path, tmp_path: Path) -> None:
    before = name(base)
    shutil.copytree(base, tmp_path / "other", symlinks=True)
    assert name(tmp_path / "other") == before
    publish(base)
    assert name(base) == before


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, version="550.163.02"),
        replace(PLAN, vendor="other"),
        replace(PLAN, files=PLAN.files[:-1]),
        replace(PLAN, links=PLAN.links[:-1]),
        replace(PLAN, links=(replace(PLAN.links[0], target="libcuda.so.550.163.01"), *PLAN.links[1:])),
        replace(PLAN, files=(replace(PLAN.files[0], path="bin/nvidia-smi2"), *PLAN.files[1:])),
    ],
)
def test_another_plan_has_another_name(base: Path, other: ViewPlan) -> None:
    assert name(base, other) != name(base)


def test_another_size_time_or_mode_has_another_name(base: Path) -> None:
    names = {name(base)}
    put(base, LIBRARY, b"A" * 30_001)
    names.add(name(base))
    os.utime(base / LIBRARY[1:], (1, 1_800_000_000))
    names.add(name(base))
    (base / LIBRARY[1:]).chmod(0o444)
    names.add(name(base))
    assert len(names) == 4


def test_where_every_file_has_the_time_one_the_path_in_the_store_counts(base: Path) -> None:
    names = set()
    for digest in ("aaaa", "bbbb"):
        file = put(base, f"/nix/store/{digest}-nvidia/lib/libcuda.so", b"same size")
        os.utime(file, (1, 1))
        plan = ViewPlan(
            vendor="nvidia",
            version="1",
            files=(ViewFile(path="lib64/l", source=f"/{file.relative_to(base)}"),),
        )
        names.add(name(base, plan))
    assert len(names) == 2


def test_another_driver_gets_another_view_and_the_first_stays(base: Path) -> None:
    first = publish(base)
    put(base, LIBRARY, b"new driver")
    second = publish(base)
    assert left(base) == sorted({first.name, second.name})
    assert (view(base, first) / "lib64/libcuda.so.1").read_bytes() == b"A" * 30_000
    assert (view(base, second) / "lib64/libcuda.so.1").read_bytes() == b"new driver"


def test_a_source_that_is_a_link_gives_the_file_that_it_leads_to(base: Path) -> None:
    os.symlink("libcuda.so.550.163.01", base / "usr/lib/x86_64-linux-gnu/libcuda.so.1")
    plan = replace(
        PLAN, files=(ViewFile(path="lib64/x", source="/usr/lib/x86_64-linux-gnu/libcuda.so.1"),), links=()
    )
    published = publish(base, plan)
    assert (view(base, published) / "lib64/x").samefile(base / LIBRARY[1:])


def without_a_file(folder: Path) -> None:
    (folder / "lib64/libcuda.so.550.163.01").unlink()


def without_a_link(folder: Path) -> None:
    (folder / "lib64/libcuda.so.1").unlink()


def with_one_more(folder: Path) -> None:
    (folder / "lib64/more").write_bytes(b"")


def with_another_link(folder: Path) -> None:
    (folder / "lib64/libcuda.so").unlink()
    (folder / "lib64/libcuda.so").symlink_to("/etc")


def with_an_empty_file(folder: Path) -> None:
    (folder / "bin/nvidia-smi").unlink()
    (folder / "bin/nvidia-smi").write_bytes(b"")


def with_a_fifo(folder: Path) -> None:
    (folder / "bin/nvidia-smi").unlink()
    os.mkfifo(folder / "bin/nvidia-smi")


def without_a_folder(folder: Path) -> None:
    shutil.rmtree(folder / "lib64")


def with_a_linked_folder(folder: Path) -> None:
    os.rename(folder / "lib64", folder.parent / "elsewhere")
    (folder / "lib64").symlink_to("../elsewhere")


def a_link_itself(folder: Path) -> None:
    os.rename(folder, folder.parent / "elsewhere")
    folder.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "harm",
    [
        without_a_file, without_a_link, with_one_more, with_another_link, with_an_empty_file, with_a_fifo,
        without_a_folder, with_a_linked_folder, a_link_itself,
    ],
)  # fmt: skip
def test_a_damaged_view_is_never_mended_but_another_stands_in(
    base: Path, harm: Callable[[Path], None]
) -> None:
    first = publish(base)
    harm(view(base, first))
    before = sorted(view(base, first).rglob("*"))
    assert find(base) is None
    second = publish(base)
    assert second.name == f"{first.name}-2"
    assert is_whole(base, second)
    assert sorted(view(base, first).rglob("*")) == before
    assert find(base) == publish(base) == replace(second, how="found")


def test_a_third_view_stands_in_for_two_damaged_ones(base: Path) -> None:
    for number in ("", "-2", "-3"):
        published = publish(base)
        assert published.name == name(base) + number
        (view(base, published) / "bin/nvidia-smi").unlink()


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6755, 0o757, 0o775])
def test_a_file_that_gives_privileges_or_that_others_may_change_is_left_out(base: Path, mode: int) -> None:
    (base / SMI[1:]).chmod(mode)
    published = publish(base)
    assert published.left_out == ("bin/nvidia-smi",)
    assert [(finding.rule, finding.path) for finding in published.findings] == [("view-left-out", SMI)]
    assert not (view(base, published) / "bin").exists()
    found = find(base)
    assert found is not None
    assert found.left_out == published.left_out


def test_links_to_a_file_that_is_left_out_are_left_out_too(base: Path) -> None:
    (base / LIBRARY[1:]).chmod(0o4644)
    published = publish(base)
    assert set(published.left_out) == {path for path in PLAN.paths() if path.startswith("lib64")}
    assert len(published.findings) == 1


def test_a_fifo_in_the_place_of_a_file_is_left_out_and_blocks_nobody(base: Path) -> None:
    (base / LAYER[1:]).unlink()
    os.mkfifo(base / LAYER[1:])
    published = publish(base)
    assert published.left_out == ("fixed/usr/share/vulkan/icd.d/nvidia_icd.json",)
    assert "is not a regular file" in published.findings[0].message


@pytest.mark.needs_root
def test_a_file_of_another_user_is_left_out(base: Path) -> None:
    os.chown(base / SMI[1:], 1000, 1000)
    published = publish(base)
    assert published.left_out == ("bin/nvidia-smi",)
    assert "belongs to uid 1000, not to root" in published.findings[0].message


@pytest.mark.needs_root
def test_a_file_with_capabilities_is_left_out(base: Path) -> None:
    os.setxattr(base / SMI[1:], "security.capability", CAPABILITIES)
    assert publish(base).left_out == ("bin/nvidia-smi",)


def test_a_view_whose_file_became_setuid_is_not_used_any_more(base: Path) -> None:
    first = publish(base)
    (base / SMI[1:]).chmod(0o4755)
    assert find(base) is None
    assert publish(base).name != first.name


def test_a_plan_of_which_nothing_may_enter_is_refused_with_the_reason(base: Path) -> None:
    (base / SMI[1:]).chmod(0o4755)
    error = refusal(base, replace(PLAN, files=PLAN.files[:1], links=()))
    assert f"{SMI} is setuid" in error.message
    assert left(base) == []


def test_a_source_that_is_gone_is_named(base: Path) -> None:
    (base / LIBRARY[1:]).unlink()
    assert f"cannot look at {LIBRARY} for the view: No such file" in refusal(base).message
    assert find(base) is None


def test_a_plan_with_a_fault_is_refused(base: Path) -> None:
    error = refusal(base, replace(PLAN, files=(ViewFile(path="../x", source=SMI),), links=()))
    assert "not a plain relative path" in error.message


def test_a_link_of_a_foreign_tree_does_not_lead_out_of_it(base: Path, tmp_path: Path) -> None:
    secret = put(tmp_path, "/secret", b"secret")
    (base / LAYER[1:]).unlink()
    os.symlink(str(secret), base / LAYER[1:])
    assert "No such file" in refusal(base).message
    assert left(base) == []


def test_a_view_directory_that_is_a_symlink_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Path(state(base)).mkdir(parents=True)
    (Path(state(base)) / "views").symlink_to(tmp_path / "elsewhere")
    assert "is a symlink" in refusal(base).message
    assert find(base) is None
    assert os.listdir(tmp_path / "elsewhere") == []


def test_names_that_are_not_ours_are_left_alone(base: Path) -> None:
    folder = Path(state(base)) / "views"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    (folder / ".cdigen-x.tmp").mkdir()
    published = publish(base)
    assert left(base) == sorted([".cdigen-x.tmp", "notes.txt", published.name])


@pytest.mark.needs_root
def test_directories_get_the_label_of_the_folder_of_the_first_library(base: Path) -> None:
    try:
        os.setxattr((base / LIBRARY[1:]).parent, "security.selinux", b"system_u:object_r:lib_t:s0\0")
        os.setxattr((base / LIBRARY[1:]), "security.selinux", b"system_u:object_r:textrel_shlib_t:s0\0")
    except OSError:
        cannot_run("this file system keeps no SELinux labels")
    folder = view(base, publish(base))
    folders = [path for path in (folder, *folder.rglob("*")) if path.is_dir()]
    assert {os.getxattr(path, "security.selinux") for path in folders} == {b"system_u:object_r:lib_t:s0\0"}
    label = os.getxattr(folder / "lib64/libcuda.so.1", "security.selinux")
    assert label == b"system_u:object_r:textrel_shlib_t:s0\0"


def test_the_lock_of_another_is_waited_for(base: Path) -> None:
    assert is_whole(base, while_locked(base, lambda: publish(base)))
