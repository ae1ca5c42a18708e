"""The fake libraries of the other tests are valid: pyelftools, ldconfig and cdigen read the same values."""

import subprocess
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_E_MACHINE
from support.hosts.driver_files import AARCH64, I386, X86_64, write_library, write_loader_cache

from cdigen.binfmt.elf import SharedObject, read_shared_object

MACHINES = pytest.mark.parametrize(("machine", "bits"), [(X86_64, 64), (AARCH64, 64), (I386, 32)])
NEEDED = ("libc.so.6", "libnvidia-tls.so.550.163.01")


def by_cdigen(path: Path) -> SharedObject:
    data = path.read_bytes()
    return read_shared_object(lambda offset, length: data[offset : offset + length], len(data))


def by_pyelftools(path: Path) -> SharedObject:
    with path.open("rb") as stream:
        file = ELFFile(stream)
        segments = [segment for segment in file.iter_segments() if isinstance(segment, DynamicSegment)]
        tags = [tag for segment in segments for tag in segment.iter_tags()]
        return SharedObject(
            bits=file.elfclass,
            machine=ENUM_E_MACHINE[file["e_machine"]],
            soname=next((vars(tag)["soname"] for tag in tags if tag.entry.d_tag == "DT_SONAME"), None),
            needed=tuple(vars(tag)["needed"] for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        )


@MACHINES
@pytest.mark.parametrize("contains", [b"", b"550.163.01"])
def test_a_library_has_the_values_that_were_written(
    tmp_path: Path, machine: int, bits: int, contains: bytes
) -> None:
    path = tmp_path / "libcuda.so.1"
    write_library(path, "libcuda.so.1", NEEDED, machine=machine, bits=bits, contains=contains)
    expected = SharedObject(bits=bits, machine=machine, soname="libcuda.so.1", needed=NEEDED)
    assert by_cdigen(path) == expected
    assert by_pyelftools(path) == expected
    assert path.read_bytes().endswith(contains)


def test_a_library_can_be_written_without_a_soname(tmp_path: Path) -> None:
    write_library(tmp_path / "a.so", "", NEEDED)
    assert by_cdigen(tmp_path / "a.so") == by_pyelftools(tmp_path / "a.so")
    assert by_cdigen(tmp_path / "a.so").soname is None


def test_ldconfig_lists_a_library_by_its_soname(tmp_path: Path) -> None:
    write_library(tmp_path / "opt/lib64/libcuda.so.550.163.01", "libcuda.so.1", NEEDED)
    write_loader_cache(tmp_path, "/opt/lib64")
    cache = tmp_path / "etc/ld.so.cache"
    listed = subprocess.run(
        ["/sbin/ldconfig", "-p", "-C", cache], check=True, capture_output=True, text=True
    ).stdout
    assert "libcuda.so.1 (libc6,x86-64) => /opt/lib64/libcuda.so.1" in listed
