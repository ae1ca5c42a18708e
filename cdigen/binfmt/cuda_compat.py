"""Tell whether an image's newer libcuda may drive the host's older kernel modules (forward compatibility).

``read_note`` reads what the library says of it, ``suits`` decides. The library is the image's: what
is read of it is bounded, and whatever is damaged is an ElfError, upon which it is left alone.
Source of the note: the libcuda of NVIDIA's cuda-compat packages of CUDA 12.9 and 13.1, and Orin's of 13.2.
Source of the rule: NVIDIA Container Toolkit 1.19.1 and 1.20, cmd/nvidia-cdi-hook/cudacompat.
"""

from __future__ import annotations

import struct

from cdigen.binfmt.elf import ElfError, read_shared_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Bounds of ours. Real libraries have 30 to 40 sections, of them 2 or 3 notes; this note's text has 140
# bytes, with 6 driver branches. Nothing beyond 64 KiB is read of a file: the headers, the dynamic
# section and its names take 7.
MAX_READ = 64 << 10
MAX_SECTIONS = 256
MAX_NOTE = 4096

_SECTION_NAME = b".note.cuda.fwd_compatibility\0"
_OWNER = b"NVIDIA Corporation"
_SHT_NOTE = 7

# By word size, of the file header: e_shoff, e_shentsize, e_shnum, e_shstrndx; of a section header: sh_name,
# sh_type, sh_offset, sh_size (System V gABI, chapter 4; elf.py has read the rest of it).
_LAYOUTS = {
    32: (struct.Struct("<32xI10xHHH"), struct.Struct("<II8xII16x")),
    64: (struct.Struct("<40xQ10xHHH"), struct.Struct("<II16xQQ24x")),
}
_NOTE = struct.Struct("<III")  # n_namesz, n_descsz, n_type


def read_note(read_at: Callable[[int, int], bytes], size: int) -> tuple[int, ...] | None:
    """Return which branches (as 550) of host drivers the note of the libcuda behind READ_AT says are fit.

    Tegra's libraries name none. None where it has no note, as older ones. Format, device and CUDA version of
    the note are not looked at.

    ``read_at(offset, length)`` returns the bytes there, fewer at the end of the file; ``size`` is the
    file's, in bytes. ElfError is raised as by ``elf.read_shared_object``, for a damaged note, and for
    sizes beyond this module's bounds; what ``read_at`` itself raises passes through.
    """
    take = _bounded(read_at, size)
    bits = read_shared_object(take, size).bits
    section = _find_section(take, *_LAYOUTS[bits])
    text = None if section is None else _note_text(section)
    return None if text is None else _parse(text)


def suits(library_version: str, branches: tuple[int, ...] | None, host_driver_version: str) -> bool:
    """Tell whether the libcuda of LIBRARY_VERSION is to be used on a host of HOST_DRIVER_VERSION.

    BRANCHES are those of its note: the host's branch (the first number) must be one of them, and the library
    be newer than the host's driver. Without a note, the library's branch must be greater. A version that is
    not made of numbers and dots suits nothing; nor does a note without branches, for which the toolkit
    compares the CUDA version with the host's, if it was told that.
    """
    library, host = _numbers(library_version), _numbers(host_driver_version)
    if not library or not host:
        return False
    if branches is None:
        return library[0] > host[0]
    return host[0] in branches and library > host


def _bounded(read_at: Callable[[int, int], bytes], size: int) -> Callable[[int, int], bytes]:
    """Return a ``read_at`` that refuses to read more than MAX_READ altogether, or beyond SIZE."""
    left = MAX_READ

    def take(offset: int, length: int) -> bytes:
        nonlocal left
        left -= length
        if left < 0:
            raise ElfError(f"more than {MAX_READ} bytes would have to be read")
        if offset + length > size:
            raise ElfError(f"a part ends at byte {offset + length}, the file at {size}")
        data = read_at(offset, length)
        if len(data) != length:
            raise ElfError(f"the file is cut off: {len(data)} of {length} bytes at {offset}")
        return data

    return take


def _find_section(
    take: Callable[[int, int], bytes], header: struct.Struct, section: struct.Struct
) -> bytes | None:
    """Return the content of the note section of our name; None where there is none."""
    table_at, entry_size, count, names_index = header.unpack(take(0, header.size))
    if count == 0:
        return None  # stripped of them, or 0xff00 and more
    if entry_size != section.size:
        raise ElfError(f"section headers of {entry_size} bytes instead of {section.size}")
    if count > MAX_SECTIONS or names_index >= count:
        raise ElfError(f"{count} sections are more than {MAX_SECTIONS}, or have no names at {names_index}")
    sections = list(section.iter_unpack(take(table_at, count * entry_size)))
    _, _, names_at, names_size = sections[names_index]
    for name, kind, at, size in sections:
        if kind == _SHT_NOTE and name + len(_SECTION_NAME) <= names_size:
            if take(names_at + name, len(_SECTION_NAME)) != _SECTION_NAME:
                continue
            if size > MAX_NOTE:
                raise ElfError(f"the note of {size} bytes is larger than {MAX_NOTE}")
            return take(at, size)
    return None


def _note_text(section: bytes) -> bytes | None:
    """Return the text of the first note of SECTION, or None where it is another's or empty.

    How name and text are padded is not relied on: the padding is NUL, the text is not.
    """
    if len(section) < _NOTE.size:
        raise ElfError(f"the note is cut off after {len(section)} bytes")
    owner_size, text_size, _ = _NOTE.unpack_from(section)
    end = _NOTE.size + owner_size
    if section[_NOTE.size : end].rstrip(b"\0") != _OWNER:
        return None
    return section[end:].lstrip(b"\0")[:text_size].rstrip(b"\0") or None


def _parse(text: bytes) -> tuple[int, ...]:
    import json  # noqa: PLC0415 - it takes as long as the whole hook otherwise, and few images have a note

    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ElfError(f"the note is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ElfError("the note is not a JSON object")
    # The toolkit's reader, Go's encoding/json, takes a key in any case; so the libraries may change theirs.
    fields = {key.lower(): value for key, value in document.items()}
    drivers = fields.get("driver", [])
    if not isinstance(drivers, list) or not all(type(driver) is int for driver in drivers):
        raise ElfError(f"the note's driver is not a list of numbers: {drivers!r:.40}")
    return tuple(drivers)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of VERSION, or none if anything else is in it or one has over 9 digits."""
    parts = version.split(".")
    if not all(part.isascii() and part.isdecimal() and len(part) <= 9 for part in parts):
        return ()
    return tuple([int(part) for part in parts])
