"""``merge``: adds the driver's libraries to a loader cache, and returns the new file.

The image's entries and their order do not change. The driver's entries are inserted at the positions where
ldconfig would insert the entries of the first directory in ld.so.conf. The function runs at every start of a
container, so it must be fast. It does not sort the image's entries, and reads only the names that a binary
search needs. It uses bytes and lists, and no class. The module imports only ``struct`` and ``ldcache``. The
cache belongs to the image, so the content can be hostile.

Sources of the order: glibc, ``_dl_cache_libcmp`` and ``search_cache`` (elf/dl-cache.c), ``compare``
(elf/cache.c).
"""

from __future__ import annotations

import struct

from cdigen.binfmt.ldcache import (
    FLAGS_I386,
    FLAGS_X86_64,
    MAX_ENTRIES,
    MAX_NAME,
    MAX_SIZE,
    CacheError,
    is_ignored,
    read_header,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    _Library = tuple[bytes, bytes, int]  # name, path, flags
    # The offsets of a name and a path in the strings, or the offset and the size of a section.
    _Place = tuple[int, int]

# Limits of cdigen. Real caches have up to 4 hwcaps names, and a generator text of 80 bytes.
MAX_HWCAPS = 1024
MAX_GENERATOR = 4096
MAX_SECTIONS = 64

_HEADER = struct.Struct("<20sIIB3xI12x")  # magic, entries, size of strings, byte order, extensions
_ENTRY = struct.Struct("<iIIIQ")  # flags, offset of SONAME, offset of path, osversion (unused), hwcap
_MAGIC = b"glibc-ld.so.cache1.1"
_LITTLE_ENDIAN = 2

# The extension directory of glibc 2.33 and later (dl-cache.h, struct cache_extension).
_EXTENSIONS = struct.Struct("<II")  # magic, number of sections
_SECTION = struct.Struct("<IIII")  # tag, flags (0), offset from the start of the file, size
_EXTENSIONS_MAGIC = 0xEAA42174
_GENERATOR = 0  # the text that ldconfig -p prints
_HWCAPS = 1  # the offsets of the names of the glibc-hwcaps folders

# The tables map each byte of a name to its weight in the order of names. A digit has the highest weight.
# Consecutive digits are compared as a number. NUL, the end of a name, is an ordinary byte. On x86, ``char``
# is signed, so bytes from 0x80 have a lower weight than NUL.
_DIGIT = b"\xff"
_UNSIGNED = bytes(range(48)) + _DIGIT * 10 + bytes(range(48, 246))
_SIGNED = bytes(range(128, 176)) + _DIGIT * 10 + bytes(range(176, 246)) + bytes(range(128))
_DIGITS_ALONE = b" " * 48 + b"0123456789" + b" " * 198


def merge(data: bytes, libraries: Sequence[tuple[str, str, int]]) -> bytes:
    """Return the cache DATA with LIBRARIES, in the new format.

    The loader finds a library of LIBRARIES before a library of the image with the same name. Each library has
    a name (by which programs request it), an absolute path and flags (``ldcache.ABIS``). If libraries have
    equal names and flags, the first library has priority. DATA is empty if there is no cache. A cache that
    the loader ignores is handled as an empty cache. A second merge changes no byte, because entries with a
    name and path in LIBRARIES are replaced and their strings are used again.

    If the extensions ``generator`` and ``glibc-hwcaps`` of DATA (glibc 2.33 and later) are valid, the result
    contains them. The loader crashes on an invalid hwcaps offset. Other extensions are omitted, because their
    offsets would be wrong.

    Raise CacheError if the loader uses the cache DATA, but ``merge`` cannot use DATA: it is not in the new
    format, has an entry outside its strings, or is above a limit here or in ``ldcache``. Also raise
    CacheError if the result is above a limit. The caller must not change the cache after a CacheError.
    """
    ours = [
        (name.encode("utf-8", "surrogateescape"), path.encode("utf-8", "surrogateescape"), flags)
        for name, path, flags in dict.fromkeys(libraries)
    ]
    if is_ignored(data):
        return _file(*_merged(b"", b"", ours), b"", ())
    start, entries, strings, end = read_header(data)
    generator, hwcaps = _extensions(data, start, strings, end)
    return _file(*_merged(data[entries:strings], data[strings:end], ours), generator, hwcaps)


def _merged(table: bytes, strings: bytes, ours: list[_Library]) -> tuple[bytes, bytes]:
    """Return the table and the strings, both with OURS added. The offsets in entries start at the header."""
    base = _HEADER.size + len(table)
    names, paths = _offsets(table, base, base + len(strings))
    gone, places = _find_ours(strings, base, names, paths, ours)
    if gone:
        table, names = _without(table, names, gone)
    added = _add_strings(len(strings), places, ours)
    positions = _positions(table, strings, base, names, ours)
    new_base = _HEADER.size + len(table) + _ENTRY.size * len(ours)
    table = _shifted(table, new_base - base)
    pieces: list[bytes] = []
    begin = 0
    for at, (name, path, flags) in positions:
        key, value = places[name, path]
        pieces += (table[begin:at], _ENTRY.pack(flags, new_base + key, new_base + value, 0, 0))
        begin = at
    return b"".join((*pieces, table[begin:])), strings + added


def _offsets(table: bytes, low: int, high: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the offsets of all names and the offsets of all paths in TABLE.

    Raise CacheError if an offset is below LOW, or not below HIGH.
    """
    offsets = struct.unpack("<" + "4xII12x" * (len(table) // _ENTRY.size), table)
    if offsets and not low <= min(offsets) <= max(offsets) < high:
        found = f"{min(offsets)} to {max(offsets)}"
        raise CacheError(f"the names at {found} are not all in the strings ({low} to {high})")
    return offsets[::2], offsets[1::2]


def _find_ours(
    strings: bytes, base: int, names: Sequence[int], paths: Sequence[int], ours: list[_Library]
) -> tuple[list[int], dict[tuple[bytes, bytes], _Place]]:
    """Return the indices of entries with a name and path in OURS, and the offsets of their strings."""
    gone: list[int] = []
    places: dict[tuple[bytes, bytes], _Place] = {}
    folders = tuple({path[: path.rfind(b"/") + 1] for _, path, _ in ours})
    # This check takes 1 % of the time of a merge. Usually the strings contain none of the folders.
    if not any(folder in strings for folder in folders):
        return gone, places
    wanted = {(name, path) for name, path, _ in ours}
    for at, value in enumerate(paths):
        if strings.startswith(folders, value - base):
            place = names[at] - base, value - base
            pair = _text(strings, place[0])[:-1], _text(strings, place[1])[:-1]
            if pair in wanted:
                gone.append(at)
                places.setdefault(pair, place)
    return gone, places


def _without(table: bytes, names: tuple[int, ...], gone: list[int]) -> tuple[bytes, tuple[int, ...]]:
    """Return TABLE and NAMES without the entries at the indices in GONE, which must be sorted."""
    entries: list[bytes] = []
    kept: list[int] = []
    begin = 0
    for at in (*gone, len(names)):
        entries.append(table[begin * _ENTRY.size : at * _ENTRY.size])
        kept += names[begin:at]
        begin = at + 1
    return b"".join(entries), tuple(kept)


def _add_strings(size: int, places: dict[tuple[bytes, bytes], _Place], ours: list[_Library]) -> bytes:
    """Return the new strings for OURS, and add their offsets to PLACES.

    SIZE is the number of bytes of the existing strings. If a path ends with the name, the name is not written
    twice, as in ldconfig since 2.33.
    """
    added: list[bytes] = []
    for name, path, _ in ours:
        if (name, path) not in places:
            text = path if path.endswith(b"/" + name) else path + b"\0" + name
            places[name, path] = size + len(text) - len(name), size
            added.append(text + b"\0")
            size += len(text) + 1
    return b"".join(added)


def _positions(
    table: bytes, strings: bytes, base: int, names: Sequence[int], ours: list[_Library]
) -> list[tuple[int, _Library]]:
    """Return OURS in the order of the loader, as pairs of position and library.

    A position is an offset in TABLE. The library is inserted before the entry at this offset. This entry is
    the first entry with a lower name, or with an equal name and equal or lower flags. Entries with an equal
    name and higher flags belong to another ABI. They stay before the library, in the order of ldconfig, and
    the loader's search skips them. The search ends at the first entry of the loader's ABI that is for all
    CPUs. ldconfig writes the entries for specific CPUs before this entry, so a library of OURS also hides the
    entries for specific CPUs.
    """
    known: dict[int, bytes] = {}
    signed = any(flags in (FLAGS_X86_64, FLAGS_I386) for _, _, flags in ours)
    weights = _SIGNED if signed else _UNSIGNED

    def rank_at(index: int) -> bytes:
        offset = names[index]
        rank = known.get(offset)
        if rank is None:
            rank = known[offset] = _rank(_text(strings, offset - base), weights)
        return rank

    ranked = [(_rank(library[0] + b"\0", weights), library[2], library) for library in ours]
    ranked.sort(key=lambda entry: entry[:2], reverse=True)
    positions: list[tuple[int, _Library]] = []
    # ``low`` never decreases. This is correct for a sorted table. For any other table, the loop still ends.
    low = 0
    for rank, flags, library in ranked:
        high = len(names)
        while low < high:
            middle = (low + high) // 2
            if rank_at(middle) > rank:
                low = middle + 1
            else:
                high = middle
        while low < len(names) and rank_at(low) == rank and _flags(table, low) > flags:
            low += 1
        positions.append((low * _ENTRY.size, library))
    return positions


def _rank(name: bytes, weights: bytes) -> bytes:
    """Return a sort key for NAME, which ends in NUL. The keys sort as in the loader (_dl_cache_libcmp).

    Consecutive digits are a 32-bit number, which wraps around. The order differs from the loader's order only
    if the difference of two numbers also wraps around. The C standard does not define this case.
    """
    ranked = name.translate(weights)
    if _DIGIT not in ranked:
        return ranked
    pieces: list[bytes] = []
    begin = 0
    for run in name.translate(_DIGITS_ALONE).split():
        at = name.index(run, begin)
        number = (int(run) + 0x80000000) & 0xFFFFFFFF  # the lowest number, -2**31, becomes 0
        pieces += (ranked[begin : at + 1], number.to_bytes(4, "big"))
        begin = at + len(run)
    return b"".join((*pieces, ranked[begin:]))


def _shifted(table: bytes, distance: int) -> bytes:
    """Return TABLE with DISTANCE added to the offsets of all names and paths.

    The function adds two long integers, which contain all entries. No field overflows, because all offsets
    are valid before and after the addition.
    """
    if distance == 0:
        return table
    ones = int.from_bytes(_ENTRY.pack(0, 1, 1, 0, 0) * (len(table) // _ENTRY.size), "little")
    return (int.from_bytes(table, "little") + distance * ones).to_bytes(len(table), "little")


def _extensions(data: bytes, start: int, low: int, high: int) -> tuple[bytes, tuple[int, ...]]:
    """Return the generator text, and the offsets of the hwcaps names relative to LOW.

    The strings are from LOW to HIGH. Both results are empty if the loader rejects the extension directory
    (cache_extension_load). A result is empty if its section is damaged or above this module's limits.
    """
    places = _sections(data, _HEADER.unpack_from(data, start)[-1])
    at, size = places.get(_GENERATOR, (0, 0))
    generator = data[at : at + size] if size <= MAX_GENERATOR else b""
    at, size = places.get(_HWCAPS, (0, 0))
    # In a combined file, hwcaps do not work, and are omitted. ldconfig writes offsets from the header, but
    # the loader reads offsets from the start of the file.
    if start or at % 4 or size % 4 or size > 4 * MAX_HWCAPS:
        return generator, ()
    hwcaps = struct.unpack_from(f"<{size // 4}I", data, at)
    if hwcaps and not low <= min(hwcaps) <= max(hwcaps) < high:
        return generator, ()
    return generator, tuple([offset - low for offset in hwcaps])


def _sections(data: bytes, offset: int) -> dict[int, _Place]:
    """Return the offset and the size of each section by its tag.

    The result is empty if a section or the directory is damaged.
    """
    begin = offset + _EXTENSIONS.size
    if offset == 0 or offset % 4 or begin > len(data):
        return {}
    magic, count = _EXTENSIONS.unpack_from(data, offset)
    end = begin + count * _SECTION.size
    if magic != _EXTENSIONS_MAGIC or count > MAX_SECTIONS or end > len(data):
        return {}
    places: dict[int, _Place] = {}
    for tag, _, at, size in _SECTION.iter_unpack(data[begin:end]):
        if at + size > len(data):
            return {}
        places[tag] = at, size  # the last section of a repeated tag applies
    return places


def _file(table: bytes, strings: bytes, generator: bytes, hwcaps: tuple[int, ...]) -> bytes:
    """Return the whole file in the layout of ldconfig. HWCAPS are offsets from the start of the strings."""
    count = len(table) // _ENTRY.size
    base = _HEADER.size + len(table)
    padding = bytes(-len(strings) % 4)
    at = base + len(strings) + len(padding)
    extensions = _extension_bytes(at, generator, tuple([base + offset for offset in hwcaps]))
    header = _HEADER.pack(_MAGIC, count, len(strings), _LITTLE_ENDIAN, at if extensions else 0)
    data = b"".join((header, table, strings, padding if extensions else b"", extensions))
    if count > MAX_ENTRIES or len(data) > MAX_SIZE:
        raise CacheError(
            f"{count} entries or {len(data)} bytes exceed the limits {MAX_ENTRIES} and {MAX_SIZE}"
        )
    return data


def _extension_bytes(at: int, generator: bytes, hwcaps: tuple[int, ...]) -> bytes:
    """Return the extension directory at the file offset AT, and its sections.

    The hwcaps section is first, because it must be aligned.
    """
    array = struct.pack(f"<{len(hwcaps)}I", *hwcaps)
    count = bool(generator) + bool(array)
    if not count:
        return b""
    begin = at + _EXTENSIONS.size + count * _SECTION.size
    directory = _EXTENSIONS.pack(_EXTENSIONS_MAGIC, count)
    if generator:
        directory += _SECTION.pack(_GENERATOR, 0, begin + len(array), len(generator))
    if array:
        directory += _SECTION.pack(_HWCAPS, 0, begin, len(array))
    return directory + array + generator


def _flags(table: bytes, index: int) -> int:
    flags: int = _ENTRY.unpack_from(table, index * _ENTRY.size)[0]
    return flags


def _text(strings: bytes, begin: int) -> bytes:
    """Return the string at the offset BEGIN, including the final NUL."""
    end = strings.find(0, begin, begin + MAX_NAME + 1)
    if end < 0:
        raise CacheError(f"the name at byte {begin} of the strings is longer than {MAX_NAME} bytes")
    return strings[begin : end + 1]
