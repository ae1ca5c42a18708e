"""update-ldcache on an ordinary image: what the cache lists then, and what stays as it was."""

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


def test_the_driver_comes_first_and_the_images_entries_stay_in_order(case: Case) -> None:
    case.cache.write_bytes(image_cache("libz.so.1", "libcuda.so.1", "liba.so"))
    before = case.entries()
    assert case.start(*LDCACHE).stderr == ""
    after = case.entries()
    assert tuple(entry for entry in after if entry not in OURS) == before
    assert dict(reversed(after))["libcuda.so.1"] == f"{VIEW}/libcuda.so.1"


def test_ldconfig_itself_lists_the_driver(case: Case) -> None:
    case.start(*LDCACHE)
    done = subprocess.run([LDCONFIG, "-p", "-C", case.cache], check=True, capture_output=True, text=True)
    assert re.search(rf"\tlibcuda\.so\.1 \(libc6,x86-64\) => {VIEW}/libcuda\.so\.1\n", done.stdout)


def test_several_folders_are_one_change(case: Case) -> None:
    case.start(*LDCACHE, "--update-ldcache", "i386", "/usr/local/nvidia/lib", "libcuda.so.1")
    flags = {(entry.path, entry.flags) for entry in parse(case.cache.read_bytes())}
    assert {(f"{VIEW}/libcuda.so.1", 0x303), ("/usr/local/nvidia/lib/libcuda.so.1", 3)} <= flags
    assert case.conf.read_text() == f"{VIEW}\n/usr/local/nvidia/lib\n"


@pytest.mark.parametrize("content", [None, b""], ids=["none", "empty"])
def test_an_image_without_a_cache_gets_one(case: Case, content: bytes | None) -> None:
    case.cache.unlink()
    if content is not None:
        case.cache.write_bytes(content)
    assert case.start(*LDCACHE).stderr == ""
    assert case.entries() == OURS


def test_a_second_start_changes_nothing(case: Case) -> None:
    case.start(*LDCACHE)
    before = snapshot(case.root)
    assert case.start(*LDCACHE).stderr == ""
    after = snapshot(case.root)
    assert {path: seen[:3] for path, seen in after.items()} == {
        path: seen[:3] for path, seen in before.items()
    }


def test_the_files_are_readable_for_all_whatever_the_umask(case: Case) -> None:
    script = ["sh", "-c", 'umask 777; exec "$@"', "sh", *case.command(*LDCACHE)]
    subprocess.run(script, input=case.state(), check=True)
    assert case.cache.stat().st_mode == case.conf.stat().st_mode == 0o100644


def test_a_later_ldconfig_is_told_of_the_folder(case: Case) -> None:
    case.start(*LDCACHE)
    assert case.conf.read_text() == f"{VIEW}\n"


def test_an_image_without_ld_so_conf_d_gets_none(case: Case) -> None:
    case.conf.parent.rmdir()
    assert case.start(*LDCACHE).stderr == ""
    assert not case.conf.parent.exists()


def test_an_image_without_etc_gets_none(case: Case) -> None:
    subprocess.run(["rm", "-r", case.root / "etc"], check=True)
    done = case.start(*LDCACHE)
    assert done.returncode == 0
    assert "/etc: the image has no such folder;" in done.stderr
    assert not (case.root / "etc").exists()


def test_a_conf_folder_that_is_a_link_costs_only_later_ldconfigs(case: Case) -> None:
    case.conf.parent.rmdir()
    case.conf.parent.symlink_to(case.host / "ld.so.conf.d")
    before = snapshot(case.host)
    done = case.start(*LDCACHE, "--require", "update-ldcache")
    assert done.returncode == 0
    assert done.stderr == (
        "cdigen-hook: ld.so.conf.d: /etc/ld.so.conf.d: it is a link, which is not followed; "
        "an ldconfig run in the container will forget the driver's libraries\n"
    )
    assert set(OURS) <= set(case.entries())
    assert snapshot(case.host) == before


def test_a_cache_cut_off_at_any_byte_is_left_alone_or_made_anew(case: Case) -> None:
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


def test_a_damaged_cache_is_left_alone_with_the_reason(case: Case) -> None:
    damaged = bytearray(image_cache())
    damaged[52:56] = b"\xff\xff\xff\x7f"
    case.cache.write_bytes(damaged)
    done = case.start(*LDCACHE)
    assert re.fullmatch(r"cdigen-hook: update-ldcache: /etc/ld\.so\.cache: .+; the loader's.+\n", done.stderr)
    assert case.cache.read_bytes() == damaged


@limited(8)
def test_a_cache_that_grows_while_it_is_read_costs_no_more_than_its_bound(
    case: Case, within_s: float
) -> None:
    """A process of another container with the same root may do that; the runtime waits for ten seconds."""
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


def test_two_kinds_of_one_container_keep_both_folders_however_often_it_starts(case: Case) -> None:
    """The hook runs once for each: what the first put into the cache and its list stays."""
    other = ("--update-ldcache", "x86_64", "/usr/local/cdigen/example.com/npu/lib64", "libnpu.so.1")
    for _ in range(3):
        assert case.start(*LDCACHE).stderr == ""
        assert case.start(*other).stderr == ""
    wanted = {*OURS, ("libnpu.so.1", "/usr/local/cdigen/example.com/npu/lib64/libnpu.so.1")}
    assert wanted <= set(case.entries())
    assert len(case.entries()) == len(set(case.entries()))
    assert case.conf.read_text() == f"{other[2]}\n{LDCACHE[2]}\n"


def test_of_the_list_only_folders_stay(case: Case) -> None:
    case.conf.write_text("include /evil/*\n# note\n/opt/other/lib\n/opt/other/lib\n")
    assert case.start(*LDCACHE).stderr == ""
    assert case.conf.read_text() == f"{LDCACHE[2]}\n/opt/other/lib\n"
