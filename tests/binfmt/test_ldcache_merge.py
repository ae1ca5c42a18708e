"""Merges into a loader cache: the order of entries, and the parts of the file that stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.law_examples import examples
from support.values.loader_model import (
    EXTENDED,
    FOLDER,
    HWCAP,
    LIBRARIES,
    cache,
    compare,
    entry,
    extension_at,
    find_library,
    hwcaps_names,
    ordered,
    others,
    patched,
    places,
)

from cdigen.binfmt import ldcache_merge
from cdigen.binfmt.ldcache import FLAGS_AARCH64, FLAGS_I386, FLAGS_X86_64, LdCacheEntry, parse
from cdigen.binfmt.ldcache_merge import merge

if TYPE_CHECKING:
    from types import FrameType

FUZZ = examples(4)


@pytest.mark.parametrize(
    ("less", "greater"),
    [
        (b"libfoo", b"libfoo-2.so"),
        (b"libfoo-2.so", b"libfoo.so"),
        (b"libfoo.so", b"libfoo.so.1"),
        (b"libfoo.so.9", b"libfoo.so.10"),
        (b"libfoo.so.x", b"libfoo.so.1"),
        (b"lib", b"lib1"),
        (b"lib4294967295", b"lib0"),
        (b"lib2147483648", b"lib0"),
    ],
)
def test_names_are_ranked_in_the_order_of_the_loader(less: bytes, greater: bytes) -> None:
    assert compare(less, greater) < 0
    assert rank(less) < rank(greater)


def rank(name: bytes, *, signed: bool = True) -> bytes:
    weights = ldcache_merge._SIGNED if signed else ldcache_merge._UNSIGNED
    return ldcache_merge._rank(name + b"\0", weights)


NAMES = st.text("lib1209.-\x80\xff", max_size=8).map(lambda text: text.encode("latin-1"))


@FUZZ
@given(NAMES, NAMES, st.booleans())
def test_any_two_names_are_ranked_in_the_order_of_the_loader(one: bytes, other: bytes, signed: bool) -> None:  # noqa: FBT001
    first, second = rank(one, signed=signed), rank(other, signed=signed)
    assert (first > second) - (first < second) == sign(compare(one, other, signed=signed))


def sign(number: int) -> int:
    return (number > 0) - (number < 0)


def test_numbers_are_compared_without_leading_zeros() -> None:
    assert rank(b"lib01.so.2") == rank(b"lib1.so.02")


def test_driver_libraries_precede_all_entries_with_the_same_name_and_abi() -> None:
    image = (
        entry("libcuda.so.1", "/hwcaps", hwcap=HWCAP),
        entry("libcuda.so.1", "/old"),
        entry("libcuda.so"),
    )
    merged = merge(cache(image, hwcaps=("x86-64-v2",)), LIBRARIES[:1])
    assert [one.path for one in parse(merged)] == [
        f"{FOLDER}/libcuda.so.1",
        "/hwcaps",
        "/old",
        "/usr/lib/libcuda.so",
    ]


def test_an_entry_with_the_same_name_and_greater_flags_precedes_a_driver_library() -> None:
    image = (entry("libcuda.so.1"), entry("libcuda.so.1", "/usr/lib32/libcuda.so.1", flags=FLAGS_I386))
    ours = (("libcuda.so.1", "/driver32", FLAGS_I386), ("libcuda.so.1", "/driver", FLAGS_X86_64))
    paths = [one.path for one in parse(merge(cache(image), ours))]
    assert paths == ["/driver", "/usr/lib/libcuda.so.1", "/driver32", "/usr/lib32/libcuda.so.1"]


def test_the_first_of_two_driver_libraries_with_the_same_name_has_priority() -> None:
    ours = [("libcuda.so.1", path, FLAGS_X86_64) for path in ("/compat", "/driver", "/compat")]
    paths = [one.path for one in parse(merge(cache((entry("libcuda.so.1", "/old"),)), ours))]
    assert paths == ["/compat", "/driver", "/old"]


def test_names_are_equal_if_their_numbers_are_equal() -> None:
    ours = (("lib1.so", "/ours", FLAGS_X86_64),)
    image = (entry("lib01.so", "/image"), entry("lib1.so", "/other"))
    assert [one.path for one in parse(merge(cache(image), ours))] == ["/ours", "/image", "/other"]


@pytest.mark.parametrize(
    ("flags", "signed"), [(FLAGS_X86_64, True), (FLAGS_I386, True), (FLAGS_AARCH64, False)]
)
def test_bytes_from_0x80_are_negative_only_on_x86(flags: int, *, signed: bool) -> None:
    names = ["lib\udcff.so", "lib.so", "lib", "li\udc80", "li", "libz.so"]
    image = ordered([entry(name, flags=flags) for name in names], signed=signed)
    merged = merge(cache(image), (("libm.so", "/ours", flags),))
    assert find_library(merged, "libm.so", flags, signed=signed) == "/ours"
    assert parse(merged) == ordered([*image, entry("libm.so", "/ours", flags=flags)], signed=signed)


TEXTS = NAMES.map(os.fsdecode)
ENTRIES = st.lists(
    st.builds(
        entry,
        TEXTS,
        st.sampled_from(["/usr/lib/one", "/opt/two", "/driver/three"]),
        flags=st.sampled_from([FLAGS_X86_64, FLAGS_I386, 1]),
        hwcap=st.sampled_from([0, 0, HWCAP, 1]),
    ),
    max_size=24,
)
OURS = st.lists(
    st.tuples(
        TEXTS, st.sampled_from(["/driver/three", "/driver/four"]), st.sampled_from([FLAGS_X86_64, FLAGS_I386])
    ),
    max_size=8,
).map(tuple)


@FUZZ
@given(ENTRIES, OURS)
def test_in_any_sorted_cache_driver_libraries_are_found_and_other_entries_unchanged(
    image: list[LdCacheEntry], ours: tuple[tuple[str, str, int], ...]
) -> None:
    data = cache(ordered(image), hwcaps=("x86-64-v2",), generator=b"ldconfig")
    merged = merge(data, ours)
    assert others(merged, ours) == others(data, ours)
    assert len(parse(merged)) == len(others(data, ours)) + len(set(ours))
    ranks = {(rank(os.fsencode(name)), flags): path for name, path, flags in reversed(ours)}
    for name in {one.soname for one in image} | {name for name, _, _ in ours}:
        for flags in (FLAGS_X86_64, FLAGS_I386):
            expected = ranks.get((rank(os.fsencode(name)), flags)) or find_library(data, name, flags)
            assert find_library(merged, name, flags) == expected or expected == "/driver/three"


@FUZZ
@given(ENTRIES, OURS)
def test_a_second_merge_changes_no_byte_of_any_cache(
    image: list[LdCacheEntry], ours: tuple[tuple[str, str, int], ...]
) -> None:
    merged = merge(cache(tuple(image)), ours)
    assert merge(merged, ours) == merged
    assert others(merged, ours) == others(cache(tuple(image)), ours)


def test_a_merge_of_other_libraries_reuses_the_strings_of_the_previous_merge() -> None:
    merged = merge(cache((entry("liba.so"),)), LIBRARIES)
    fewer = merge(merged, LIBRARIES[:2])
    assert len(merge(fewer, LIBRARIES)) == len(merged)


def test_generator_and_hwcaps_are_kept() -> None:
    merged = merge(cache((entry("liba.so"),), hwcaps=("v2", "v3"), generator=b"ldconfig 2.36"), LIBRARIES)
    assert hwcaps_names(merged) == [b"v2", b"v3"]
    assert merged.endswith(b"ldconfig 2.36")


def test_a_cache_of_an_ldconfig_before_2_33_gets_the_byte_order_flag() -> None:
    merged = merge(cache((entry("liba.so"),), byte_order=0), LIBRARIES)
    assert merged[28] == 2


def test_a_name_at_the_end_of_its_path_is_stored_once() -> None:
    merged = merge(b"", LIBRARIES[:1])
    assert len(merged) == 48 + 24 + len(f"{FOLDER}/libcuda.so.1") + 1


def test_a_name_that_differs_from_its_path_is_stored_separately() -> None:
    ours = (("libcuda.so.1", f"{FOLDER}/libcuda.so.550.163.01", FLAGS_X86_64),)
    assert places(merge(b"", ours)) == list(ours)


def test_bytes_that_are_not_utf8_are_preserved() -> None:
    ours = (("lib\udcff.so", "/driver/lib\udcff.so", FLAGS_X86_64),)
    assert places(merge(b"", ours)) == list(ours)


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0, 0), (4, 3), (4, 65), (4, 2**32 - 1), (16, 2**32 - 1), (20, 2**32 - 1), (36, 2**32 - 1)],
    ids=["magic", "one section more", "above the limit", "count", "offset", "size", "hwcaps size"],
)
def test_a_damaged_extension_directory_is_omitted(offset: int, value: int) -> None:
    merged = merge(patched(EXTENDED, extension_at(EXTENDED) + offset, "<I", value), LIBRARIES)
    assert extension_at(merged) == 0
    assert others(merged) == list(parse(EXTENDED))


@pytest.mark.parametrize("value", [1, 2**32 - 4, len(EXTENDED) - 4])
def test_an_extension_directory_at_a_wrong_offset_is_omitted(value: int) -> None:
    assert extension_at(merge(patched(EXTENDED, 32, "<I", value), LIBRARIES)) == 0


@pytest.mark.parametrize(
    ("offset", "value"),
    [(32, 41), (36, 6), (36, 0), (40, 2**32 - 1), (40, len(EXTENDED)), (44, 48)],
    ids=["not aligned", "not a multiple", "empty", "far", "behind the strings", "before the strings"],
)
def test_damaged_hwcaps_are_omitted_but_the_generator_is_kept(offset: int, value: int) -> None:
    merged = merge(patched(EXTENDED, extension_at(EXTENDED) + offset, "<I", value), LIBRARIES)
    assert hwcaps_names(merged) == []
    assert b"ldconfig 2.36" in merged
    assert others(merged) == list(parse(EXTENDED))


def test_hwcaps_and_generator_above_the_limits_are_omitted() -> None:
    merged = merge(cache((entry("liba.so"),), hwcaps=("v",) * 1025, generator=b"g" * 4097), LIBRARIES)
    assert extension_at(merged) == 0


def test_an_extension_with_an_unknown_tag_is_omitted() -> None:
    merged = merge(patched(EXTENDED, extension_at(EXTENDED) + 8, "<I", 2), LIBRARIES)
    assert hwcaps_names(merged) == [b"v2", b"v3"]
    assert b"ldconfig" not in merged


def test_only_struct_and_modules_of_cdigen_are_imported() -> None:
    program = """
import sys
before = set(sys.modules)
import cdigen.binfmt.ldcache_merge
print(*(set(sys.modules) - before))
"""
    folder = Path(ldcache_merge.__file__).parents[2]
    command = [sys.executable, "-S", "-c", program]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout
    expected = ["__future__", "_struct", "cdigen", "cdigen.binfmt", "cdigen.binfmt.ldcache"]
    expected += ["cdigen.binfmt.ldcache_merge", "cdigen.value", "struct"]
    assert set(output.split()) <= set(expected)


def test_only_names_that_the_search_needs_are_read() -> None:
    reads: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is ldcache_merge._text.__code__:
            reads.append(event)

    data = cache(ordered([entry(f"libimage{number}.so.1") for number in range(1000)]))
    sys.setprofile(watch)
    try:
        merge(data, LIBRARIES)
    finally:
        sys.setprofile(None)
    assert 0 < len(reads) <= len(LIBRARIES) * 11
