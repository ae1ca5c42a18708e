"""enable-cuda-compat: the image's newer libcuda, found as CUDA images have it and as a trap."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.hook.container_root import LDCACHE, VIEW, Case, snapshot
from support.hosts.cuda_compat import NOTE_575, NOTE_590, compat_library
from support.hosts.driver_files import AARCH64, I386, write_library

from cdigen.binfmt.ldcache import parse
from cdigen.hook.compat import MAX_FILES

if TYPE_CHECKING:
    from pathlib import Path

COMPAT = "/usr/local/cuda/compat"
STEP = ("--enable-cuda-compat", "535.261.03")
V = "570.124.06"
OURS = ("libcuda.so.1", f"{COMPAT}/libcuda.so.1")


def lay(case: Case, version: str = V, *, machine: int = 62) -> Path:
    """Lay what CUDA images have: /usr/local/cuda is a link by update-alternatives."""
    folder = case.root / "usr/local/cuda-12.8/compat"
    write_library(folder / f"libcuda.so.{version}", "libcuda.so.1", machine=machine)
    for name, target in (
        ("libcuda.so", "libcuda.so.1"),
        ("libcuda.so.1", f"libcuda.so.{version}"),
        ("libnvidia-nvvm.so.4", f"libnvidia-nvvm.so.{version}"),
        ("libnvidia-ptxjitcompiler.so.1", f"libnvidia-ptxjitcompiler.so.{version}"),
        (f"libnvidia-pkcs11-openssl3.so.{version}", "x"),
        ("README", "x"),
    ):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
    (case.root / "etc/alternatives").mkdir(exist_ok=True)
    for place, target in (
        ("usr/local/cuda", "/etc/alternatives/cuda"),
        ("etc/alternatives/cuda", "/usr/local/cuda-12.8"),
    ):
        (case.root / place).unlink(missing_ok=True)
        (case.root / place).symlink_to(target)
    return folder


def test_a_newer_libcuda_comes_before_the_drivers(case: Case) -> None:
    lay(case)
    assert case.start(*LDCACHE, *STEP).stderr == ""
    found = [path for name, path in case.entries() if name == "libcuda.so.1"]
    assert found == [f"{COMPAT}/libcuda.so.1", f"{VIEW}/libcuda.so.1"]
    assert case.conf.read_text() == f"{COMPAT}\n{VIEW}\n"


def test_only_known_names_that_are_there_are_listed(case: Case) -> None:
    lay(case)
    case.start(*LDCACHE, *STEP)
    assert {path.removeprefix(COMPAT + "/") for _, path in case.entries() if path.startswith(COMPAT)} == {
        "libcuda.so",
        "libcuda.so.1",
        "libnvidia-nvvm.so.4",
        "libnvidia-ptxjitcompiler.so.1",
        f"libnvidia-pkcs11-openssl3.so.{V}",
    }


@pytest.mark.parametrize(("machine", "flags"), [(62, 0x303), (AARCH64, 0xA03)])
def test_the_abi_is_that_of_the_library(case: Case, machine: int, flags: int) -> None:
    lay(case, machine=machine)
    assert case.start(*STEP).stderr == ""
    entries = parse(case.cache.read_bytes())
    assert {entry.flags for entry in entries if entry.path.startswith(COMPAT)} == {flags}


# Whose libcuda a container gets, by NVIDIA's rule (nvidia-container-toolkit 1.19.1 and later, UseCompat in
# cmd/nvidia-cdi-hook/cudacompat): with a note, the image's where the note lists the first number of the
# host's driver and the library is newer than that driver; without one, where its first number is greater.
IMAGES = {"575.57.08": NOTE_575, "590.44.01": NOTE_590, "550.54.14": ""}
USED = {
    "470.256.02": (False, False, True),
    "535.309.01": (True, True, True),
    "550.163.01": (True, True, False),
    "560.35.05": (True, False, False),  # 13.1 has dropped the branch
    "570.124.06": (True, True, False),
    "575.57.08": (False, True, False),
    "575.64.05": (False, True, False),  # listed by both, and newer than the first
    "580.95.05": (False, True, False),
    "590.44.01": (False, False, False),
    "595.71.05": (False, False, False),
}


@pytest.mark.parametrize(
    ("host", "image", "used"),
    [(host, image, used) for host, row in USED.items() for image, used in zip(IMAGES, row, strict=True)],
)
def test_each_host_uses_the_images_that_nvidias_rule_gives(
    case: Case, host: str, image: str, *, used: bool
) -> None:
    (lay(case, image) / f"libcuda.so.{image}").write_bytes(compat_library(IMAGES[image]))
    assert case.start(*LDCACHE, "--enable-cuda-compat", host).stderr == ""
    first = dict(reversed(case.entries()))["libcuda.so.1"]
    assert first == (OURS[1] if used else f"{VIEW}/libcuda.so.1")


@pytest.mark.parametrize("version", ["535.261.03", "535.300.01", "470.1.1"])
def test_a_libcuda_that_is_no_newer_is_not_used(case: Case, version: str) -> None:
    lay(case, version)
    assert case.start(*LDCACHE, *STEP).stderr == ""
    assert OURS not in case.entries()


def test_a_start_after_the_hosts_driver_was_renewed_uses_the_driver_again(case: Case) -> None:
    lay(case)
    case.start(*LDCACHE, *STEP)
    assert case.start(*LDCACHE, "--enable-cuda-compat", "580.1.1").stderr == ""
    assert dict(reversed(case.entries()))["libcuda.so.1"] == f"{VIEW}/libcuda.so.1"
    assert case.conf.read_text() == f"{VIEW}\n"


def test_an_image_without_it_is_silent(case: Case) -> None:
    done = case.start(*STEP, "--require", "enable-cuda-compat")
    assert (done.returncode, done.stderr) == (0, "")
    assert not case.conf.exists()


def test_two_versions_are_refused_and_the_driver_is_found(case: Case) -> None:
    write_library(lay(case) / "libcuda.so.580.1.1", "libcuda.so.1")
    done = case.start(*LDCACHE, *STEP)
    assert done.stderr == (
        f"cdigen-hook: enable-cuda-compat: {COMPAT}: there are 2 versions of libcuda, not one; "
        "the host driver's own libcuda is used\n"
    )
    assert dict(case.entries())["libcuda.so.1"] == f"{VIEW}/libcuda.so.1"


def bomb(path: Path) -> None:
    path.write_bytes(b"\x7fELF" + b"\xff" * 5000)


def sparse(path: Path) -> None:
    path.write_bytes(b"")
    os.truncate(path, 1 << 40)


def folder(path: Path) -> None:
    path.mkdir()


def for_others(path: Path) -> None:
    write_library(path, "libcuda.so.1", machine=I386, bits=32)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("trap", [bomb, sparse, folder, for_others, loop, os.mkfifo])
def test_a_libcuda_that_is_a_trap_is_one_line_and_the_driver_is_found(case: Case, trap: object) -> None:
    path = lay(case) / f"libcuda.so.{V}"
    path.unlink()
    trap(path)  # type: ignore[operator]
    done = case.start(*LDCACHE, *STEP)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert dict(case.entries())["libcuda.so.1"] == f"{VIEW}/libcuda.so.1"


def test_a_folder_of_too_many_files_is_refused(case: Case) -> None:
    place = lay(case)
    for number in range(MAX_FILES):
        (place / str(number)).touch()
    assert f"there are more than {MAX_FILES} files" in case.start(*STEP).stderr


@pytest.mark.parametrize(
    "target",
    [
        "/../../../../../../../..{host}",
        "../../../../../../../../../../..{host}",
        "/proc/self/root{host}",
        "{host}",
    ],
)
def test_a_link_that_wants_out_leads_where_it_does_in_the_container(case: Case, target: str) -> None:
    """The host has such libraries there; in the container the same path is another place, or none."""
    write_library(case.host / f"compat/libcuda.so.{V}", "libcuda.so.1")
    lay(case)
    (case.root / "usr/local/cuda").unlink()
    (case.root / "usr/local/cuda").symlink_to(target.format(host=case.host))
    before = snapshot(case.host)
    assert case.start(*STEP).stderr == ""
    assert snapshot(case.host) == before
    assert OURS not in case.entries()


def test_more_links_than_the_kernel_follows_are_refused(case: Case) -> None:
    lay(case)
    for number in range(50):
        (case.root / f"hop{number}").symlink_to(f"/hop{number + 1}")
    (case.root / "usr/local/cuda").unlink()
    (case.root / "usr/local/cuda").symlink_to("/hop0")
    assert "more than 40 links are on the way" in case.start(*STEP).stderr


def test_links_that_multiply_are_refused(case: Case) -> None:
    (case.root / "usr/local").mkdir()
    (case.root / "usr/local/cuda").symlink_to("./" * 2000)
    assert "more than 512 steps are on the way" in case.start(*STEP).stderr


def test_if_the_cache_cannot_be_written_the_step_has_failed_too(case: Case) -> None:
    lay(case)
    case.cache.unlink()
    case.cache.mkdir()
    assert case.start(*LDCACHE, *STEP, "--require", "enable-cuda-compat").returncode == 1
