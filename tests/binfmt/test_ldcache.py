"""The reader of the loader's cache, compared with the machine's own ldconfig."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.abilities import tool
from support.law_examples import examples
from support.values.loader_model import MAGIC, combined, patched

from cdigen.binfmt import ldcache
from cdigen.binfmt.ldcache import CacheError, LdCacheEntry, parse, read_header

LDCONFIG = "/sbin/ldconfig"
LISTED = re.compile(r"\t(?P<soname>.+?) \((?P<abi>.*)\) => (?P<path>.+)")
FUZZ = examples(4)

MIXED = (
    LdCacheEntry(
        soname="libz.so.1", path="/lib/x86_64-linux-gnu/libz.so.1", flags=ldcache.FLAGS_X86_64, hwcap=0
    ),
    LdCacheEntry(soname="libz.so.1", path="/lib/libz.so.1", flags=ldcache.FLAGS_I386, hwcap=0),
    LdCacheEntry(soname="libcuda.so.1", path="/opt/libcuda.so.1", flags=ldcache.FLAGS_AARCH64, hwcap=1 << 62),
    LdCacheEntry(soname="liba.so", path="/usr/lib/liba.so", flags=ldcache.FLAGS_X86_64, hwcap=0),
)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
ENTRIES = st.builds(
    LdCacheEntry,
    soname=NAMES,
    path=NAMES,
    flags=st.integers(-(2**31), 2**31 - 1),
    hwcap=st.integers(0, 2**64 - 1),
)


def new_format(entries: tuple[LdCacheEntry, ...], *, byte_order: int = 2) -> bytes:
    """Return a cache with ENTRIES as ldconfig before 2.33 writes it: separate names, no extensions."""
    table, strings = b"", b""
    at = 48 + 24 * len(entries)
    for entry in entries:
        soname, path = os.fsencode(entry.soname) + b"\0", os.fsencode(entry.path) + b"\0"
        key = at + len(strings)
        table += struct.pack("<iIIIQ", entry.flags, key, key + len(soname), 0, entry.hwcap)
        strings += soname + path
    return MAGIC + struct.pack("<IIB19x", len(entries), len(strings), byte_order) + table + strings


def refusal(data: bytes) -> str:
    """Return the message of the CacheError that DATA raises, or nothing."""
    try:
        parse(data)
    except CacheError as error:
        return str(error)
    return ""


def listed(cache: Path) -> list[tuple[str, str, str]]:
    """Return the SONAME, ABI and path of each line that ``ldconfig -p`` prints for CACHE."""
    output = subprocess.run(
        [LDCONFIG, "-p", "-C", cache], check=True, capture_output=True, env={"LC_ALL": "C"}
    ).stdout
    found = [LISTED.fullmatch(line) for line in os.fsdecode(output).splitlines() if line.startswith("\t")]
    return [(match["soname"], match["abi"], match["path"]) for match in found if match]


@pytest.fixture(scope="session")
def machine_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("machine") / "ld.so.cache"
    copy.write_bytes(Path("/etc/ld.so.cache").read_bytes())
    return copy


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the caches that the real ldconfig built from the same folders, by format."""
    folder = tmp_path_factory.mktemp("built")
    libraries = folder / "lib"
    for_some_cpus = libraries / "glibc-hwcaps" / "x86-64-v3"
    for_some_cpus.mkdir(parents=True)
    source = folder / "answer.c"
    source.write_text("int answer(void) { return 42; }\n")
    for place in (libraries, for_some_cpus):
        output = place / "libcdigen-test.so.1"
        soname = f"-Wl,-soname,{output.name}"
        subprocess.run(
            [tool("gcc"), "-shared", "-fPIC", "-nostdlib", soname, "-o", output, source], check=True
        )
    configuration = folder / "ld.so.conf"
    configuration.write_text(f"{libraries}\n")
    caches = {name: folder / name for name in ("new", "compat", "old")}
    for name, cache in caches.items():
        subprocess.run([LDCONFIG, "-X", "-C", cache, "-f", configuration, "-c", name], check=True)
    return caches


def test_the_machines_cache_is_read_as_ldconfig_lists_it(machine_cache: Path) -> None:
    entries = parse(machine_cache.read_bytes())
    expected = [(soname, path) for soname, _, path in listed(machine_cache)]
    assert expected
    assert [(entry.soname, entry.path) for entry in entries] == expected


@pytest.mark.parametrize(
    ("flags", "abi"),
    [
        (ldcache.FLAGS_X86_64, "libc6,x86-64"),
        (ldcache.FLAGS_AARCH64, "libc6,AArch64"),
        (ldcache.FLAGS_I386, "libc6"),
    ],
)
def test_the_flags_of_an_abi_select_the_entries_that_ldconfig_lists_for_this_abi(
    flags: int, abi: str, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.write_bytes(new_format(MIXED))
    expected = [(soname, path) for soname, label, path in listed(cache) if label.split(", ")[0] == abi]
    assert expected
    assert [(entry.soname, entry.path) for entry in parse(cache.read_bytes(), flags=flags)] == expected


def test_a_built_cache_is_read_as_ldconfig_lists_it(built: dict[str, Path]) -> None:
    expected = [(soname, path) for soname, _, path in listed(built["new"])]
    assert [(entry.soname, entry.path) for entry in parse(built["new"].read_bytes())] == expected


def test_a_combined_cache_has_the_entries_of_a_cache_in_the_new_format(built: dict[str, Path]) -> None:
    assert parse(built["compat"].read_bytes()) == parse(built["new"].read_bytes())


def test_a_cache_with_only_the_old_format_is_refused(built: dict[str, Path]) -> None:
    with pytest.raises(CacheError, match="only the old format"):
        parse(built["old"].read_bytes())


def test_a_library_for_some_cpus_has_a_hwcap_and_precedes_the_general_library(built: dict[str, Path]) -> None:
    entries = parse(built["new"].read_bytes())
    ours = [entry.hwcap != 0 for entry in entries if entry.soname == "libcdigen-test.so.1"]
    assert ours == [True, False]


@FUZZ
@given(st.lists(ENTRIES, max_size=8).map(tuple), st.sampled_from([0, 2]))
def test_written_entries_are_read_unchanged(entries: tuple[LdCacheEntry, ...], byte_order: int) -> None:
    assert parse(new_format(entries, byte_order=byte_order)) == entries


@pytest.mark.parametrize("old_entries", [0, 1, 2, 3])
def test_an_old_table_of_any_length_may_precede_the_new_table(old_entries: int) -> None:
    assert parse(combined(new_format(MIXED), old_entries=old_entries)) == MIXED


def test_only_the_entries_with_the_requested_flags_are_returned() -> None:
    assert parse(new_format(MIXED), flags=ldcache.FLAGS_X86_64) == (MIXED[0], MIXED[3])


def test_names_that_are_not_decoded_are_not_checked() -> None:
    long = LdCacheEntry(soname="n" * 4097, path="/", flags=ldcache.FLAGS_I386, hwcap=0)
    assert parse(new_format((long, *MIXED[2:])), flags=ldcache.FLAGS_X86_64) == (MIXED[3],)


def test_an_empty_cache_has_no_entries() -> None:
    assert parse(new_format(())) == ()


def test_a_name_may_be_the_tail_of_a_path() -> None:
    data = new_format(MIXED[3:])
    tail = patched(data, 48 + 4, "<I", len(data) - len("liba.so") - 1)
    assert parse(tail) == MIXED[3:]


def test_bytes_after_the_tables_are_ignored() -> None:
    assert parse(new_format(MIXED) + b"\x74\x21\xa4\xea\xff\xff\xff\xff") == MIXED


def test_a_name_that_is_not_utf8_keeps_its_bytes() -> None:
    entry = LdCacheEntry(soname=os.fsdecode(b"lib\xff.so"), path="/", flags=ldcache.FLAGS_I386, hwcap=0)
    assert parse(new_format((entry,))) == (entry,)


def test_a_name_may_have_4096_bytes() -> None:
    entry = LdCacheEntry(soname="n" * 4096, path="/", flags=ldcache.FLAGS_I386, hwcap=0)
    assert parse(new_format((entry,))) == (entry,)


def test_the_header_has_the_offsets_of_the_tables_of_a_combined_cache() -> None:
    data = combined(new_format(MIXED), old_entries=1)
    assert read_header(data) == (32, 80, 176, len(data))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a loader cache: it starts with nothing"),
        (b"ld.so-1.7.0", "not a loader cache"),
        (b"\x7fELF", "not a loader cache: it starts with 7f454c46"),
        (MAGIC, "the header at byte 0 is cut off"),
        (combined(b"", old_entries=1), "only the old format"),
        (combined(b"", old_entries=2**20), "only the old format"),
        (patched(combined(new_format(MIXED), old_entries=2), 12, "<I", 2**32 - 1), "only the old format"),
        (bytes((16 << 20) + 1), "16777217 bytes exceed the limit of 16777216"),
        (patched(new_format(MIXED), 20, "<I", 200_001), "200001 entries exceed the limit of 200000"),
        (patched(new_format(MIXED), 20, "<I", 5000), "the tables end at byte"),
        (patched(new_format(MIXED), 24, "<I", 2**32 - 1), "the tables end at byte"),
        (new_format(MIXED, byte_order=1), "byte order flag 1"),
        (new_format(MIXED, byte_order=3), "byte order flag 3"),
        (new_format(MIXED)[:-1] + b"x", "do not end in NUL"),
        (patched(new_format(MIXED), 52, "<I", 2**32 - 1), "is outside the strings"),
        (patched(new_format(MIXED), 52, "<I", 48), "is outside the strings"),
        (patched(new_format(MIXED), 56, "<I", len(new_format(MIXED))), "is outside the strings"),
        (
            new_format((LdCacheEntry(soname="n" * 4097, path="/", flags=3, hwcap=0),)),
            "longer than 4096 bytes",
        ),
    ],
)
def test_an_invalid_cache_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(CacheError, match=message):
        parse(data)


def test_a_bad_offset_is_refused_for_every_requested_abi() -> None:
    with pytest.raises(CacheError, match="is outside the strings"):
        parse(patched(new_format(MIXED), 52, "<I", 48), flags=ldcache.FLAGS_AARCH64)


def test_entries_that_share_one_long_name_cannot_fill_the_memory() -> None:
    count = 10_000
    at = 48 + 24 * count
    table = struct.pack("<iIIIQ", 3, at, at, 0, 0) * count
    header = MAGIC + struct.pack("<IIB19x", count, 4097, 2)
    with pytest.raises(CacheError, match="in total"):
        parse(header + table + b"n" * 4096 + b"\0")


@pytest.mark.parametrize("data", [new_format(MIXED), combined(new_format(MIXED), old_entries=3)])
def test_a_cache_cut_off_at_any_byte_is_refused(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(CacheError):
            parse(data[:length])


@FUZZ
@given(st.binary(max_size=200), st.sampled_from([b"", MAGIC, b"ld.so-1.7.0\0"]))
def test_random_bytes_raise_only_cache_error(tail: bytes, magic: bytes) -> None:
    assert "\n" not in refusal(magic + tail)


@FUZZ
@given(
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=12),
    st.sampled_from([new_format(MIXED), combined(new_format(MIXED), old_entries=3)]),
)
def test_a_changed_cache_raises_only_cache_error(changes: list[tuple[int, int]], original: bytes) -> None:
    data = bytearray(original)
    for position, value in changes:
        data[position % len(data)] = value
    assert "\n" not in refusal(bytes(data))
