"""Views on the disk: their content, the files that are left out, and their names."""

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


def test_a_view_has_a_hard_link_for_every_file_and_every_link_of_the_plan(base: Path) -> None:
    published = publish(base)
    assert published == publishing.PublishedView(
        name=name(base), path=f"/var/lib/cdigen/views/{name(base)}", how="linked"
    )
    assert is_whole(base, published)
    for path, source in FILES.items():
        assert (view(base, published) / path).samefile(base / source[1:])
    assert left(base) == [published.name]


def test_an_existing_view_is_used_and_only_its_time_changes(base: Path) -> None:
    published = publish(base)
    folder = view(base, published)
    os.utime(folder, (0, 0))
    before = {path: traces(path) for path in folder.rglob("*")}
    assert publish(base) == replace(published, how="found")
    assert {path: traces(path) for path in folder.rglob("*")} == before
    assert folder.stat().st_mtime > 0


def test_find_view_returns_a_published_view_and_changes_nothing(base: Path) -> None:
    assert find(base) is None
    assert not Path(state(base)).exists()
    published = publish(base)
    before = traces(view(base, published))
    assert find(base) == replace(published, how="found")
    assert traces(view(base, published)) == before


def test_the_folders_of_a_view_have_mode_0755_for_any_umask(base: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = view(base, publish(base))
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*")) if path.is_dir()}
    assert modes == {0o755}


def test_the_name_of_a_view_does_not_depend_on_the_order_of_the_plan(base: Path) -> None:
    reversed_plan = replace(PLAN, files=PLAN.files[::-1], links=PLAN.links[::-1])
    assert name(base, reversed_plan) == name(base)


def test_the_name_of_a_view_does_not_depend_on_inodes_and_ctimes(base: Path, tmp_path: Path) -> None:
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
def test_the_view_of_a_different_plan_has_a_different_name(base: Path, other: ViewPlan) -> None:
    assert name(base, other) != name(base)


def test_the_name_of_a_view_depends_on_size_time_and_mode_of_each_source(base: Path) -> None:
    names = {name(base)}
    put(base, LIBRARY, b"A" * 30_001)
    names.add(name(base))
    os.utime(base / LIBRARY[1:], (1, 1_800_000_000))
    names.add(name(base))
    (base / LIBRARY[1:]).chmod(0o444)
    names.add(name(base))
    assert len(names) == 4


def test_the_paths_of_sources_determine_the_name_if_all_files_have_mtime_1(base: Path) -> None:
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


def test_another_driver_gets_another_view_and_the_first_view_stays(base: Path) -> None:
    first = publish(base)
    put(base, LIBRARY, b"new driver")
    second = publish(base)
    assert left(base) == sorted({first.name, second.name})
    assert (view(base, first) / "lib64/libcuda.so.1").read_bytes() == b"A" * 30_000
    assert (view(base, second) / "lib64/libcuda.so.1").read_bytes() == b"new driver"


def test_a_source_that_is_a_link_is_resolved_to_its_target(base: Path) -> None:
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
    "damage",
    [
        without_a_file, without_a_link, with_one_more, with_another_link, with_an_empty_file, with_a_fifo,
        without_a_folder, with_a_linked_folder, a_link_itself,
    ],
)  # fmt: skip
def test_a_damaged_view_is_not_repaired_and_another_view_replaces_it(
    base: Path, damage: Callable[[Path], None]
) -> None:
    first = publish(base)
    damage(view(base, first))
    before = sorted(view(base, first).rglob("*"))
    assert find(base) is None
    second = publish(base)
    assert second.name == f"{first.name}-2"
    assert is_whole(base, second)
    assert sorted(view(base, first).rglob("*")) == before
    assert find(base) == publish(base) == replace(second, how="found")


def test_a_third_view_replaces_two_damaged_views(base: Path) -> None:
    for number in ("", "-2", "-3"):
        published = publish(base)
        assert published.name == name(base) + number
        (view(base, published) / "bin/nvidia-smi").unlink()


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6755, 0o757, 0o775])
def test_a_file_that_gives_privileges_or_is_writable_by_other_users_is_left_out(
    base: Path, mode: int
) -> None:
    (base / SMI[1:]).chmod(mode)
    published = publish(base)
    assert published.left_out == ("bin/nvidia-smi",)
    assert [(finding.rule, finding.path) for finding in published.findings] == [("view-left-out", SMI)]
    assert not (view(base, published) / "bin").exists()
    found = find(base)
    assert found is not None
    assert found.left_out == published.left_out


def test_links_to_a_file_that_is_left_out_are_also_left_out(base: Path) -> None:
    (base / LIBRARY[1:]).chmod(0o4644)
    published = publish(base)
    assert set(published.left_out) == {path for path in PLAN.paths() if path.startswith("lib64")}
    assert len(published.findings) == 1


def test_a_fifo_at_the_path_of_a_file_is_left_out_without_blocking(base: Path) -> None:
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


def test_a_view_with_a_file_that_became_setuid_is_no_longer_used(base: Path) -> None:
    first = publish(base)
    (base / SMI[1:]).chmod(0o4755)
    assert find(base) is None
    assert publish(base).name != first.name


def test_a_plan_whose_files_are_all_left_out_is_refused_with_the_reason(base: Path) -> None:
    (base / SMI[1:]).chmod(0o4755)
    error = refusal(base, replace(PLAN, files=PLAN.files[:1], links=()))
    assert f"{SMI} is setuid" in error.message
    assert left(base) == []


def test_the_error_names_a_missing_source(base: Path) -> None:
    (base / LIBRARY[1:]).unlink()
    assert f"cannot examine {LIBRARY} for the view: No such file" in refusal(base).message
    assert find(base) is None


def test_an_invalid_plan_is_refused(base: Path) -> None:
    error = refusal(base, replace(PLAN, files=(ViewFile(path="../x", source=SMI),), links=()))
    assert "not a plain relative path" in error.message


def test_a_link_in_a_root_does_not_lead_out_of_the_root(base: Path, tmp_path: Path) -> None:
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


def test_files_without_the_name_of_a_view_are_not_changed(base: Path) -> None:
    folder = Path(state(base)) / "views"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    (folder / ".cdigen-x.tmp").mkdir()
    published = publish(base)
    assert left(base) == sorted([".cdigen-x.tmp", "notes.txt", published.name])


@pytest.mark.needs_root
def test_the_folders_of_a_view_have_the_label_of_the_first_librarys_folder(base: Path) -> None:
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


def test_publish_view_waits_for_the_lock(base: Path) -> None:
    assert is_whole(base, while_locked(base, lambda: publish(base)))
