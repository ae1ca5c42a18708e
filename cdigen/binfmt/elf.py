"""Read an ELF shared object: word size, machine, SONAME, the libraries it needs.

``read_shared_object`` is the central name. It reads as the dynamic loader does, by program headers;
section headers may be stripped. The file is never read as a whole: drivers come as libraries of
100 MB, of which some hundred bytes matter.
Source of every layout and number without another: System V gABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    _Layout = tuple[int, struct.Struct, struct.Struct, struct.Struct]
    _Segment = tuple[int, int, int, int]  # p_type, p_offset, p_vaddr, p_filesz

# e_machine: System V gABI, chapter 4; AArch64 from ELF for the Arm 64-bit Architecture (IHI 0056).
EM_386 = 3
EM_X86_64 = 62
EM_AARCH64 = 183

# Bounds of ours. Real libraries have about 10 program headers, 40 dynamic entries and 30 needed
# names; a name is a file name or at the utmost a path (PATH_MAX, 4,096).
MAX_PROGRAM_HEADERS = 1024
MAX_DYNAMIC_SIZE = 1 << 20
MAX_NEEDED = 4096
MAX_NAME = 4096

_HEAD_SIZE = 4096  # one page: the file header, nearly always the program headers, often the names
_PIECE_SIZE = 256  # first read of a name; linkers put needed names side by side, so it holds several

_MAGIC = b"\x7fELF"
_LITTLE_ENDIAN = 1
_ET_DYN = 3
_PT_LOAD = 1
_PT_DYNAMIC = 2
_DT_NULL = 0
_DT_NEEDED = 1
_DT_STRTAB = 5
_DT_STRSZ = 10
_DT_SONAME = 14


class ElfError(ValueError):
    """Report in one line why the bytes are not a shared object that the loader could use."""


@frozen
class SharedObject:
    """A shared object's word size, ``e_machine``, DT_SONAME, and DT_NEEDED in the file's order.

    Names are the file's own: anything but NUL may be in them, a slash too. Bytes that are not UTF-8
    are surrogate escapes, as in ``os.fsdecode``.
    """

    bits: int
    machine: int
    soname: str | None
    needed: tuple[str, ...]


# By e_ident[EI_CLASS]: bits, and of the three structures what is asked for (``x`` skips the rest):
# e_type, e_machine, e_phoff, e_phentsize, e_phnum; p_type, p_offset, p_vaddr, p_filesz; d_tag, d_val.
# Tuples, here and below: they never leave this module.
_LAYOUTS = {
    1: (32, struct.Struct("<16xHH8xI10xHH"), struct.Struct("<III4xI12x"), struct.Struct("<II")),
    2: (64, struct.Struct("<16xHH12xQ14xHH"), struct.Struct("<I4xQQ8xQ16x"), struct.Struct("<QQ")),
}


class _Source:
    """The file: its start in memory, the rest behind ``read_at``."""

    __slots__ = ("head", "read_at", "size")

    def __init__(self, read_at: Callable[[int, int], bytes], size: int) -> None:
        self.read_at = read_at
        self.size = size
        self.head = read_at(0, min(size, _HEAD_SIZE))

    def take(self, offset: int, length: int, what: str) -> bytes:
        """Return exactly LENGTH bytes at OFFSET, or raise ElfError that names WHAT is cut off."""
        end = offset + length
        if end > self.size:
            raise ElfError(f"{what} ends at byte {end}, the file at {self.size}")
        if end <= len(self.head):
            return self.head[offset:end]
        data = self.read_at(offset, length)
        if len(data) != length:
            raise ElfError(f"{what} is cut off: {len(data)} of {length} bytes at {offset}")
        return data


def read_shared_object(read_at: Callable[[int, int], bytes], size: int) -> SharedObject:
    """Read what the shared object behind READ_AT says of itself.

    ``read_at(offset, length)`` returns the bytes there, fewer at the end of the file; ``size`` is the
    file's, in bytes. Two or three reads of together less than 7 KB are usual (1,009 of Debian 12's
    1,011 libraries take at most five), and no file is read for more than 18 MiB. ElfError is raised for
    anything but a complete little-endian ET_DYN file with a dynamic section, and for sizes beyond this
    module's bounds; what ``read_at`` itself raises passes through.
    """
    source = _Source(read_at, size)
    bits, header, program_header, entry = _layout(source.head)
    machine, segments = _segments(source, header, program_header)
    soname, needed, address, length = _dynamic(source, entry, segments)
    begin = _strings_offset(source, segments, address, length)
    names = _names(source, begin, length, needed if soname is None else (soname, *needed))
    return SharedObject(
        bits=bits,
        machine=machine,
        soname=None if soname is None else names[soname],
        needed=tuple(names[offset] for offset in needed),
    )


def _layout(head: bytes) -> _Layout:
    if not head.startswith(_MAGIC):
        raise ElfError(f"not an ELF file: it starts with {head[:4].hex() or 'nothing'}")
    layout = _LAYOUTS.get(head[4]) if len(head) > 4 else None
    if layout is None:
        raise ElfError(f"ELF class {head[4:5].hex() or 'missing'} is neither 32-bit nor 64-bit")
    if len(head) < layout[1].size:
        raise ElfError(f"the ELF header is cut off after {len(head)} bytes")
    if head[5] != _LITTLE_ENDIAN:
        raise ElfError(f"ELF data encoding {head[5]} is not little endian")
    return layout


def _segments(
    source: _Source, header: struct.Struct, program_header: struct.Struct
) -> tuple[int, tuple[_Segment, ...]]:
    """Return ``e_machine`` and the PT_LOAD and PT_DYNAMIC segments, all of them within the file."""
    kind, machine, offset, entry_size, count = header.unpack_from(source.head)
    if kind != _ET_DYN:
        raise ElfError(f"ELF type {kind} is not a shared object (ET_DYN, {_ET_DYN})")
    if entry_size != program_header.size:
        raise ElfError(f"program headers of {entry_size} bytes instead of {program_header.size}")
    if count > MAX_PROGRAM_HEADERS:
        raise ElfError(f"{count} program headers are more than {MAX_PROGRAM_HEADERS}")
    table = source.take(offset, count * entry_size, "the program header table")
    wanted = (_PT_LOAD, _PT_DYNAMIC)
    segments = tuple(segment for segment in program_header.iter_unpack(table) if segment[0] in wanted)
    for _, start, _, size in segments:
        if start + size > source.size:
            raise ElfError(f"a segment ends at byte {start + size}, the file at {source.size}")
    return machine, segments


def _dynamic(
    source: _Source, entry: struct.Struct, segments: tuple[_Segment, ...]
) -> tuple[int | None, tuple[int, ...], int, int]:
    """Return the offsets of SONAME and needed names, then the strings' address and size."""
    needed: list[int] = []
    last: dict[int, int] = {}  # where a tag repeats, the last one counts: glibc, elf_get_dynamic_info
    for tag, value in _dynamic_entries(source, entry, segments):
        if tag == _DT_NEEDED:
            needed.append(value)
        else:
            last[tag] = value
    if len(needed) > MAX_NEEDED:
        raise ElfError(f"{len(needed)} needed libraries are more than {MAX_NEEDED}")
    if _DT_STRTAB not in last or _DT_STRSZ not in last:
        raise ElfError("the dynamic section names no string table (DT_STRTAB, DT_STRSZ)")
    return last.get(_DT_SONAME), tuple(needed), last[_DT_STRTAB], last[_DT_STRSZ]


def _dynamic_entries(
    source: _Source, entry: struct.Struct, segments: tuple[_Segment, ...]
) -> Iterator[tuple[int, int]]:
    """Yield the tags and values before DT_NULL or, where that is missing, the end of the segment."""
    place = next(((offset, size) for type_, offset, _, size in segments if type_ == _PT_DYNAMIC), None)
    if place is None:
        raise ElfError("no dynamic section: a static program or debug symbols")
    offset, size = place
    if size > MAX_DYNAMIC_SIZE:
        raise ElfError(f"a dynamic section of {size} bytes is larger than {MAX_DYNAMIC_SIZE}")
    for tag, value in entry.iter_unpack(source.take(offset, size - size % entry.size, "the dynamic section")):
        if tag == _DT_NULL:
            return
        yield tag, value


def _strings_offset(source: _Source, segments: tuple[_Segment, ...], address: int, size: int) -> int:
    """Return where in the file the string table begins that is loaded at ADDRESS."""
    for type_, offset, start, length in segments:
        if type_ == _PT_LOAD and start <= address < start + length:
            begin = offset + address - start
            break
    else:
        raise ElfError(f"no loaded segment holds the string table at {address:#x}")
    if begin + size > source.size:
        raise ElfError(f"the string table ends at byte {begin + size}, the file at {source.size}")
    return begin


def _names(source: _Source, begin: int, size: int, offsets: Iterable[int]) -> dict[int, str]:
    """Return the names at OFFSETS of the string table, several from one read where they are near."""
    names: dict[int, str] = {}
    piece, piece_at = b"", 0
    for offset in sorted(set(offsets)):
        if offset >= size:
            raise ElfError(f"a name at {offset} is beyond the string table of {size} bytes")
        if piece.find(0, offset - piece_at) < 0:
            piece, piece_at = _read_name(source, begin + offset, begin + size), offset
        start = offset - piece_at
        names[offset] = piece[start : piece.index(0, start)].decode("utf-8", "surrogateescape")
    return names


def _read_name(source: _Source, begin: int, end: int) -> bytes:
    """Return bytes from BEGIN on, none at or beyond END, with at least one NUL among them."""
    piece = b""
    while 0 not in piece:
        wanted = min(2 * len(piece) or _PIECE_SIZE, MAX_NAME + 1, end - begin)
        if wanted == len(piece):
            raise ElfError(f"the name at byte {begin} does not end within {wanted} bytes")
        piece += source.take(begin + len(piece), wanted - len(piece), "a name")
    return piece
