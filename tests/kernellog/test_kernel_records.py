"""A record of /dev/kmsg: what is believed, what is of interest, and that nothing makes it fail."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.daemon.kernel_records import AMDGPU, XID, record

from cdigen.kernellog.records import parsed

# As printk's own documentation has it (Documentation/ABI/testing/dev-kmsg), and as kernels write them.
RECORDED = [
    (
        b"3,1157,103525842,-;" + XID[0].encode() + b"\n",
        (1157, 103525842, XID[0].encode(), b""),
    ),
    (
        b"4,339,5140900,-,caller=T18;pcieport 0000:00:01.0: DPC: containment\n DEVICE=+pci:0000:00:01.0\n",
        (
            339,
            5140900,
            b"pcieport 0000:00:01.0: DPC: containment",
            b"+pci:0000:00:01.0",
        ),
    ),
    (
        b"6,1,0,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 01 sourcetrack timeout\n",
        (1, 0, b"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 01 sourcetrack timeout", b""),
    ),
    (
        b'3,2,7,-;xe 0000:03:00.0: [drm] \\xc2\\xb5 \\x5c "x"\n',
        (2, 7, b'xe 0000:03:00.0: [drm] \\xc2\\xb5 \\x5c "x"', b""),
    ),
]


@pytest.mark.parametrize(("raw", "expected"), RECORDED)
def test_a_drivers_record_is_read_as_the_kernel_writes_it(
    raw: bytes, expected: tuple[int, int, bytes, bytes]
) -> None:
    assert parsed(raw) == expected


# The facility is what is above the lowest three bits: 1 is of users, 3 of daemons.
@pytest.mark.parametrize("level", [8, 12, 28, 3 << 3, 16 << 3 | 3, 191, 4096, -1])
def test_what_anybody_may_have_written_has_no_text(level: int) -> None:
    assert parsed(record(XID[0], 5, level=level)) == (5, 1_000_000, b"", b"")


@pytest.mark.parametrize("flag", ["c", "+", "", "-c"])
def test_the_piece_of_a_line_that_another_one_has_cut_is_not_believed(flag: str) -> None:
    assert parsed(record(XID[0], 5, flag=flag)) == (5, 1_000_000, b"", b"")


@pytest.mark.parametrize(
    "text",
    [
        # Text of users within lines of the kernel: a mount option, a process's name, a file's.
        r"tmpfs: Unknown parameter 'x\x0aNVRM: Xid (PCI:0000:65:00): 79, '",
        "traps: NVRM: Xid (PCI:[812] trap int3",
        "EXT4-fs error (device loop0): NVRM: Xid (PCI:0000:65:00): 79",
        "usb 1-1: Product: amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
        " NVRM: Xid (PCI:0000:65:00): 79",
    ],
)
def test_a_drivers_words_further_on_in_a_line_are_no_drivers_line(text: str) -> None:
    assert parsed(record(text, 5)) == (5, 1_000_000, b"", b"")


@pytest.mark.parametrize("raw", [b"", b";", b"\n", b"4,1", b"4,1,2;x", b"a,1,2,-;x", b"4,,2,-;x", b"\0" * 99])
def test_what_is_no_record_is_none(raw: bytes) -> None:
    assert parsed(raw) is None


def test_only_a_line_of_its_own_names_the_device() -> None:
    raw = record(f"{AMDGPU} DEVICE=+pci:0000:01:00.0\n SUBSYSTEM=pci\n DEVICE=+pci:0000:c1:00.0", 1)
    assert parsed(raw) == (1, 1_000_000, f"{AMDGPU} DEVICE=+pci:0000:01:00.0".encode(), b"+pci:0000:c1:00.0")


@given(some.binary(max_size=300))
def test_nothing_makes_it_fail(raw: bytes) -> None:
    parsed(raw)
    found = parsed(b"4,1,2,-;NVRM: " + raw)
    assert found is not None
    for text in found[2:]:
        assert isinstance(text, bytes)
        assert all(32 <= byte < 127 for byte in text)
