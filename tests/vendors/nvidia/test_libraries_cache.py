"""The dynamic loader's cache as a guide to libraries: helpful when it is whole, harmless when it is not."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts.driver_files import V550, put, write_library, write_loader_cache
from support.hosts.nvidia import DRIVER, empty_root, make_instead, places

from cdigen.binfmt.ldcache import MAX_SIZE
from cdigen.vendors.nvidia.libraries import LibrarySearch, find_libraries

FOLDER = "/mnt/state/drivers"
CACHE = "etc/ld.so.cache"
SYSTEM = f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{V550}"


def install(root: Path) -> None:
    """Lay one library where only the cache leads to, and one in the system's folder."""
    write_library(root / FOLDER.lstrip("/") / f"libcuda.so.{V550}", "libcuda.so.1")
    write_library(root / SYSTEM, "libnvidia-ml.so.1")
    write_loader_cache(root, FOLDER)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    install(tmp_path)
    return tmp_path


def search(root: Path) -> LibrarySearch:
    said = find_libraries(places(root), DRIVER)
    assert all(finding.line().isprintable() for finding in said.findings)
    return said


def cache_of(*entries: tuple[str, str], flags: int = 0x0303) -> bytes:
    """Write a cache as ldconfig does: SONAME and path of each entry."""
    table, strings = b"", b""
    at = 48 + 24 * len(entries)
    for entry in entries:
        soname, path = (os.fsencode(name) + b"\0" for name in entry)
        key = at + len(strings)
        table += struct.pack("<iIIIQ", flags, key, key + len(soname), 0, 0)
        strings += soname + path
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIB19x", len(entries), len(strings), 2)
    return head + table + strings


def test_a_folder_that_only_the_cache_names_is_searched(host: Path) -> None:
    assert search(host).found.keys() == {"libcuda.so.1", "libnvidia-ml.so.1"}


def test_without_a_cache_the_usual_folders_are_searched(host: Path) -> None:
    (host / CACHE).unlink()
    said = search(host)
    assert said.found.keys() == {"libnvidia-ml.so.1"}
    assert said.findings == []


@pytest.mark.parametrize("content", [b"", b"rubbish", b"glibc-ld.so.cache1.1", bytes(MAX_SIZE + 1)], ids=len)
def test_a_corrupt_cache_is_named_and_costs_what_only_it_knows(host: Path, content: bytes) -> None:
    (host / CACHE).write_bytes(content)
    said = search(host)
    assert said.found.keys() == {"libnvidia-ml.so.1"}
    assert [(f.severity, f.rule, f.path) for f in said.findings] == [
        ("warning", "ld-cache-unreadable", f"/{CACHE}")
    ]


@pytest.mark.parametrize("kind", ["FIFO", "folder", "looping link"])
def test_something_else_in_the_caches_place_is_named(host: Path, kind: str) -> None:
    make_instead(host / CACHE, kind)
    assert [finding.rule for finding in search(host).findings] == ["ld-cache-unreadable"]


@pytest.mark.parametrize(
    "path", ["", "libcuda.so.1", "../libcuda.so.1", "/", "/nowhere/libcuda.so.1", "/a\nb/x"]
)
def test_an_entry_that_leads_nowhere_is_passed_over(host: Path, path: str) -> None:
    put(host / CACHE, cache_of(("libcuda.so.1", path)))
    said = search(host)
    assert said.found.keys() == {"libnvidia-ml.so.1"}
    assert said.findings == []


def test_an_entry_cannot_lead_out_of_the_root(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    install(root)
    write_library(outside / f"libcuda.so.{V550}", "libcuda.so.1")
    put(root / CACHE, cache_of(("libcuda.so.1", f"/../../../../..{outside}/libcuda.so.1")))
    assert search(root).found.keys() == {"libnvidia-ml.so.1"}


def test_an_entry_of_another_machine_is_passed_over(host: Path) -> None:
    put(host / CACHE, cache_of(("libcuda.so.1", f"{FOLDER}/libcuda.so.1"), flags=0x0003))
    assert search(host).found.keys() == {"libnvidia-ml.so.1"}


def test_a_folder_of_libraries_that_no_table_knows_is_searched_by_their_names(host: Path) -> None:
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
def test_no_cache_raises_anything(entries: list[tuple[str, str]], changes: list[tuple[int, int]]) -> None:
    data = bytearray(cache_of(*entries))
    for position, value in changes:
        data[position % len(data)] = value
    with empty_root() as root:
        write_library(root / SYSTEM, "libnvidia-ml.so.1")
        put(root / CACHE, bytes(data))
        assert "libnvidia-ml.so.1" in search(root).found
