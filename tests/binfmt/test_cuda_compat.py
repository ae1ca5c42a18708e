"""The forward-compatibility note, in real libraries and in what a hostile image may hold instead."""

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
# As in the libcuda.so.590.44.01 of CUDA 13.1's compatibility package.
TEXT = NOTE_590
NOTE = (535, 550, 570, 575, 580, 590)
OWNER = "NVIDIA Corporation"
NAME = ".note.cuda.fwd_compatibility"
SHT_NOTE = 7
BODY = "\n.text\n.globl answer\n.type answer, @function\nanswer: ret\n"


def note_source(text: str, *, owner: str = OWNER, name: str = NAME, alignment: int = 4) -> str:
    """Return the assembler source of a library with one note, padded as the gABI says."""
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
    """Return where the section header of the only note is in DATA, a 64-bit file."""
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


def test_the_note_is_read_as_nvidia_writes_it() -> None:
    """Byte for byte, made without an assembler: the owner's 19 bytes padded to 20, keys in lower case."""
    data = compat_library(NOTE_575)
    assert b"\x13\0\0\0\x69\0\0\0\x01\0\0\0NVIDIA Corporation\0\0" + NOTE_575.encode() in data
    assert read(data) == (535, 550, 560, 565, 570, 575)


@pytest.mark.parametrize("changed", [NOTE_590.upper(), NOTE_590.title(), NOTE_590.replace(":", ": ")])
def test_keys_of_the_note_are_matched_in_any_case(changed: str) -> None:
    """The toolkit reads it with Go's encoding/json, which does not look at the case of keys."""
    assert read(compat_library(changed)) == NOTE


def test_the_note_of_a_32_bit_library_is_read(tmp_path: Path) -> None:
    assert read(assemble(tmp_path, note_source(TEXT), "-m32")) == NOTE


@pytest.mark.parametrize("alignment", [1, 4, 8])
def test_a_note_may_be_padded_in_any_way(alignment: int, tmp_path: Path) -> None:
    assert read(assemble(tmp_path, note_source(TEXT, alignment=alignment))) == NOTE


def test_other_notes_of_a_library_are_passed_over(tmp_path: Path) -> None:
    assert read(assemble(tmp_path, note_source(TEXT), "-Wl,--build-id")) == NOTE


def test_a_library_of_tegra_names_no_branch(tmp_path: Path) -> None:
    made = assemble(tmp_path, note_source('{"format":1,"CUDA version":"13.2"}'))
    assert read(made) == ()


@pytest.mark.parametrize(
    "source",
    [BODY, note_source(TEXT, owner="GNU"), note_source(TEXT, name=".note.other"), note_source("")],
    ids=["no note", "another owner", "another section", "an empty note"],
)
def test_a_library_without_the_note_has_none(source: str, tmp_path: Path) -> None:
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
def test_a_note_of_another_form_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
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
        (60, "<H", 0xFFFF, "65535 sections are more than 256"),
        (62, "<H", 0xFFFF, "no names at 65535"),
        (4, "<B", 3, "neither 32-bit nor 64-bit"),
        (16, "<H", 2, "not a shared object"),
    ],
)
def test_a_damaged_header_is_refused(
    offset: int, format_: str, value: int, message: str, library: bytes
) -> None:
    assert message in refusal(patched(library, offset, format_, value))


def test_a_note_that_claims_more_than_its_section_ends_with_it(library: bytes) -> None:
    at = library.index(struct.pack("<III", len(OWNER) + 1, len(TEXT), 1))
    assert read(patched(library, at + 4, "<I", 2**32 - 1)) == NOTE
    assert read(patched(library, at, "<I", 2**32 - 1)) is None


def test_what_is_no_shared_object_is_refused() -> None:
    assert "not an ELF file" in refusal(b"")
    assert "not an ELF file" in refusal(b"#!/bin/sh\n")


def test_a_library_cut_off_at_any_byte_gives_its_note_or_an_elf_error(library: bytes) -> None:
    for length in range(len(library)):
        assert refusal(library[:length]) or read(library[:length]) in {None, NOTE}


def test_a_file_that_is_shorter_than_it_was_is_refused(library: bytes) -> None:
    def read_at(offset: int, length: int) -> bytes:
        return library[offset : offset + length][:-1]

    with pytest.raises(ElfError, match="cut off"):
        read_note(read_at, len(library))


@FUZZ
@given(changes=CHANGES)
def test_a_changed_library_raises_nothing_but_elf_error(
    library: bytes, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(library)
    for position, value in changes:
        data[position % len(data)] = value
    assert "\n" not in refusal(bytes(data))


@FUZZ
@given(text=st.binary(max_size=60))
def test_any_text_of_a_note_raises_nothing_but_elf_error(library: bytes, text: bytes) -> None:
    at = library.index(TEXT.encode())
    assert "\n" not in refusal(library[:at] + text + library[at + len(text) :])


def test_little_is_read_of_a_large_library(library: bytes) -> None:
    lengths = []

    def read_at(offset: int, length: int) -> bytes:
        lengths.append(length)
        return library[offset : offset + length].ljust(length, b"\0")

    assert read_note(read_at, 1 << 40) == NOTE
    assert sum(lengths) < 8 << 10


def test_no_file_makes_us_read_more_than_64_kib() -> None:
    """The bomb: a dynamic section of 1 MiB in a file that claims to have it."""
    segments = struct.pack("<IIQQQQQQ", 2, 4, 120, 120, 120, 1 << 20, 1 << 20, 8)
    header = struct.pack("<4sBBB9xHHI3QI6H", b"\x7fELF", 2, 1, 1, 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    lengths = []

    def read_at(offset: int, length: int) -> bytes:
        lengths.append(length)
        return (header + segments)[offset : offset + length].ljust(length, b"\1")

    with pytest.raises(ElfError, match="more than 65536 bytes would have to be read"):
        read_note(read_at, 1 << 40)
    assert sum(lengths) <= cuda_compat.MAX_READ


def test_json_is_imported_for_a_note_only() -> None:
    program = "import sys, cdigen.binfmt.cuda_compat; print('json' in sys.modules)"
    root = Path(cuda_compat.__file__).parents[2]
    output = subprocess.run([sys.executable, "-S", "-c", program], check=True, capture_output=True, cwd=root)
    assert output.stdout == b"False\n"


@pytest.mark.parametrize(
    ("library_version", "host", "expected"),
    [
        ("590.44.01", "580.65.06", True),
        ("590.44.01", "535.104.05", True),
        ("590.44.01", "565.57.01", False),  # newer, but no branch of the note
        ("590.44.01", "590.44.01", False),
        ("590.44.01", "590.44.02", False),
        ("590.44.01", "590.9.99", True),  # numbers, not text
        ("590.44.01", "590.44", True),
    ],
)
def test_with_a_note_the_branch_is_in_it_and_the_library_newer(
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
def test_without_a_note_the_librarys_branch_is_greater(
    library_version: str, host: str, *, expected: bool
) -> None:
    assert suits(library_version, None, host) is expected


def test_a_note_without_branches_suits_no_host() -> None:
    assert not suits("590.44.01", (), "580.65.06")


@pytest.mark.parametrize(
    "version", ["", "590.", ".590", "590.x", "-590.1", "590 .1", "\N{SUPERSCRIPT TWO}.1", "9" * 5000]
)
def test_a_version_that_is_not_made_of_numbers_suits_nothing(version: str) -> None:
    assert not suits(version, None, "1.1")
    assert not suits("590.44.01", NOTE, version)


@given(st.text(), st.text())
def test_any_text_may_stand_for_a_version(library_version: str, host: str) -> None:
    assert suits(library_version, None, host) in {True, False}
