"""Forward compatibility: whether an image's newer libcuda works with the host's older kernel modules.

``read_note`` reads the library's ELF note, and ``suits`` compares the versions. The library belongs to the
image, so ``read_note`` limits the number of bytes that it reads. ``read_note`` raises ElfError for a damaged
library, and the caller then ignores the library.

The source of the note's format is libcuda in NVIDIA's cuda-compat packages of CUDA 12.9 and 13.1, and in the
package of CUDA 13.2 for Orin. The source of the rule of ``suits`` is NVIDIA Container Toolkit 1.19.1 and
1.20, cmd/nvidia-cdi-hook/cudacompat.
"""

from __future__ import annotations

import struct

from cdigen.binfmt.elf import ElfError, read_shared_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Limits of cdigen. Real libraries have 30 to 40 sections, and 2 or 3 of these sections are notes. The text of
# the compatibility note has 140 bytes, and contains 6 driver branches. At most 64 KiB of a file are read. The
# headers, the dynamic section and its names have 7 KiB.
MAX_READ = 64 << 10
MAX_SECTIONS = 256
MAX_NOTE = 4096

_SECTION_NAME = b".note.cuda.fwd_compatibility\0"
_OWNER = b"NVIDIA Corporation"
_SHT_NOTE = 7

# Two structures for each word size (System V gABI, chapter 4). The fields of the file header are e_shoff,
# e_shentsize, e_shnum and e_shstrndx. The fields of a section header are sh_name, sh_type, sh_offset and
# sh_size. elf.py reads other fields.
_LAYOUTS = {
    32: (struct.Struct("<32xI10xHHH"), struct.Struct("<II8xII16x")),
    64: (struct.Struct("<40xQ10xHHH"), struct.Struct("<II16xQQ24x")),
}
_NOTE = struct.Struct("<III")  # n_namesz, n_descsz, n_type


def read_note(read_at: Callable[[int, int], bytes], size: int) -> tuple[int, ...] | None:
    """Return the branches (such as 550) of host drivers that the note of a libcuda permits.

    The result is empty for Tegra's libraries, because their note has no branches. The result is None if the
    library has no note. Older libraries have no note. The function ignores the format, the device and the
    CUDA version in the note.

    ``read_at(offset, length)`` returns the bytes at an offset of the library. It returns fewer bytes at the
    end of the file. ``size`` is the size of the file in bytes. Raise ElfError in the cases of
    ``elf.read_shared_object``, for a damaged note, and for sizes above this module's limits. Exceptions of
    ``read_at`` are not caught.
    """
    take = _bounded(read_at, size)
    bits = read_shared_object(take, size).bits
    section = _find_section(take, *_LAYOUTS[bits])
    text = None if section is None else _note_text(section)
    return None if text is None else _parse(text)


def suits(library_version: str, branches: tuple[int, ...] | None, host_driver_version: str) -> bool:
    """Return whether a libcuda of LIBRARY_VERSION works with a host driver of HOST_DRIVER_VERSION.

    BRANCHES are the branches in the note of libcuda, or None if there is no note. The branch of a version is
    its first number. With a note, BRANCHES must contain the host's branch, and the library must be newer than
    the host's driver. Without a note, the library's branch must be greater than the host's branch.

    The result is false if a version contains anything except numbers and dots. The result is also false for a
    note without branches. NVIDIA's toolkit compares the CUDA versions for such a note, if the CUDA version of
    the host is known.
    """
    library, host = _numbers(library_version), _numbers(host_driver_version)
    if not library or not host:
        return False
    if branches is None:
        return library[0] > host[0]
    return host[0] in branches and library > host


def _bounded(read_at: Callable[[int, int], bytes], size: int) -> Callable[[int, int], bytes]:
    """Return a function that reads as READ_AT does, but within limits.

    The function raises ElfError for more than MAX_READ bytes in total, and for bytes after the end of the
    file (SIZE).
    """
    left = MAX_READ

    def take(offset: int, length: int) -> bytes:
        nonlocal left
        left -= length
        if left < 0:
            raise ElfError(f"more than {MAX_READ} bytes would have to be read")
        if offset + length > size:
            raise ElfError(f"a section ends at byte {offset + length}, after the end of the file ({size})")
        data = read_at(offset, length)
        if len(data) != length:
            raise ElfError(f"the file is cut off: {len(data)} of {length} bytes at {offset}")
        return data

    return take


def _find_section(
    take: Callable[[int, int], bytes], header: struct.Struct, section: struct.Struct
) -> bytes | None:
    """Return the content of the note section ``_SECTION_NAME``, or None if there is no such section."""
    table_at, entry_size, count, names_index = header.unpack(take(0, header.size))
    if count == 0:
        return None  # no section headers, or at least 0xff00 section headers
    if entry_size != section.size:
        raise ElfError(f"section headers of {entry_size} bytes instead of {section.size}")
    if count > MAX_SECTIONS or names_index >= count:
        raise ElfError(
            f"{count} sections exceed the limit of {MAX_SECTIONS}, or section {names_index} (names) is absent"
        )
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
    """Return the text of the first note in SECTION, or None if the note has another owner or no text.

    The function does not depend on the size of the padding, because the padding is NUL and the text contains
    no NUL.
    """
    if len(section) < _NOTE.size:
        raise ElfError(f"the note is cut off after {len(section)} bytes")
    owner_size, text_size, _ = _NOTE.unpack_from(section)
    end = _NOTE.size + owner_size
    if section[_NOTE.size : end].rstrip(b"\0") != _OWNER:
        return None
    return section[end:].lstrip(b"\0")[:text_size].rstrip(b"\0") or None


def _parse(text: bytes) -> tuple[int, ...]:
    import json  # noqa: PLC0415 - the import doubles the time of the hook, and few images have a note

    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ElfError(f"the note is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ElfError("the note is not a JSON object")
    # The toolkit's parser (Go's encoding/json) accepts keys in upper and lower case.
    fields = {key.lower(): value for key, value in document.items()}
    drivers = fields.get("driver", [])
    if not isinstance(drivers, list) or not all(type(driver) is int for driver in drivers):
        raise ElfError(f"the note has a 'driver' that is not a list of numbers: {drivers!r:.40}")
    return tuple(drivers)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers in VERSION.

    The result is empty if a part is not a number, or if a number has more than 9 digits.
    """
    parts = version.split(".")
    if not all(part.isascii() and part.isdecimal() and len(part) <= 9 for part in parts):
        return ()
    return tuple([int(part) for part in parts])
