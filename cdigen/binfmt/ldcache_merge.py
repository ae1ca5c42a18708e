"""Add the driver's libraries to a loader cache: ``merge`` returns the new file.

The image's entries stay as they are and in their order; ours are put where ldconfig would put those of
the first directory of ld.so.conf. Nothing is sorted anew, and only the names that a binary search meets
are looked at, for this runs at every start of a container: bytes and lists, no class, no import but
``struct``. The cache is the image's, so whatever is in it may be a trap.
Source of the order: glibc, ``_dl_cache_libcmp`` and ``search_cache`` (elf/dl-cache.c), ``compare``
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
    _Place = tuple[int, int]  # offsets of name and path within the strings; of a section, offset and size

# Bounds of ours: real caches have up to 4 hwcaps names and a generator text of 80 bytes.
MAX_HWCAPS = 1024
MAX_GENERATOR = 4096
MAX_SECTIONS = 64

_HEADER = struct.Struct("<20sIIB3xI12x")  # magic, entries, size of strings, byte order, extensions
_ENTRY = struct.Struct("<iIIIQ")  # flags, offset of SONAME, offset of path, osversion (unused), hwcap
_MAGIC = b"glibc-ld.so.cache1.1"
_LITTLE_ENDIAN = 2

# The extension directory (2.33 and later): dl-cache.h, struct cache_extension.
_EXTENSIONS = struct.Struct("<II")  # magic, number of sections
_SECTION = struct.Struct("<IIII")  # tag, flags (0), offset from the start of the file, size
_EXTENSIONS_MAGIC = 0xEAA42174
_GENERATOR = 0  # the text that ldconfig -p prints
_HWCAPS = 1  # offsets of the names of the glibc-hwcaps folders

# What a byte of a name is worth: a digit more than any other, and then its run as a number; NUL, the end,
# is a byte like others. ``char`` has a sign on x86, so that bytes from 0x80 come before the end there.
_DIGIT = b"\xff"
_UNSIGNED = bytes(range(48)) + _DIGIT * 10 + bytes(range(48, 246))
_SIGNED = bytes(range(128, 176)) + _DIGIT * 10 + bytes(range(176, 246)) + bytes(range(128))
_DIGITS_ALONE = b" " * 48 + b"0123456789" + b" " * 198


def merge(data: bytes, libraries: Sequence[tuple[str, str, int]]) -> bytes:
    """Return the cache DATA in the new format, with LIBRARIES found before all others of their names.

    DATA is empty where there is no cache yet, and what the loader ignores counts as none. A library is
    name (as programs ask for it), absolute path and flags (``ldcache.ABIS``); where name and flags are
    equal, the first is preferred. Merging once more changes no byte: entries of a name and path of ours
    are replaced, and their strings used again.

    Of the extensions (2.33 and later), generator and glibc-hwcaps are kept, unless damaged: the loader
    crashes on a bad hwcaps offset. Others are left out, as their offsets would be wrong.

    CacheError: the loader uses this cache, but it is not in the new format, has an entry outside its
    strings, or is beyond the bounds here or in ``ldcache``, before or after; leave it alone.
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
    """Return the entries and strings with OURS among them; offsets in entries count from the header."""
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
    """Return the offsets of all names and of all paths, each within LOW and HIGH."""
    offsets = struct.unpack("<" + "4xII12x" * (len(table) // _ENTRY.size), table)
    if offsets and not low <= min(offsets) <= max(offsets) < high:
        found = f"{min(offsets)} to {max(offsets)}"
        raise CacheError(f"names are at {found}, but the strings at {low} to {high}")
    return offsets[::2], offsets[1::2]


def _find_ours(
    strings: bytes, base: int, names: Sequence[int], paths: Sequence[int], ours: list[_Library]
) -> tuple[list[int], dict[tuple[bytes, bytes], _Place]]:
    """Return the indices of entries that have a name and path of OURS, and where the strings of those are."""
    gone: list[int] = []
    places: dict[tuple[bytes, bytes], _Place] = {}
    folders = tuple({path[: path.rfind(b"/") + 1] for _, path, _ in ours})
    if not any(folder in strings for folder in folders):  # the usual case, and a hundredth of the time
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
    """Return TABLE and NAMES less the entries whose indices are in GONE, which is sorted."""
    entries: list[bytes] = []
    kept: list[int] = []
    begin = 0
    for at in (*gone, len(names)):
        entries.append(table[begin * _ENTRY.size : at * _ENTRY.size])
        kept += names[begin:at]
        begin = at + 1
    return b"".join(entries), tuple(kept)


def _add_strings(size: int, places: dict[tuple[bytes, bytes], _Place], ours: list[_Library]) -> bytes:
    """Return what must follow the SIZE bytes of strings, and enter it in PLACES.

    A name that ends its path is not written twice, as ldconfig has it since 2.33.
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
    """Return OURS in the order of the loader, each with the offset of the entry of TABLE behind it.

    That is the first of an equal or lesser name. Of an equal name with greater flags, and so of another
    ABI, entries stay before it, as ldconfig sorts them; the loader's walk skips them. It ends at the
    first ordinary entry of its ABI, so that ours hides those for some CPUs, too, which ldconfig has first.
    """
    known: dict[int, bytes] = {}
    signed = any(flags in (FLAGS_X86_64, FLAGS_I386) for _, _, flags in ours)
    worth = _SIGNED if signed else _UNSIGNED

    def rank_at(index: int) -> bytes:
        offset = names[index]
        rank = known.get(offset)
        if rank is None:
            rank = known[offset] = _rank(_text(strings, offset - base), worth)
        return rank

    ranked = [(_rank(library[0] + b"\0", worth), library[2], library) for library in ours]
    ranked.sort(key=lambda one: one[:2], reverse=True)
    positions: list[tuple[int, _Library]] = []
    low = 0  # never back: what is sorted is found all the same, and what is not ends
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


def _rank(name: bytes, worth: bytes) -> bytes:
    """Return bytes that sort as the loader sorts NAME, which ends in NUL: _dl_cache_libcmp.

    Runs of digits are numbers of 32 bits that wrap around; only where their difference does so, too,
    which C leaves undefined, the order is another.
    """
    ranked = name.translate(worth)
    if _DIGIT not in ranked:
        return ranked
    pieces: list[bytes] = []
    begin = 0
    for run in name.translate(_DIGITS_ALONE).split():
        at = name.index(run, begin)
        number = (int(run) + 0x80000000) & 0xFFFFFFFF  # from the least, -2**31, upwards
        pieces += (ranked[begin : at + 1], number.to_bytes(4, "big"))
        begin = at + len(run)
    return b"".join((*pieces, ranked[begin:]))


def _shifted(table: bytes, distance: int) -> bytes:
    """Return TABLE with the offsets of all names and paths greater by DISTANCE.

    It is the sum of two long numbers, and no field carries over, as all offsets are valid before and after.
    """
    if distance == 0:
        return table
    ones = int.from_bytes(_ENTRY.pack(0, 1, 1, 0, 0) * (len(table) // _ENTRY.size), "little")
    return (int.from_bytes(table, "little") + distance * ones).to_bytes(len(table), "little")


def _extensions(data: bytes, start: int, low: int, high: int) -> tuple[bytes, tuple[int, ...]]:
    """Return the generator text and where in the strings, LOW to HIGH, the hwcaps names are.

    Nothing is returned of a directory that the loader would reject (cache_extension_load), and of each
    section nothing if it is damaged or beyond our bounds.
    """
    places = _sections(data, _HEADER.unpack_from(data, start)[-1])
    at, size = places.get(_GENERATOR, (0, 0))
    generator = data[at : at + size] if size <= MAX_GENERATOR else b""
    at, size = places.get(_HWCAPS, (0, 0))
    # In a combined file ldconfig counts them from the header, the loader from the start of the file, so
    # that none works; left out, none works either.
    if start or at % 4 or size % 4 or size > 4 * MAX_HWCAPS:
        return generator, ()
    hwcaps = struct.unpack_from(f"<{size // 4}I", data, at)
    if hwcaps and not low <= min(hwcaps) <= max(hwcaps) < high:
        return generator, ()
    return generator, tuple([offset - low for offset in hwcaps])


def _sections(data: bytes, offset: int) -> dict[int, _Place]:
    """Return offset and size of each section, by its tag; none if any of them is damaged."""
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
        places[tag] = at, size  # the last of a tag counts
    return places


def _file(table: bytes, strings: bytes, generator: bytes, hwcaps: tuple[int, ...]) -> bytes:
    """Return the whole file, laid out as ldconfig does; HWCAPS count from the strings."""
    count = len(table) // _ENTRY.size
    base = _HEADER.size + len(table)
    padding = bytes(-len(strings) % 4)
    at = base + len(strings) + len(padding)
    extensions = _extension_bytes(at, generator, tuple([base + offset for offset in hwcaps]))
    header = _HEADER.pack(_MAGIC, count, len(strings), _LITTLE_ENDIAN, at if extensions else 0)
    data = b"".join((header, table, strings, padding if extensions else b"", extensions))
    if count > MAX_ENTRIES or len(data) > MAX_SIZE:
        raise CacheError(f"{count} entries and {len(data)} bytes are more than {MAX_ENTRIES} and {MAX_SIZE}")
    return data


def _extension_bytes(at: int, generator: bytes, hwcaps: tuple[int, ...]) -> bytes:
    """Return the directory that begins at AT with its sections: hwcaps, which are aligned, come first."""
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
    """Return the string at BEGIN with its NUL."""
    end = strings.find(0, begin, begin + MAX_NAME + 1)
    if end < 0:
        raise CacheError(f"the name at byte {begin} of the strings is longer than {MAX_NAME} bytes")
    return strings[begin : end + 1]
