"""Hostile image roots: the hook does not read or change files of the host, whatever files the image has.

The tests also detect reads, because the host's files have an old access time, which a read changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.hook.container_root import LDCACHE, LINKS, LONG_AGO_NS, PROFILE, VIEW, Case, snapshot

from cdigen.hook import application_profile, container, loader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Attack = Callable[[Case, Path], None]

STEPS = (
    *LDCACHE,
    *LINKS,
    *PROFILE,
    "--enable-cuda-compat",
    "535.1.1",
    "--disable-device-node-modification",
)
TRIES = 1000  # for each of the four functions in attempts()


def absolute(case: Case, place: Path) -> None:
    place.symlink_to(case.host)


def relative(case: Case, place: Path) -> None:
    place.symlink_to(os.path.relpath(case.host, place.parent))


def through_proc(case: Case, place: Path) -> None:
    place.symlink_to(f"/proc/self/root{case.host}")


def to_a_file(case: Case, place: Path) -> None:
    place.symlink_to(case.host / "ld.so.cache")


def chain(case: Case, place: Path) -> None:
    (case.root / "hop").symlink_to(case.host)
    place.symlink_to("/hop")


def cycle(_: Case, place: Path) -> None:
    place.symlink_to(place.name)


def fifo(_: Case, place: Path) -> None:
    os.mkfifo(place)


def plain_file(_: Case, place: Path) -> None:
    place.write_bytes(b"x")


def hard_link(case: Case, place: Path) -> None:
    os.link(case.host / "ld.so.cache", place)


def empty_folder(_: Case, place: Path) -> None:
    place.mkdir()


ATTACKS: tuple[Attack, ...] = (
    absolute, relative, through_proc, to_a_file, chain, cycle, fifo, plain_file, hard_link, empty_folder,
)  # fmt: skip
PLACES = (
    "etc", "etc/ld.so.cache", "etc/ld.so.conf.d", "etc/ld.so.conf.d/00-cdigen.conf", "etc/nvidia",
    "etc/nvidia/nvidia-application-profiles-rc.d",
    "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf", "usr", "usr/lib", "usr/lib/libcuda.so",
    "usr/local", "usr/local/cuda", "usr/local/cuda/compat", "usr/local/cuda/compat/libcuda.so.570.1.1",
    "proc", "proc/driver", "proc/driver/nvidia", "proc/driver/nvidia/params", "dev", "dev/nvidia0",
)  # fmt: skip


def clear(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def test_the_snapshot_detects_a_read_of_a_file(case: Case) -> None:
    before = snapshot(case.host)
    assert snapshot(case.host) == before
    (case.host / "passwd").read_bytes()
    assert snapshot(case.host) != before


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("place", PLACES)
def test_the_hosts_files_are_not_read_or_changed(case: Case, place: str, attack: Attack) -> None:
    os.utime(case.host / "ld.so.cache", ns=(LONG_AGO_NS, LONG_AGO_NS + 1))
    clear(case.root / place)
    attack(case, case.root / place)
    before = snapshot(case.host)
    done = case.start(*STEPS)
    assert done.returncode == 0
    after = snapshot(case.host)
    # The hard link belongs to the image. A read of the link changes the access time of the host's file.
    if attack is hard_link:
        before, after = ({path: (*seen[:2], seen[4]) for path, seen in s.items()} for s in (before, after))
    assert after == before


@pytest.mark.parametrize("attack", [absolute, relative, through_proc, to_a_file, chain, cycle])
def test_a_link_instead_of_the_cache_is_reported_as_a_link(case: Case, attack: Attack) -> None:
    case.cache.unlink()
    attack(case, case.cache)
    assert "/etc/ld.so.cache: is a link, not a regular file;" in case.start(*LDCACHE).stderr


def test_a_hard_link_to_a_file_of_the_host_is_replaced_and_the_file_is_not_changed(case: Case) -> None:
    content = case.cache.read_bytes()
    (case.host / "linked").write_bytes(content)
    case.cache.unlink()
    os.link(case.host / "linked", case.cache)
    assert case.start(*LDCACHE).stderr == ""
    assert (case.host / "linked").read_bytes() == content
    assert ("libcuda.so.1", f"{VIEW}/libcuda.so.1") in case.entries()


def test_a_fifo_is_not_opened(case: Case) -> None:
    case.cache.unlink()
    os.mkfifo(case.cache)
    with pytest.raises(OSError, match="No such device"):  # ENXIO: no process reads the FIFO
        os.open(case.cache, os.O_WRONLY | os.O_NONBLOCK)
    done = case.start(*LDCACHE)
    assert "is a FIFO, socket or device, not a regular file" in done.stderr


@pytest.mark.usefixtures("real_nodes")
def test_a_device_instead_of_the_cache_is_refused(case: Case) -> None:
    case.cache.unlink()
    os.mknod(case.cache, 0o666 | 0o020000, os.makedev(1, 5))
    assert "is a FIFO, socket or device, not a regular file" in case.start(*LDCACHE).stderr


def test_a_cache_of_gigabytes_is_not_read(case: Case) -> None:
    os.truncate(case.cache, 2 << 30)
    assert "/etc/ld.so.cache: 2147483648 bytes exceed the limit of 16777216;" in case.start(*LDCACHE).stderr


def test_temporary_files_of_earlier_starts_do_not_prevent_a_start(case: Case) -> None:
    for number in range(100):
        (case.cache.parent / f".ld.so.cache.cdigen-{number:016x}").write_bytes(b"half")
    assert case.start(*LDCACHE).stderr == ""


def test_names_of_the_image_are_printed_without_control_characters(case: Case) -> None:
    case.configure({"root": {"path": "no\x1b[2Jwhere\n\u202e"}})
    done = case.start(*LDCACHE)
    assert "no?[2Jwhere??" in done.stderr


@pytest.fixture
def swapper(case: Case, request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a process that keeps exchanging a folder with a link out of the root, as a container could do."""
    folder = case.root / request.param
    folder.mkdir(exist_ok=True)
    (case.root / "link").symlink_to(case.host)
    # renameat2(2) with RENAME_EXCHANGE (2) and AT_FDCWD (-100). Both paths are absolute.
    code = """
import ctypes, os, sys
folder, link = map(os.fsencode, sys.argv[1:])
rename = ctypes.CDLL(None).renameat2
while rename(-100, folder, -100, link, 2) == 0:
    pass
"""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code, folder, case.root / "link"])
    yield
    assert process.poll() is None, "the file system can exchange names"
    process.kill()
    process.wait()


def attempts(case: Case) -> Iterator[Callable[[], object]]:
    """Yield calls of the four functions of the hook that write files below the root, TRIES calls of each."""
    opened = container.open_container(str(case.root))
    for number in range(TRIES):
        changing = [loader.folder_of(("x86_64", f"/usr/local/{number}", "libcuda.so.1"))]
        yield partial(loader.list_in_cache, opened, changing)
        yield partial(loader.list_in_conf, opened, changing)
        yield partial(container.make_link, opened, "libcuda.so.1", f"/usr/lib/{number}.so")
        yield partial(application_profile.update, opened)
        (case.root / "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf").unlink(missing_ok=True)
    os.close(opened.fd)


@pytest.mark.usefixtures("swapper", "real_nodes")
@pytest.mark.parametrize("swapper", ["etc", "etc/ld.so.conf.d", "etc/nvidia", "usr/lib"], indirect=True)
def test_no_file_outside_of_the_root_changes_while_a_folder_is_exchanged_with_a_link(case: Case) -> None:
    (case.root / "dev").mkdir()
    os.mknod(case.root / "dev/nvidia0", 0o666 | 0o020000, os.makedev(1, 3))
    before = snapshot(case.host)
    done = refused = 0
    for attempt in attempts(case):
        try:
            attempt()
            done += 1
        except container.ContainerPathError:
            refused += 1
    assert snapshot(case.host) == before
    assert done
    assert refused
