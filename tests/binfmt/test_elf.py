"""The ELF reader, compared with pyelftools, and tested with libraries from the machine's compiler."""

from __future__ import annotations

import io
import os
import statistics
import struct
import subprocess
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, Self

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_E_MACHINE
from hypothesis import given
from hypothesis import strategies as st
from support.abilities import tool
from support.law_examples import examples
from support.values.loader_model import patched

from cdigen.binfmt import elf
from cdigen.binfmt.elf import ElfError, SharedObject, read_shared_object

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
AT_MOST = 300
BASE = 0x10000  # the load address of the generated file, so that addresses differ from file offsets
FUZZ = examples(4)
CHANGES = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=12)


def read(data: bytes) -> SharedObject:
    return read_shared_object(lambda offset, length: data[offset : offset + length], len(data))


def by_pyelftools(stream: BinaryIO) -> SharedObject:
    file = ELFFile(stream)
    dynamic = (segment for segment in file.iter_segments() if isinstance(segment, DynamicSegment))
    tags = [tag for segment in dynamic for tag in segment.iter_tags()]
    sonames = [vars(tag)["soname"] for tag in tags if tag.entry.d_tag == "DT_SONAME"]
    return SharedObject(
        bits=file.elfclass,
        machine=ENUM_E_MACHINE[file["e_machine"]],
        soname=sonames[-1] if sonames else None,
        needed=tuple(vars(tag)["needed"] for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
    )


def hand_made(
    *,
    bits: int = 64,
    machine: int = elf.EM_X86_64,
    type_: int = 3,
    sonames: tuple[bytes, ...] = (b"libmade.so.1",),
    needed: tuple[bytes, ...] = (b"libc.so.6", b"libm.so.6"),
    tags: dict[int, int] | None = None,
) -> bytes:
    """Return a library with PT_LOAD and PT_DYNAMIC; TAGS replaces dynamic entries (-1 omits an entry)."""
    word, header_size, segment_size = ("Q", 64, 56) if bits == 64 else ("I", 52, 32)
    dynamic_at = header_size + 2 * segment_size
    strings = [b"\0", *(name + b"\0" for name in (*sonames, *needed))]
    offsets = list(accumulate(len(string) for string in strings))[:-1]
    names = b"".join(strings)
    entries = [(14, offset) for offset in offsets[: len(sonames)]]
    entries += [(1, offset) for offset in offsets[len(sonames) :]]
    dynamic_size = struct.calcsize(f"2{word}") * (len(entries) + 3)
    table = {5: BASE + dynamic_at + dynamic_size, 10: len(names), **(tags or {})}
    entries += [(tag, value) for tag, value in table.items() if value >= 0]
    dynamic = b"".join(struct.pack(f"<2{word}", *entry) for entry in entries).ljust(dynamic_size, b"\0")
    size = dynamic_at + dynamic_size + len(names)
    return b"".join(
        (
            struct.pack("<4sBBB9x", b"\x7fELF", bits // 32, 1, 1),
            struct.pack(
                f"<HHI3{word}I6H", type_, machine, 1, 0, header_size, 0, 0, 0, segment_size, 2, 0, 0, 0
            ),
            segment(bits, 1, 0, BASE, size),
            segment(bits, 2, dynamic_at, BASE + dynamic_at, dynamic_size),
            dynamic,
            names,
        )
    )


def segment(bits: int, type_: int, offset: int, address: int, size: int) -> bytes:
    if bits == 64:
        return struct.pack("<II6Q", type_, 4, offset, address, address, size, size, 8)
    return struct.pack("<8I", type_, offset, address, address, size, size, 4, 4)


def changed(data: bytes, changes: list[tuple[int, int]], *, within: int) -> bytes:
    result = bytearray(data)
    for position, value in changes:
        result[position % min(within, len(data))] = value
    return bytes(result)


def refusal(data: bytes) -> str:
    """Return the message of the ElfError that DATA raises, or nothing."""
    try:
        read(data)
    except ElfError as error:
        return str(error)
    return ""


def first_bytes(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return file.read(4)


def compile_c(output: Path, *arguments: str) -> Path:
    source = output.with_suffix(".c")
    source.write_text("int answer(void) { return 42; }\nint main(void) { return 0; }\n")
    subprocess.run([tool("gcc"), "-o", output, source, *arguments], check=True)
    return output


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("compiled")
    shared = ("-shared", "-fPIC", "-nostdlib", "-Wl,-z,noseparate-code")
    first = compile_c(folder / "libfirst.so", *shared, "-Wl,-soname,libfirst.so.1")
    second = compile_c(folder / "libsecond.so", *shared, "-Wl,-soname,libsecond.so.2")
    keep = "-Wl,--no-as-needed"
    whole = compile_c(
        folder / "libthird.so", *shared, "-Wl,-soname,libthird.so.3", keep, str(second), str(first)
    )
    return whole.read_bytes()


@pytest.fixture(scope="session")
def installed() -> tuple[Path, ...]:
    files = sorted(path for path in LIBRARIES.rglob("*.so*") if path.is_file() and not path.is_symlink())
    shared = [path for path in files if first_bytes(path) == b"\x7fELF"]
    assert shared
    return tuple(shared[:: len(shared) // AT_MOST + 1])


class CountingFile:
    """A real file that records the length of each read."""

    def __init__(self, path: Path) -> None:
        self.stream = path.open("rb")
        self.size = path.stat().st_size
        self.lengths: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def read_at(self, offset: int, length: int) -> bytes:
        self.lengths.append(length)
        return os.pread(self.stream.fileno(), length, offset)


def test_every_installed_library_is_read_as_pyelftools_reads_it(installed: tuple[Path, ...]) -> None:
    differ = []
    for path in installed:
        with CountingFile(path) as file:
            if read_shared_object(file.read_at, file.size) != by_pyelftools(file.stream):
                differ.append(path)
    assert differ == []


def test_an_installed_library_needs_few_small_reads(installed: tuple[Path, ...]) -> None:
    counts, totals = [], []
    for path in installed:
        with CountingFile(path) as file:
            read_shared_object(file.read_at, file.size)
        counts.append(len(file.lengths))
        totals.append(sum(file.lengths))
    assert statistics.median(counts) <= 4
    assert max(totals) <= 32 << 10


def test_a_compiled_library_has_its_soname_and_needed_libraries_in_order(compiled: bytes) -> None:
    library = read(compiled)
    assert (library.soname, library.needed) == ("libthird.so.3", ("libsecond.so.2", "libfirst.so.1"))


def test_a_position_independent_program_has_no_soname(tmp_path: Path) -> None:
    program = compile_c(tmp_path / "program", "-fPIE", "-pie")
    assert read(program.read_bytes()).soname is None


def test_an_object_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="ELF type 1"):
        read(compile_c(tmp_path / "object.o", "-c").read_bytes())


@pytest.mark.parametrize(
    ("bits", "machine"), [(32, elf.EM_386), (64, elf.EM_X86_64), (64, elf.EM_AARCH64), (32, 40)]
)
def test_both_word_sizes_and_any_machine_are_read_like_pyelftools(bits: int, machine: int) -> None:
    data = hand_made(bits=bits, machine=machine)
    assert read(data) == by_pyelftools(io.BytesIO(data))


@pytest.mark.parametrize(
    ("number", "name"),
    [(elf.EM_386, "EM_386"), (elf.EM_X86_64, "EM_X86_64"), (elf.EM_AARCH64, "EM_AARCH64")],
)
def test_the_machine_numbers_equal_the_numbers_of_pyelftools(number: int, name: str) -> None:
    assert ENUM_E_MACHINE[name] == number


def test_a_library_may_need_no_other_library() -> None:
    assert read(hand_made(needed=())).needed == ()


def test_a_library_needed_twice_is_listed_twice() -> None:
    assert read(hand_made(needed=(b"b", b"a", b"b"))).needed == ("b", "a", "b")


def test_the_last_of_several_sonames_applies() -> None:
    assert read(hand_made(sonames=(b"first.so", b"last.so"))).soname == "last.so"


def test_a_name_that_is_not_utf8_keeps_its_bytes() -> None:
    soname = read(hand_made(sonames=(b"lib\xff.so",))).soname
    assert soname is not None
    assert os.fsencode(soname) == b"lib\xff.so"


@pytest.mark.parametrize("length", [0, 255, 256, 257, 1000, elf.MAX_NAME])
def test_a_name_may_have_up_to_4096_bytes(length: int) -> None:
    names = (b"n" * length, b"libm.so.6")
    assert read(hand_made(needed=names)).needed == tuple(name.decode() for name in names)


def test_the_program_headers_may_be_at_the_end_of_the_file() -> None:
    data = hand_made(sonames=(b"n" * 4000,))
    moved = patched(data + data[64 : 64 + 2 * 56], 32, "<Q", len(data))
    assert read(moved) == read(data)


def test_a_name_that_ends_the_string_table_without_nul_is_refused() -> None:
    data = hand_made()
    with pytest.raises(ElfError, match="does not end within"):
        read(data[:-1] + b"x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "starts with nothing"),
        (b"/* GNU ld script */", "not an ELF file: it starts with 2f2a2047"),
        (b"\x7fELF", "ELF class missing"),
        (patched(hand_made(), 4, "<B", 3), "ELF class 03"),
        (patched(hand_made(), 5, "<B", 2), "data encoding 2 is not little endian"),
        (hand_made(type_=2), "ELF type 2"),
        (patched(hand_made(), 54, "<H", 32), "program headers of 32 bytes instead of 56"),
        (patched(hand_made(), 56, "<H", 1025), "1025 program headers"),
        (patched(hand_made(), 32, "<Q", 2**64 - 1), "program header table ends at byte"),
        (patched(hand_made(), 64 + 32, "<Q", 1 << 40), "a segment ends at byte"),
        (patched(hand_made(), 64 + 56, "<I", 4), "no dynamic section"),
        (patched(hand_made(), 64 + 56 + 8, "<Q", 1 << 40), "a segment ends at byte"),
        (hand_made(tags={5: -1}), "no string table"),
        (hand_made(tags={10: -1}), "no string table"),
        (hand_made(tags={5: BASE - 1}), "no loaded segment holds the string table at 0xffff"),
        (hand_made(tags={5: 2**64 - 1}), "no loaded segment"),
        (patched(hand_made(tags={5: BASE + 64 + 2 * 56}), 64, "<I", 4), "no loaded segment"),
        (hand_made(tags={10: 2**63}), "the string table ends at byte"),
        (hand_made(tags={10: 1}), "a name at 1 is beyond the string table of 1 bytes"),
        (hand_made(tags={14: 1 << 60}), "beyond the string table"),
        (hand_made(needed=(b"n" * 4097,)), "does not end within 4097 bytes"),
        (hand_made(needed=(b"",) * 4097), "4097 needed libraries"),
        (hand_made(needed=(b"",) * 65_536), "a dynamic section of 1048640 bytes"),
    ],
)
def test_an_unusable_library_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(ElfError, match=message):
        read(data)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_library_cut_off_at_any_byte_is_refused(bits: int) -> None:
    data = hand_made(bits=bits)
    for length in range(len(data)):
        with pytest.raises(ElfError):
            read(data[:length])


def test_a_truncated_compiled_library_is_read_correctly_or_refused(compiled: bytes) -> None:
    whole = read(compiled)
    for length in range(0, len(compiled), 7):
        with suppress(ElfError):
            assert read(compiled[:length]) == whole


def test_a_file_that_shrinks_while_it_is_read_is_refused() -> None:
    data = hand_made(sonames=(b"n" * 4000, b"m" * 4000))
    with pytest.raises(ElfError, match="is cut off"):
        read_shared_object(lambda offset, length: data[offset : min(offset + length, 4500)], len(data))


def test_at_most_18_mib_of_an_expensive_library_are_read() -> None:
    data = hand_made(needed=tuple(b"%04096d" % number for number in range(elf.MAX_NEEDED)))
    lengths: list[int] = []

    def read_at(offset: int, length: int) -> bytes:
        lengths.append(length)
        return data[offset : offset + length]

    assert len(read_shared_object(read_at, len(data)).needed) == elf.MAX_NEEDED
    assert sum(lengths) <= 18 << 20


@FUZZ
@given(st.binary(max_size=300), st.sampled_from([b"", b"\x7fELF\x01\x01\x01", b"\x7fELF\x02\x01\x01"]))
def test_random_bytes_raise_only_elf_error(tail: bytes, magic: bytes) -> None:
    assert "\n" not in refusal(magic + tail)


@FUZZ
@given(CHANGES, st.sampled_from([32, 64]))
def test_a_changed_generated_library_raises_only_elf_error(changes: list[tuple[int, int]], bits: int) -> None:
    data = hand_made(bits=bits)
    assert "\n" not in refusal(changed(data, changes, within=len(data)))


@FUZZ
@given(changes=CHANGES, within=st.sampled_from([64, 640, 1 << 16]))
def test_a_changed_compiled_library_raises_only_elf_error(
    compiled: bytes, changes: list[tuple[int, int]], within: int
) -> None:
    assert "\n" not in refusal(changed(compiled, changes, within=within))
