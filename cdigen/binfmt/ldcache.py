"""Read the dynamic loader's cache, ``/etc/ld.so.cache``: which path it gives for a SONAME.

``parse`` is the central name; ``read_header`` is for whoever needs the tables themselves. The new
format is read, alone or behind an old table in a combined file; the old format alone is refused.
Source of the layout: glibc, sysdeps/generic/dl-cache.h and elf/cache.c (2.31 to 2.43). The loader
trusts the file; this module does not, as the cache may be a container image's.
"""

from __future__ import annotations

import struct

from cdigen.value import frozen

# Flags of an entry: ELF for libc6 (3) and the ABI in the high byte: glibc, sysdeps/generic/ldconfig.h,
# FLAG_ELF_LIBC6 | FLAG_X8664_LIB64, FLAG_AARCH64_LIB64, and nothing more for i386.
FLAGS_X86_64 = 0x0303
FLAGS_AARCH64 = 0x0A03
FLAGS_I386 = 0x0003

# The same by the name of the machine (uname -m), i386 for any 32-bit x86.
ABIS = {"x86_64": FLAGS_X86_64, "aarch64": FLAGS_AARCH64, "i386": FLAGS_I386}

# Bounds of ours. The cache of a host with 5,000 libraries has 410 KB, 5,200 entries, and together
# 400 KB of names, each at the utmost a path (PATH_MAX, 4,096). Names may share bytes of the file, so
# the text of all (in characters) has a bound of its own: without it 16 MiB could become gigabytes.
MAX_SIZE = 16 << 20
MAX_ENTRIES = 200_000
MAX_NAME = 4096
MAX_TEXT = 32 << 20

_OLD_MAGIC = b"ld.so-1.7.0"
_OLD_HEADER = struct.Struct("<12xI")  # magic, one byte of padding, number of entries
_OLD_ENTRY_SIZE = 12
_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20xIIB19x")  # magic, number of entries, size of strings, byte order; 48 bytes
_ENTRY = struct.Struct("<iIIIQ")  # flags, offset of SONAME, offset of path, osversion (unused), hwcap
_BYTE_ORDER_MASK = 3
_LITTLE_ENDIAN = 2


class CacheError(ValueError):
    """Report in one line why the bytes are not a cache that can be relied on."""


@frozen
class LdCacheEntry:
    """A library that the loader finds by SONAME; ``hwcap`` is 0 unless it is for some CPUs only.

    ``flags`` tells the ABI (``FLAGS_X86_64`` and so on). Bytes of names that are not UTF-8 are
    surrogate escapes, as in ``os.fsdecode``.
    """

    soname: str
    path: str
    flags: int
    hwcap: int


def is_ignored(data: bytes) -> bool:
    """Tell whether the loader does with the cache DATA as though there were none.

    So it does with a file that is too short or starts otherwise, whose first table is longer than the
    file, or whose byte order is another: glibc, elf/dl-cache.c, 2.31 to 2.43.
    """
    if data.startswith(_MAGIC) and len(data) > _HEADER.size:
        count, _, flags = _HEADER.unpack_from(data)
        return count > (len(data) - _HEADER.size) // _ENTRY.size or _is_foreign(flags)
    if data.startswith(_OLD_MAGIC) and len(data) > _OLD_HEADER.size:
        (count,) = _OLD_HEADER.unpack_from(data)
        if count > (len(data) - _OLD_HEADER.size) // _OLD_ENTRY_SIZE:
            return True
        start = _after_old_table(count)
        if data.startswith(_MAGIC, start) and len(data) >= start + _HEADER.size:
            return _is_foreign(_HEADER.unpack_from(data, start)[2])
        return False
    return True


def read_header(data: bytes) -> tuple[int, int, int, int]:
    """Return where the tables of the cache DATA are: offsets in bytes, all of them within it.

    The offsets are those of the new header (0 unless an old table precedes it; names count from
    there), of the entries, of the strings, and of the end of the strings.

    CacheError is raised for what the loader ignores (magic, byte order, tables longer than the file),
    for the old format alone, for strings without a final NUL and for sizes beyond this module's bounds.
    """
    if len(data) > MAX_SIZE:
        raise CacheError(f"{len(data)} bytes are more than {MAX_SIZE}")
    start = _new_format_start(data)
    if len(data) < start + _HEADER.size:
        raise CacheError(f"the header at byte {start} is cut off after {len(data) - start} bytes")
    count, length, flags = _HEADER.unpack_from(data, start)
    if _is_foreign(flags):
        raise CacheError(f"byte order flag {flags} is not little endian ({_LITTLE_ENDIAN})")
    if count > MAX_ENTRIES:
        raise CacheError(f"{count} entries are more than {MAX_ENTRIES}")
    entries = start + _HEADER.size
    strings = entries + count * _ENTRY.size
    end = strings + length
    if end > len(data):
        raise CacheError(f"the tables end at byte {end}, the file at {len(data)}")
    if length and data[end - 1]:
        raise CacheError(f"the strings before byte {end} do not end in NUL")
    return start, entries, strings, end


def parse(data: bytes, *, flags: int | None = None) -> tuple[LdCacheEntry, ...]:
    """Return the entries of the cache DATA in its order, with FLAGS only those of that ABI.

    Of equal SONAMEs the loader takes the first that suits the CPU. CacheError is raised as by
    ``read_header``, for a name outside the strings in any entry, and for text beyond this module's
    bounds in the entries returned.
    """
    start, table, strings, end = read_header(data)
    low, high = strings - start, end - start
    entries: list[LdCacheEntry] = []
    room = MAX_TEXT
    for kind, key, value, _, hwcap in _ENTRY.iter_unpack(data[table:strings]):
        if not (low <= key < high and low <= value < high):
            raise CacheError(f"names at {key} and {value} are not both in the strings, {low} to {high}")
        if flags is None or kind == flags:
            soname, path = _text(data, start + key), _text(data, start + value)
            room -= len(soname) + len(path)
            if room < 0:
                raise CacheError(f"the names have together more than {MAX_TEXT} characters")
            entries.append(LdCacheEntry(soname=soname, path=path, flags=kind, hwcap=hwcap))
    return tuple(entries)


def _new_format_start(data: bytes) -> int:
    """Return the offset of the new header: 0, or behind the old table, 8-aligned (ALIGN_CACHE)."""
    if data.startswith(_MAGIC):
        return 0
    if not data.startswith(_OLD_MAGIC) or len(data) < _OLD_HEADER.size:
        raise CacheError(f"not a loader cache: it starts with {data[:8].hex() or 'nothing'}")
    (count,) = _OLD_HEADER.unpack_from(data)
    start = _after_old_table(count)
    if not data.startswith(_MAGIC, start):
        raise CacheError("only the old format (ld.so-1.7.0) is there, not the one in use since glibc 2.2")
    return start


def _after_old_table(count: int) -> int:
    return (_OLD_HEADER.size + count * _OLD_ENTRY_SIZE + 7) // 8 * 8


def _is_foreign(flags: int) -> bool:
    """Tell whether the byte order is said to be another: 0, before 2.33, says nothing of it."""
    return flags != 0 and flags & _BYTE_ORDER_MASK != _LITTLE_ENDIAN  # cache_file_new_matches_endian


def _text(data: bytes, begin: int) -> str:
    end = data.find(0, begin, begin + MAX_NAME + 1)
    if end < 0:
        raise CacheError(f"the name at byte {begin} is longer than {MAX_NAME} bytes")
    return data[begin:end].decode("utf-8", "surrogateescape")
