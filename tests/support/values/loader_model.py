"""A model of glibc's library look-up, and ld.so.cache files, to check merged caches."""

from __future__ import annotations

import os
import struct
from functools import cmp_to_key

from cdigen.binfmt.ldcache import FLAGS_I386, FLAGS_X86_64, LdCacheEntry, parse

MAGIC = b"glibc-ld.so.cache1.1"
HWCAP = 1 << 62  # DL_CACHE_HWCAP_EXTENSION, of the first glibc-hwcaps folder
FOLDER = "/usr/local/nvidia/lib64"
DRIVER = (
    "libcuda.so.1",
    "libcuda.so",
    "libnvidia-ml.so.1",
    "libnvidia-ml.so.550.163.01",
    "libEGL_nvidia.so.0",
)
LIBRARIES = tuple((name, f"{FOLDER}/{name}", FLAGS_X86_64) for name in DRIVER)


def compare(one: bytes, other: bytes, *, signed: bool = True) -> int:
    """Compare two names as glibc 2.36 does (elf/dl-cache.c, _dl_cache_libcmp)."""
    digits = b"0123456789"
    left, right = one + b"\0", other + b"\0"
    at = to = 0
    while left[at]:
        if left[at] in digits and right[to] in digits:
            begin, start = at, to
            while left[at] in digits:
                at += 1
            while right[to] in digits:
                to += 1
            difference = as_int(int(left[begin:at])) - as_int(int(right[start:to]))
            if difference:
                return difference
        elif left[at] in digits:
            return 1
        elif right[to] in digits:
            return -1
        elif left[at] != right[to]:
            break
        else:
            at, to = at + 1, to + 1
    return as_char(left[at], signed=signed) - as_char(right[to], signed=signed)


def as_int(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def as_char(byte: int, *, signed: bool) -> int:
    return byte - 256 if signed and byte >= 128 else byte


def find_library(data: bytes, name: str, flags: int, *, signed: bool = True) -> str | None:
    """Return the path that a loader of the ABI FLAGS chooses (elf/dl-cache.c, search_cache)."""
    entries = parse(data)

    def difference(index: int) -> int:
        return compare(os.fsencode(name), os.fsencode(entries[index].soname), signed=signed)

    left, right = 0, len(entries) - 1
    while left <= right:
        middle = (left + right) // 2
        result = difference(middle)
        if result == 0:
            while middle > 0 and difference(middle - 1) == 0:
                middle -= 1
            end = middle
            while end <= right and difference(end) == 0:
                end += 1
            return choose(entries[middle:end], flags)
        if result < 0:
            left = middle + 1
        else:
            right = middle - 1
    return None


def choose(equal: tuple[LdCacheEntry, ...], flags: int) -> str | None:
    """Return the path that the loader chooses from the entries of a name; all glibc-hwcaps are usable."""
    best = None
    for one in equal:
        named = one.hwcap & HWCAP
        if one.flags not in ({1, 3} if flags == FLAGS_I386 else {flags}):
            continue
        if not named and best is not None:
            break
        if best is None and (named or one.hwcap == 0):
            best = one.path
            if not named and one.flags == flags:
                break
    return best


def cache(
    entries: tuple[LdCacheEntry, ...],
    *,
    hwcaps: tuple[str, ...] = (),
    generator: bytes = b"",
    byte_order: int = 2,
) -> bytes:
    """Return a cache in the format of ldconfig 2.33 and later; names and paths share no bytes."""
    texts = [text for entry in entries for text in (entry.soname, entry.path)] + [*hwcaps]
    strings = [os.fsencode(text) + b"\0" for text in texts]
    begin = 48 + 24 * len(entries)
    offsets = [begin + sum(map(len, strings[:index])) for index in range(len(strings))]
    table = b"".join(
        struct.pack("<iIIIQ", entry.flags, offsets[2 * index], offsets[2 * index + 1], 0, entry.hwcap)
        for index, entry in enumerate(entries)
    )
    body = table + b"".join(strings)
    at, extension = 0, b""
    if hwcaps or generator:
        body += bytes(-len(body) % 4)
        at = 48 + len(body)
        array = struct.pack(f"<{len(hwcaps)}I", *offsets[2 * len(entries) :])
        extension = struct.pack("<II", 0xEAA42174, 2)
        extension += struct.pack("<IIII", 0, 0, at + 40 + len(array), len(generator))
        extension += struct.pack("<IIII", 1, 0, at + 40, len(array)) + array + generator
    header = struct.pack("<20sIIB3xI12x", MAGIC, len(entries), sum(map(len, strings)), byte_order, at)
    return header + body + extension


def entry(soname: str, path: str = "", *, flags: int = FLAGS_X86_64, hwcap: int = 0) -> LdCacheEntry:
    return LdCacheEntry(soname=soname, path=path or f"/usr/lib/{soname}", flags=flags, hwcap=hwcap)


def ordered(entries: list[LdCacheEntry], *, signed: bool = True) -> tuple[LdCacheEntry, ...]:
    """Sort ENTRIES as ldconfig does (elf/cache.c, compare)."""

    def difference(one: LdCacheEntry, other: LdCacheEntry) -> int:
        names = compare(os.fsencode(other.soname), os.fsencode(one.soname), signed=signed)
        return names or other.flags - one.flags or bool(other.hwcap) - bool(one.hwcap)

    return tuple(sorted(entries, key=cmp_to_key(difference)))


def combined(new: bytes, *, old_entries: int) -> bytes:
    """Return NEW after a table of the old format, as ``ldconfig -c compat`` writes it."""
    table = b"ld.so-1.7.0\0" + struct.pack("<I", old_entries) + bytes(12 * old_entries)
    return table + bytes(-len(table) % 8) + new


def patched(data: bytes, offset: int, format_: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(format_, changed, offset, value)
    return bytes(changed)


def extension_at(data: bytes) -> int:
    at: int = struct.unpack_from("<I", data, 32)[0]
    return at


def hwcaps_names(data: bytes) -> list[bytes]:
    """Return the names of the glibc-hwcaps folders of a cache, as the loader finds them."""
    at = extension_at(data)
    sections = range(at + 8, at + 8 + 16 * struct.unpack_from("<I", data, at + 4)[0], 16) if at else ()
    for tag, _, offset, size in (struct.unpack_from("<IIII", data, section) for section in sections):
        if tag == 1:
            return [
                data[begin : data.index(0, begin)]
                for begin in struct.unpack_from(f"<{size // 4}I", data, offset)
            ]
    return []


def places(data: bytes) -> list[tuple[str, str, int]]:
    return [(one.soname, one.path, one.flags) for one in parse(data)]


def others(data: bytes, libraries: tuple[tuple[str, str, int], ...] = LIBRARIES) -> list[LdCacheEntry]:
    """Return the entries of DATA that are not in LIBRARIES, in their order."""
    added = {(name, path) for name, path, _ in libraries}
    return [one for one in parse(data) if (one.soname, one.path) not in added]


EXTENDED = cache((entry("liba.so"),), hwcaps=("v2", "v3"), generator=b"ldconfig 2.36")
PLAIN = cache(ordered([entry("libb.so"), entry("liba.so"), entry("libcuda.so.1")]))
