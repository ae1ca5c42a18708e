"""A libcuda of NVIDIA's cuda-compat packages: a shared object with the note on forward compatibility."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from support.hosts.driver_files import write_library

# The texts of libcuda.so.575.57.08 (CUDA 12.9) and of libcuda.so.590.44.01 (CUDA 13.1).
NOTE_575 = (
    '{"format":1,"CUDA version":"12.9","driver":[535,550,560,565,570,575],'
    '"device":[1,2,7,8,9,10,11,12,13,14]}'
)
NOTE_590 = (
    '{"format":1,"CUDA version":"13.1","driver":[535,550,570,575,580,590],'
    '"device":[1,2,7,8,9,10,11,12,13,14]}'
)
OWNER = b"NVIDIA Corporation\0"
_NAMES = b"\0.note.cuda.fwd_compatibility\0.shstrtab\0"
_SHT_STRTAB, _SHT_NOTE = 3, 7


def compat_library(text: str) -> bytes:
    """Return a 64-bit libcuda.so.1 with the note TEXT ("": no note, as in packages up to CUDA 12.8)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "libcuda.so")
        write_library(path, "libcuda.so.1")
        data = path.read_bytes()
    if not text:
        return data
    note = struct.pack("<III", len(OWNER), len(text), 1) + _padded(OWNER) + _padded(text.encode())
    note_at = len(_padded(data))
    names_at = note_at + len(note)
    table_at = len(_padded(bytes(names_at + len(_NAMES)), 8))
    sections = (
        (0, 0, 0, 0),
        (1, _SHT_NOTE, note_at, len(note)),
        (_NAMES.index(b".shstrtab"), _SHT_STRTAB, names_at, len(_NAMES)),
    )
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 4, 0)
        for name, kind, at, size in sections
    )
    made = bytearray((_padded(data) + note + _NAMES).ljust(table_at, b"\0") + table)
    struct.pack_into("<Q", made, 40, table_at)  # e_shoff
    struct.pack_into(
        "<HHH", made, 58, 64, len(sections), len(sections) - 1
    )  # e_shentsize, e_shnum, e_shstrndx
    return bytes(made)


def _padded(data: bytes, to: int = 4) -> bytes:
    return data + bytes(-len(data) % to)
