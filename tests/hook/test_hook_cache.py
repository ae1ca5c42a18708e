"""The step update-ldcache on an ordinary image: the entries of the cache, and files that do not change."""

import os
import re
import subprocess
import threading
import time

import pytest
from support.hook.container_root import LDCACHE, VIEW, Case, image_cache, pairs, snapshot
from support.waiting import limited

from cdigen.binfmt.ldcache import parse
from cdigen.hook.container import ContainerPathError, open_container
from cdigen.hook.loader import folder_of, list_in_cache

OURS = (("libnvidia-ml.so.1", f"{VIEW}/libnvidia-ml.so.1"), ("libcuda.so.1", f"{VIEW}/libcuda.so.1"))
LDCONFIG = "/sbin/ldconfig"


def test_the_drivers_entries_are_first_and_the_images_entries_keep_their_order(case: Case) -> None:
    case.cache.write_bytes(image_cache("libz.so.1", "libcuda.so.1", "liba.so"))
    before = case.entries()
    assert case.start(*LDCACHE).stderr == ""
    after = case.entries()
    assert tuple(entry for entry in after if entry not in OURS) == before
    assert dict(reversed(after))["libcuda.so.1"] == f"{VIEW}/libcuda.so.1"


def test_ldconfig_lists_the_drivers_entries(case: Case) -> None:
    case.start(*LDCACHE)
    done = subprocess.run([LDCONFIG, "-p", "-C", case.cache], check=True, capture_output=True, text=True)
    assert re.search(rf"\tlibcuda\.so\.1 \(libc6,x86-64\) => {VIEW}/libcuda\.so\.1\n", done.stdout)


def test_one_start_adds_several_folders_to_the_cache_and_to_the_conf_file(case: Case) -> None:
    case.start(*LDCACHE, "--update-ldcache", "i386", "/usr/local/nvidia/lib", "libcuda.so.1")
    flags = {(entry.path, entry.flags) for entry in parse(case.cache.read_bytes())}
    assert {(f"{VIEW}/libcuda.so.1", 0x303), ("/usr/local/nvidia/lib/libcuda.so.1", 3)} <= flags
    assert case.conf.read_text() == f"{VIEW}\n/usr/local/nvidia/lib\n"


@pytest.mark.parametrize("content", [None, b""], ids=["none", "empty"])
def test_an_image_without_a_cache_gets_a_cache(case: Case, content: bytes | None) -> None:
    case.cache.unlink()
    if content is not None:
        case.cache.write_bytes(content)
    assert case.start(*LDCACHE).stderr == ""
    assert case.entries() == OURS


def test_a_second_start_of_the_hook_changes_nothing(case: Case) -> None:
    case.start(*LDCACHE)
    before = snapshot(case.root)
    assert case.start(*LDCACHE).stderr == ""
    after = snapshot(case.root)
    assert {path: seen[:3] for path, seen in after.items()} == {
        path: seen[:3] for path, seen in before.items()
    }


def test_with_any_umask_every_user_can_read_the_cache_and_the_conf_file(case: Case) -> None:
    script = ["sh", "-c", 'umask 777; exec "$@"', "sh", *case.command(*LDCACHE)]
    subprocess.run(script, input=case.state(), check=True)
    assert case.cache.stat().st_mode == case.conf.stat().st_mode == 0o100644


def test_the_conf_file_contains_the_folder_for_a_later_run_of_ldconfig(case: Case) -> None:
    case.start(*LDCACHE)
    assert case.conf.read_text() == f"{VIEW}\n"


def test_ld_so_conf_d_is_not_created_in_an_image_without_it(case: Case) -> None:
    case.conf.parent.rmdir()
    assert case.start(*LDCACHE).stderr == ""
    assert not case.conf.parent.exists()


def test_etc_is_not_created_in_an_image_without_it(case: Case) -> None:
    subprocess.run(["rm", "-r", case.root / "etc"], check=True)
    done = case.start(*LDCACHE)
    assert done.returncode == 0
    assert "/etc: the image has no such folder;" in done.stderr
    assert not (case.root / "etc").exists()


def test_the_cache_is_changed_even_if_the_folder_ld_so_conf_d_is_a_link(case: Case) -> None:
    case.conf.parent.rmdir()
    case.conf.parent.symlink_to(case.host / "ld.so.conf.d")
    before = snapshot(case.host)
    done = case.start(*LDCACHE, "--require", "update-ldcache")
    assert done.returncode == 0
    assert done.stderr == (
        "cdigen-hook: ld.so.conf.d: /etc/ld.so.conf.d: is a link, which is not followed; "
        "a run of ldconfig in the container will drop the driver's libraries\n"
    )
    assert set(OURS) <= set(case.entries())
    assert snapshot(case.host) == before


def test_a_truncated_cache_either_stays_unchanged_or_gets_the_drivers_entries(case: Case) -> None:
    whole = image_cache("libz.so.1", "libcuda.so.1")
    container = open_container(str(case.root))
    folders = [folder_of(LDCACHE[1:])]
    for size in range(len(whole)):
        case.cache.write_bytes(whole[:size])
        try:
            list_in_cache(container, folders)
        except ContainerPathError:
            assert case.cache.read_bytes() == whole[:size]
        else:
            assert set(OURS) <= set(pairs(case.cache.read_bytes()))
        assert set(os.listdir(case.cache.parent)) == {"ld.so.cache", "ld.so.conf.d"}
    os.close(container.fd)


def test_a_damaged_cache_is_reported_and_not_changed(case: Case) -> None:
    damaged = bytearray(image_cache())
    damaged[52:56] = b"\xff\xff\xff\x7f"
    case.cache.write_bytes(damaged)
    done = case.start(*LDCACHE)
    assert re.fullmatch(r"cdigen-hook: update-ldcache: /etc/ld\.so\.cache: .+; the loader's.+\n", done.stderr)
    assert case.cache.read_bytes() == damaged


@limited(8)
def test_the_hook_ends_before_its_time_limit_if_the_cache_grows_during_the_read(
    case: Case, within_s: float
) -> None:
    """Another container with the same root can change the cache. Runtimes wait ten seconds for the hook."""
    case.cache.write_bytes(b"\0" * (8 << 20))
    grow = threading.Event()

    def append() -> None:
        with open(case.cache, "ab", buffering=0) as file:
            while not grow.is_set() and file.tell() < (64 << 20):
                file.write(b"\0" * 4096)

    thread = threading.Thread(target=append)
    thread.start()
    begin = time.monotonic()
    done = case.start(*LDCACHE)
    took_s = time.monotonic() - begin
    grow.set()
    thread.join()
    assert done.returncode == 0
    assert took_s < within_s


def test_the_folders_of_two_cdi_kinds_remain_in_the_cache_after_several_starts(case: Case) -> None:
    """The hook runs once for each CDI kind of a container, and must keep the entries of the other kinds."""
    other = ("--update-ldcache", "x86_64", "/usr/local/cdigen/example.com/npu/lib64", "libnpu.so.1")
    for _ in range(3):
        assert case.start(*LDCACHE).stderr == ""
        assert case.start(*other).stderr == ""
    wanted = {*OURS, ("libnpu.so.1", "/usr/local/cdigen/example.com/npu/lib64/libnpu.so.1")}
    assert wanted <= set(case.entries())
    assert len(case.entries()) == len(set(case.entries()))
    assert case.conf.read_text() == f"{other[2]}\n{LDCACHE[2]}\n"


def test_only_lines_with_folders_remain_in_the_conf_file_and_each_folder_only_once(case: Case) -> None:
    case.conf.write_text("include /evil/*\n# note\n/opt/other/lib\n/opt/other/lib\n")
    assert case.start(*LDCACHE).stderr == ""
    assert case.conf.read_text() == f"{LDCACHE[2]}\n/opt/other/lib\n"


@pytest.mark.parametrize("damage", ["cut", "of zeros", "a folder"])
def test_a_container_of_an_old_image_with_a_damaged_cache_starts(case: Case, damage: str) -> None:
    """https://github.com/NVIDIA/nvidia-docker/issues/1760

    NVIDIA's hook ends the start of such a container, because ldconfig fails in the image.
    """
    (case.root / "usr/lib/libz.so.1").write_bytes(b"")
    content = image_cache()[:60] if damage == "cut" else bytes(4096)
    case.cache.unlink()
    if damage == "a folder":
        case.cache.mkdir()
    else:
        case.cache.write_bytes(content)
    assert case.start(*LDCACHE).returncode == 0
