"""Folders in the cache of the dynamic loader are searched for libraries. An invalid cache is a finding."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts.driver_files import V550, put, write_library, write_loader_cache
from support.hosts.nvidia import DRIVER, empty_root, make_instead, places

from cdigen.binfmt.ldcache import MAX_SIZE
from cdigen.vendors.nvidia.files.libraries import LibrarySearch, find_libraries

FOLDER = "/mnt/state/drivers"
CACHE = "etc/ld.so.cache"
SYSTEM = f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{V550}"


def install(root: Path) -> None:
    """Write a library in a folder that only the cache lists, and a library in the system's folder."""
    write_library(root / FOLDER.lstrip("/") / f"libcuda.so.{V550}", "libcuda.so.1")
    write_library(root / SYSTEM, "libnvidia-ml.so.1")
    write_loader_cache(root, FOLDER)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    install(tmp_path)
    return tmp_path


def search(root: Path) -> LibrarySearch:
    libraries = find_libraries(places(root), DRIVER)
    assert all(finding.line().isprintable() for finding in libraries.findings)
    return libraries


def cache_of(*entries: tuple[str, str], flags: int = 0x0303) -> bytes:
    """Return a cache in ldconfig's format with ENTRIES, which are pairs of a SONAME and a path."""
    table, strings = b"", b""
    at = 48 + 24 * len(entries)
    for entry in entries:
        soname, path = (os.fsencode(name) + b"\0" for name in entry)
        key = at + len(strings)
        table += struct.pack("<iIIIQ", flags, key, key + len(soname), 0, 0)
        strings += soname + path
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIB19x", len(entries), len(strings), 2)
    return head + table + strings


def test_a_folder_that_only_the_cache_lists_is_searched(host: Path) -> None:
    assert search(host).found.keys() == {"libcuda.so.1", "libnvidia-ml.so.1"}


def test_without_a_cache_the_usual_folders_are_searched(host: Path) -> None:
    (host / CACHE).unlink()
    libraries = search(host)
    assert libraries.found.keys() == {"libnvidia-ml.so.1"}
    assert libraries.findings == []


@pytest.mark.parametrize("content", [b"", b"rubbish", b"glibc-ld.so.cache1.1", bytes(MAX_SIZE + 1)], ids=len)
def test_a_corrupt_cache_is_reported_and_the_usual_folders_are_searched(host: Path, content: bytes) -> None:
    (host / CACHE).write_bytes(content)
    libraries = search(host)
    assert libraries.found.keys() == {"libnvidia-ml.so.1"}
    assert [(f.severity, f.rule, f.path) for f in libraries.findings] == [
        ("warning", "ld-cache-unreadable", f"/{CACHE}")
    ]


@pytest.mark.parametrize("kind", ["FIFO", "folder", "looping link"])
def test_a_file_of_another_type_at_the_caches_path_is_reported(host: Path, kind: str) -> None:
    make_instead(host / CACHE, kind)
    assert [finding.rule for finding in search(host).findings] == ["ld-cache-unreadable"]


@pytest.mark.parametrize(
    "path", ["", "libcuda.so.1", "../libcuda.so.1", "/", "/nowhere/libcuda.so.1", "/a\nb/x"]
)
def test_an_entry_with_a_missing_file_is_skipped(host: Path, path: str) -> None:
    put(host / CACHE, cache_of(("libcuda.so.1", path)))
    libraries = search(host)
    assert libraries.found.keys() == {"libnvidia-ml.so.1"}
    assert libraries.findings == []


def test_an_entry_cannot_lead_out_of_the_root(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    install(root)
    write_library(outside / f"libcuda.so.{V550}", "libcuda.so.1")
    put(root / CACHE, cache_of(("libcuda.so.1", f"/../../../../..{outside}/libcuda.so.1")))
    assert search(root).found.keys() == {"libnvidia-ml.so.1"}


def test_an_entry_for_another_machine_is_skipped(host: Path) -> None:
    put(host / CACHE, cache_of(("libcuda.so.1", f"{FOLDER}/libcuda.so.1"), flags=0x0003))
    assert search(host).found.keys() == {"libnvidia-ml.so.1"}


def test_a_folder_in_the_cache_with_other_libraries_of_nvidia_is_searched(host: Path) -> None:
    write_library(host / f"opt/new/libnvidia-novelty.so.{V550}", "libnvidia-novelty.so.1")
    write_loader_cache(host, FOLDER, "/opt/new")
    assert "libnvidia-novelty.so.1" in search(host).found


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["libcuda.so.1", "libnvidia-ml.so.1", "libfoo.so"]),
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30),
        ),
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 255)), max_size=4),
)
def test_no_content_of_the_cache_raises_an_exception(
    entries: list[tuple[str, str]], changes: list[tuple[int, int]]
) -> None:
    data = bytearray(cache_of(*entries))
    for position, value in changes:
        data[position % len(data)] = value
    with empty_root() as root:
        write_library(root / SYSTEM, "libnvidia-ml.so.1")
        put(root / CACHE, bytes(data))
        assert "libnvidia-ml.so.1" in search(root).found
