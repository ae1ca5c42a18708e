"""The step enable-cuda-compat in ordinary and hostile images that contain a libcuda."""

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
    """Create and return the folder compat of a CUDA image, to which links of update-alternatives lead."""
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


def test_a_newer_libcuda_of_the_image_precedes_the_drivers_libcuda_in_the_cache(case: Case) -> None:
    lay(case)
    assert case.start(*LDCACHE, *STEP).stderr == ""
    found = [path for name, path in case.entries() if name == "libcuda.so.1"]
    assert found == [f"{COMPAT}/libcuda.so.1", f"{VIEW}/libcuda.so.1"]
    assert case.conf.read_text() == f"{COMPAT}\n{VIEW}\n"


def test_the_cache_lists_only_known_library_names_that_exist_in_the_image(case: Case) -> None:
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
def test_the_abi_of_an_entry_is_the_abi_of_the_images_libcuda(case: Case, machine: int, flags: int) -> None:
    lay(case, machine=machine)
    assert case.start(*STEP).stderr == ""
    entries = parse(case.cache.read_bytes())
    assert {entry.flags for entry in entries if entry.path.startswith(COMPAT)} == {flags}


# NVIDIA's rule for the libcuda of a container (nvidia-container-toolkit 1.19.1 and later, UseCompat in
# cmd/nvidia-cdi-hook/cudacompat). A library with a note is used if the note lists the first number of the
# host's driver and the library is newer than the driver. A library without a note is used if its first number
# is greater than the driver's first number. The note is an ELF note.
# IMAGES: the version of the image's libcuda -> its note. USED: the version of the host's driver -> whether
# the libcuda of each image is used, in the order of IMAGES.
IMAGES = {"575.57.08": NOTE_575, "590.44.01": NOTE_590, "550.54.14": ""}
USED = {
    "470.256.02": (False, False, True),
    "535.309.01": (True, True, True),
    "550.163.01": (True, True, False),
    "560.35.05": (True, False, False),  # the note of CUDA 13.1 does not list 560
    "570.124.06": (True, True, False),
    "575.57.08": (False, True, False),
    "575.64.05": (
        False,
        True,
        False,
    ),  # both notes list 575; the driver is newer than the first library
    "580.95.05": (False, True, False),
    "590.44.01": (False, False, False),
    "595.71.05": (False, False, False),
}


@pytest.mark.parametrize(
    ("host", "image", "used"),
    [(host, image, used) for host, row in USED.items() for image, used in zip(IMAGES, row, strict=True)],
)
def test_the_images_libcuda_is_used_according_to_nvidias_rule(
    case: Case, host: str, image: str, *, used: bool
) -> None:
    (lay(case, image) / f"libcuda.so.{image}").write_bytes(compat_library(IMAGES[image]))
    assert case.start(*LDCACHE, "--enable-cuda-compat", host).stderr == ""
    first = dict(reversed(case.entries()))["libcuda.so.1"]
    assert first == (OURS[1] if used else f"{VIEW}/libcuda.so.1")


@pytest.mark.parametrize("version", ["535.261.03", "535.300.01", "470.1.1"])
def test_a_libcuda_that_is_not_newer_than_the_drivers_libcuda_is_not_used(case: Case, version: str) -> None:
    lay(case, version)
    assert case.start(*LDCACHE, *STEP).stderr == ""
    assert OURS not in case.entries()


def test_the_drivers_libcuda_is_used_after_an_upgrade_of_the_driver(case: Case) -> None:
    lay(case)
    case.start(*LDCACHE, *STEP)
    assert case.start(*LDCACHE, "--enable-cuda-compat", "580.1.1").stderr == ""
    assert dict(reversed(case.entries()))["libcuda.so.1"] == f"{VIEW}/libcuda.so.1"
    assert case.conf.read_text() == f"{VIEW}\n"


def test_an_image_without_the_folder_compat_causes_no_message(case: Case) -> None:
    done = case.start(*STEP, "--require", "enable-cuda-compat")
    assert (done.returncode, done.stderr) == (0, "")
    assert not case.conf.exists()


def test_two_versions_of_libcuda_in_an_image_are_refused_and_the_drivers_libcuda_is_used(case: Case) -> None:
    write_library(lay(case) / "libcuda.so.580.1.1", "libcuda.so.1")
    done = case.start(*LDCACHE, *STEP)
    assert done.stderr == (
        f"cdigen-hook: enable-cuda-compat: {COMPAT}: there are 2 versions of libcuda, not one; "
        "the container uses the host driver's libcuda\n"
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
def test_one_line_reports_a_hostile_libcuda_and_the_drivers_libcuda_is_used(case: Case, trap: object) -> None:
    path = lay(case) / f"libcuda.so.{V}"
    path.unlink()
    trap(path)  # type: ignore[operator]
    done = case.start(*LDCACHE, *STEP)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert dict(case.entries())["libcuda.so.1"] == f"{VIEW}/libcuda.so.1"


def test_a_folder_with_too_many_files_is_refused(case: Case) -> None:
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
def test_a_link_out_of_the_root_is_resolved_in_the_container(case: Case, target: str) -> None:
    """The host has a libcuda at the target of the link. In the container, the target has no libcuda."""
    write_library(case.host / f"compat/libcuda.so.{V}", "libcuda.so.1")
    lay(case)
    (case.root / "usr/local/cuda").unlink()
    (case.root / "usr/local/cuda").symlink_to(target.format(host=case.host))
    before = snapshot(case.host)
    assert case.start(*STEP).stderr == ""
    assert snapshot(case.host) == before
    assert OURS not in case.entries()


def test_a_path_with_more_links_than_the_kernel_follows_is_refused(case: Case) -> None:
    lay(case)
    for number in range(50):
        (case.root / f"hop{number}").symlink_to(f"/hop{number + 1}")
    (case.root / "usr/local/cuda").unlink()
    (case.root / "usr/local/cuda").symlink_to("/hop0")
    assert "the path has more than 40 links" in case.start(*STEP).stderr


def test_a_path_with_too_many_components_is_refused(case: Case) -> None:
    (case.root / "usr/local").mkdir()
    (case.root / "usr/local/cuda").symlink_to("./" * 2000)
    assert "the path has more than 512 steps" in case.start(*STEP).stderr


def test_enable_cuda_compat_fails_if_the_cache_cannot_be_written(case: Case) -> None:
    lay(case)
    case.cache.unlink()
    case.cache.mkdir()
    assert case.start(*LDCACHE, *STEP, "--require", "enable-cuda-compat").returncode == 1
