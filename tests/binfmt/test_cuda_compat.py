"""The ELF note about forward compatibility, in real libraries and in files of hostile images."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.abilities import tool
from support.hosts.cuda_compat import NOTE_575, NOTE_590, compat_library
from support.law_examples import examples
from support.values.loader_model import patched

from cdigen.binfmt import cuda_compat
from cdigen.binfmt.cuda_compat import read_note, suits
from cdigen.binfmt.elf import ElfError

FUZZ = examples(4)
CHANGES = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=12)
# The text of the note in libcuda.so.590.44.01 of CUDA 13.1's compatibility package.
TEXT = NOTE_590
NOTE = (535, 550, 570, 575, 580, 590)
OWNER = "NVIDIA Corporation"
NAME = ".note.cuda.fwd_compatibility"
SHT_NOTE = 7
BODY = "\n.text\n.globl answer\n.type answer, @function\nanswer: ret\n"


def note_source(text: str, *, owner: str = OWNER, name: str = NAME, alignment: int = 4) -> str:
    """Return the assembler source of a library with one note, with the padding of the gABI."""
    return f"""
        .section {name},"a",@note
        .balign {alignment}
        .long {len(owner) + 1}, {len(text)}, 1
        .asciz "{owner}"
        .balign {alignment}
        .ascii {json.dumps(text)}
        .balign {alignment}
    {BODY}"""


def assemble(folder: Path, source: str, *options: str) -> bytes:
    assembly, library = folder / "made.s", folder / "libcuda.so"
    assembly.write_text(source)
    subprocess.run(
        [tool("gcc"), *options, "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o", library, assembly],
        check=True,
    )
    return library.read_bytes()


def read(data: bytes) -> tuple[int, ...] | None:
    return read_note(lambda offset, length: data[offset : offset + length], len(data))


def refusal(data: bytes) -> str:
    """Return the message of the ElfError that DATA raises, or nothing."""
    try:
        read(data)
    except ElfError as error:
        return str(error)
    return ""


def section_header(data: bytes) -> int:
    """Return the offset of the section header of the only note in DATA, a 64-bit file."""
    (table,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    (names,) = struct.unpack_from("<H", data, 62)
    (names_at,) = struct.unpack_from("<Q", data, table + 64 * names + 24)
    for at in range(table, table + 64 * count, 64):
        name, kind = struct.unpack_from("<II", data, at)
        if kind == SHT_NOTE and data.startswith(NAME.encode() + b"\0", names_at + name):
            return at
    raise AssertionError("no note")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return assemble(tmp_path_factory.mktemp("compat"), note_source(TEXT))


def test_the_note_of_a_library_is_read(library: bytes) -> None:
    assert read(library) == NOTE


def test_a_note_in_nvidias_format_is_read() -> None:
    """No assembler writes these bytes. The owner's 19 bytes are padded to 20. The keys are in lower case."""
    data = compat_library(NOTE_575)
    assert b"\x13\0\0\0\x69\0\0\0\x01\0\0\0NVIDIA Corporation\0\0" + NOTE_575.encode() in data
    assert read(data) == (535, 550, 560, 565, 570, 575)


@pytest.mark.parametrize("changed", [NOTE_590.upper(), NOTE_590.title(), NOTE_590.replace(":", ": ")])
def test_keys_of_the_note_match_in_upper_and_lower_case(changed: str) -> None:
    """The toolkit reads the note with Go's encoding/json, which ignores the letter case of keys."""
    assert read(compat_library(changed)) == NOTE


def test_the_note_of_a_32_bit_library_is_read(tmp_path: Path) -> None:
    assert read(assemble(tmp_path, note_source(TEXT), "-m32")) == NOTE


@pytest.mark.parametrize("alignment", [1, 4, 8])
def test_a_note_with_any_alignment_is_read(alignment: int, tmp_path: Path) -> None:
    assert read(assemble(tmp_path, note_source(TEXT, alignment=alignment))) == NOTE


def test_other_notes_of_a_library_are_ignored(tmp_path: Path) -> None:
    assert read(assemble(tmp_path, note_source(TEXT), "-Wl,--build-id")) == NOTE


def test_the_note_of_a_tegra_library_has_no_branches(tmp_path: Path) -> None:
    made = assemble(tmp_path, note_source('{"format":1,"CUDA version":"13.2"}'))
    assert read(made) == ()


@pytest.mark.parametrize(
    "source",
    [BODY, note_source(TEXT, owner="GNU"), note_source(TEXT, name=".note.other"), note_source("")],
    ids=["no note", "another owner", "another section", "an empty note"],
)
def test_without_a_note_of_nvidia_there_is_no_result(source: str, tmp_path: Path) -> None:
    assert read(assemble(tmp_path, source)) is None


def test_a_library_stripped_of_its_section_headers_has_no_note(library: bytes) -> None:
    assert read(patched(library, 60, "<H", 0)) is None


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "[535]",
        '{"driver":535}',
        '{"driver":["535"]}',
        '{"driver":[true]}',
        '{"driver":[535.5]}',
        "[" * 4000,
        '{"driver":[' + "1" * 4000,
        "{" + TEXT,
    ],
)
def test_an_invalid_note_is_refused_with_a_message_of_one_line(text: str, tmp_path: Path) -> None:
    message = refusal(assemble(tmp_path, note_source(text)))
    assert message.startswith("the note")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("field", "format_", "value", "message"),
    [
        (32, "<Q", 1 << 32, "the note of 4294967296 bytes is larger than 4096"),
        (32, "<Q", 8, "cut off after 8 bytes"),
        (32, "<Q", 0, "cut off after 0 bytes"),
        (24, "<Q", 2**64 - 1, "ends at byte"),
    ],
)
def test_a_damaged_section_is_refused(
    field: int, format_: str, value: int, message: str, library: bytes
) -> None:
    assert message in refusal(patched(library, section_header(library) + field, format_, value))


@pytest.mark.parametrize(
    ("offset", "format_", "value", "message"),
    [
        (40, "<Q", 2**64 - 1, "ends at byte"),
        (58, "<H", 40, "section headers of 40 bytes instead of 64"),
        (60, "<H", 0xFFFF, "65535 sections exceed the limit of 256"),
        (62, "<H", 0xFFFF, "section 65535 (names) is absent"),
        (4, "<B", 3, "neither 32-bit nor 64-bit"),
        (16, "<H", 2, "not a shared object"),
    ],
)
def test_a_damaged_header_is_refused(
    offset: int, format_: str, value: int, message: str, library: bytes
) -> None:
    assert message in refusal(patched(library, offset, format_, value))


def test_a_note_longer_than_its_section_ends_with_the_section(library: bytes) -> None:
    at = library.index(struct.pack("<III", len(OWNER) + 1, len(TEXT), 1))
    assert read(patched(library, at + 4, "<I", 2**32 - 1)) == NOTE
    assert read(patched(library, at, "<I", 2**32 - 1)) is None


def test_a_file_that_is_not_elf_is_refused() -> None:
    assert "not an ELF file" in refusal(b"")
    assert "not an ELF file" in refusal(b"#!/bin/sh\n")


def test_a_library_cut_off_at_any_byte_gives_its_note_or_an_elf_error(library: bytes) -> None:
    for length in range(len(library)):
        assert refusal(library[:length]) or read(library[:length]) in {None, NOTE}


def test_a_library_that_shrinks_during_the_read_is_refused(library: bytes) -> None:
    def read_at(offset: int, length: int) -> bytes:
        return library[offset : offset + length][:-1]

    with pytest.raises(ElfError, match="cut off"):
        read_note(read_at, len(library))


@FUZZ
@given(changes=CHANGES)
def test_a_changed_library_raises_only_elf_error(library: bytes, changes: list[tuple[int, int]]) -> None:
    data = bytearray(library)
    for position, value in changes:
        data[position % len(data)] = value
    assert "\n" not in refusal(bytes(data))


@FUZZ
@given(text=st.binary(max_size=60))
def test_any_text_of_a_note_raises_only_elf_error(library: bytes, text: bytes) -> None:
    at = library.index(TEXT.encode())
    assert "\n" not in refusal(library[:at] + text + library[at + len(text) :])


def test_at_most_8_kib_of_a_large_library_are_read(library: bytes) -> None:
    lengths = []

    def read_at(offset: int, length: int) -> bytes:
        lengths.append(length)
        return library[offset : offset + length].ljust(length, b"\0")

    assert read_note(read_at, 1 << 40) == NOTE
    assert sum(lengths) < 8 << 10


def test_at_most_64_kib_of_any_library_are_read() -> None:
    """The file declares a dynamic section of 1 MiB."""
    segments = struct.pack("<IIQQQQQQ", 2, 4, 120, 120, 120, 1 << 20, 1 << 20, 8)
    header = struct.pack("<4sBBB9xHHI3QI6H", b"\x7fELF", 2, 1, 1, 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    lengths = []

    def read_at(offset: int, length: int) -> bytes:
        lengths.append(length)
        return (header + segments)[offset : offset + length].ljust(length, b"\1")

    with pytest.raises(ElfError, match="more than 65536 bytes would have to be read"):
        read_note(read_at, 1 << 40)
    assert sum(lengths) <= cuda_compat.MAX_READ


def test_json_is_imported_only_for_a_note() -> None:
    program = "import sys, cdigen.binfmt.cuda_compat; print('json' in sys.modules)"
    root = Path(cuda_compat.__file__).parents[2]
    output = subprocess.run([sys.executable, "-S", "-c", program], check=True, capture_output=True, cwd=root)
    assert output.stdout == b"False\n"


@pytest.mark.parametrize(
    ("library_version", "host", "expected"),
    [
        ("590.44.01", "580.65.06", True),
        ("590.44.01", "535.104.05", True),
        ("590.44.01", "565.57.01", False),  # newer, but branch 565 is not in the note
        ("590.44.01", "590.44.01", False),
        ("590.44.01", "590.44.02", False),
        ("590.44.01", "590.9.99", True),  # compared as numbers
        ("590.44.01", "590.44", True),
    ],
)
def test_with_a_note_the_host_branch_must_be_listed_and_the_library_newer(
    library_version: str, host: str, *, expected: bool
) -> None:
    assert suits(library_version, NOTE, host) is expected


@pytest.mark.parametrize(
    ("library_version", "host", "expected"),
    [
        ("550.54.14", "535.104.05", True),
        ("550.163.01", "550.54.14", False),
        ("550.54.14", "1000.1", False),
        ("1000.1", "999.99", True),
    ],
)
def test_without_a_note_the_librarys_branch_must_be_greater(
    library_version: str, host: str, *, expected: bool
) -> None:
    assert suits(library_version, None, host) is expected


def test_a_note_without_branches_suits_no_host() -> None:
    assert not suits("590.44.01", (), "580.65.06")


@pytest.mark.parametrize(
    "version", ["", "590.", ".590", "590.x", "-590.1", "590 .1", "\N{SUPERSCRIPT TWO}.1", "9" * 5000]
)
def test_a_version_that_is_not_numeric_suits_no_host(version: str) -> None:
    assert not suits(version, None, "1.1")
    assert not suits("590.44.01", NOTE, version)


@given(st.text(), st.text())
def test_any_text_as_a_version_raises_no_error(library_version: str, host: str) -> None:
    assert suits(library_version, None, host) in {True, False}
