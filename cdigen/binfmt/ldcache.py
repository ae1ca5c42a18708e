"""Functions that read the dynamic loader's cache ``/etc/ld.so.cache``, which maps SONAMEs to paths.

``parse`` returns the entries. ``read_header`` returns the offsets of the tables. The module reads files in
the new format, and combined files, in which an old table precedes the new format. It refuses files with only
the old format. Source of the layout: glibc, sysdeps/generic/dl-cache.h and elf/cache.c (2.31 to 2.43). The
loader checks only the headers. This module also checks the tables, because the cache can belong to a
container image.
"""

from __future__ import annotations

import struct

from cdigen.value import frozen

# The flags of an entry. The low byte is 3 (ELF for libc6), and the high byte is the ABI (0 for i386). Source:
# glibc, sysdeps/generic/ldconfig.h, FLAG_ELF_LIBC6 | FLAG_X8664_LIB64, FLAG_AARCH64_LIB64.
FLAGS_X86_64 = 0x0303
FLAGS_AARCH64 = 0x0A03
FLAGS_I386 = 0x0003

# The flags for each machine name (uname -m). i386 is the name for all 32-bit x86 machines.
ABIS = {"x86_64": FLAGS_X86_64, "aarch64": FLAGS_AARCH64, "i386": FLAGS_I386}

# Limits of cdigen. The cache of a host with 5,000 libraries has 410 KB, 5,200 entries, and 400 KB of names in
# total. MAX_NAME is the limit of a path (PATH_MAX). MAX_TEXT limits the characters of all names together.
# Without MAX_TEXT, a file of 16 MiB could have gigabytes of names, because several names can use the same
# bytes of the file.
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
    """The error for bytes that are not a valid cache. The text is the reason in one line."""


@frozen
class LdCacheEntry:
    """A library that the loader finds by its SONAME.

    ``flags`` is the ABI, such as ``FLAGS_X86_64``. ``hwcap`` is not 0 if the library is only for some CPUs.
    In names, bytes that are not UTF-8 are surrogate escapes, as in ``os.fsdecode``.
    """

    soname: str
    path: str
    flags: int
    hwcap: int


def is_ignored(data: bytes) -> bool:
    """Return whether the loader ignores the cache DATA.

    The loader ignores a file that is too short, or that has another magic number or byte order. It also
    ignores a file whose first table is longer than the file. Source: glibc, elf/dl-cache.c, 2.31 to 2.43.
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
    """Return the offsets of the tables in the cache DATA, in bytes.

    The result contains the offsets of the new header, the entries, the strings, and the end of the strings.
    All offsets are within DATA. The offset of the new header is 0 if no old table precedes the header. In the
    entries, the offsets of names start at the new header.

    Raise CacheError if the loader ignores the file (magic number, byte order, tables longer than the file).
    Also raise CacheError if the file has only the old format, if the strings have no final NUL, or if a size
    is above this module's limits.
    """
    if len(data) > MAX_SIZE:
        raise CacheError(f"{len(data)} bytes exceed the limit of {MAX_SIZE}")
    start = _new_format_start(data)
    if len(data) < start + _HEADER.size:
        raise CacheError(f"the header at byte {start} is cut off after {len(data) - start} bytes")
    count, length, flags = _HEADER.unpack_from(data, start)
    if _is_foreign(flags):
        raise CacheError(f"byte order flag {flags} is not little endian ({_LITTLE_ENDIAN})")
    if count > MAX_ENTRIES:
        raise CacheError(f"{count} entries exceed the limit of {MAX_ENTRIES}")
    entries = start + _HEADER.size
    strings = entries + count * _ENTRY.size
    end = strings + length
    if end > len(data):
        raise CacheError(f"the tables end at byte {end}, after the end of the file ({len(data)})")
    if length and data[end - 1]:
        raise CacheError(f"the strings before byte {end} do not end in NUL")
    return start, entries, strings, end


def parse(data: bytes, *, flags: int | None = None) -> tuple[LdCacheEntry, ...]:
    """Return the entries of the cache DATA in the order of DATA.

    If FLAGS is not None, the result has only the entries with these flags (the ABI). If several entries have
    the same SONAME, the loader uses the first entry that is suitable for the CPU. Raise CacheError in the
    cases of ``read_header``. Also raise CacheError if any entry has a name outside the strings, or if the
    names of the returned entries are above this module's limits.
    """
    start, table, strings, end = read_header(data)
    low, high = strings - start, end - start
    entries: list[LdCacheEntry] = []
    text_left = MAX_TEXT
    for kind, key, value, _, hwcap in _ENTRY.iter_unpack(data[table:strings]):
        if not (low <= key < high and low <= value < high):
            raise CacheError(f"the name at {key} or {value} is outside the strings ({low} to {high})")
        if flags is None or kind == flags:
            soname, path = _text(data, start + key), _text(data, start + value)
            text_left -= len(soname) + len(path)
            if text_left < 0:
                raise CacheError(f"the names have more than {MAX_TEXT} characters in total")
            entries.append(LdCacheEntry(soname=soname, path=path, flags=kind, hwcap=hwcap))
    return tuple(entries)


def _new_format_start(data: bytes) -> int:
    """Return the offset of the new header.

    The offset is 0, or the end of the old table, rounded up to a multiple of 8 (ALIGN_CACHE).
    """
    if data.startswith(_MAGIC):
        return 0
    if not data.startswith(_OLD_MAGIC) or len(data) < _OLD_HEADER.size:
        raise CacheError(f"not a loader cache: it starts with {data[:8].hex() or 'nothing'}")
    (count,) = _OLD_HEADER.unpack_from(data)
    start = _after_old_table(count)
    if not data.startswith(_MAGIC, start):
        raise CacheError(
            "only the old format (ld.so-1.7.0) is present, not the format of glibc 2.2 and later"
        )
    return start


def _after_old_table(count: int) -> int:
    return (_OLD_HEADER.size + count * _OLD_ENTRY_SIZE + 7) // 8 * 8


def _is_foreign(flags: int) -> bool:
    """Return whether the byte order in FLAGS is known and is not little endian.

    glibc before 2.33 writes 0, which means that the byte order is unknown.
    """
    return flags != 0 and flags & _BYTE_ORDER_MASK != _LITTLE_ENDIAN  # cache_file_new_matches_endian


def _text(data: bytes, begin: int) -> str:
    end = data.find(0, begin, begin + MAX_NAME + 1)
    if end < 0:
        raise CacheError(f"the name at byte {begin} is longer than {MAX_NAME} bytes")
    return data[begin:end].decode("utf-8", "surrogateescape")
