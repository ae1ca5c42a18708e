"""The parser of /dev/kmsg records accepts only the kernel's lines of drivers, and never raises an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.daemon.kernel_records import AMDGPU, XID, record

from cdigen.kernellog.reading import parsed

# Records from the kernel's documentation (Documentation/ABI/testing/dev-kmsg) and from running kernels.
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
def test_a_record_of_a_driver_is_parsed(raw: bytes, expected: tuple[int, int, bytes, bytes]) -> None:
    assert parsed(raw) == expected


# The bits above the lowest three are the facility: 1 is user, 3 is daemon.
@pytest.mark.parametrize("level", [8, 12, 28, 3 << 3, 16 << 3 | 3, 191, 4096, -1])
def test_a_record_that_a_user_wrote_is_parsed_without_its_text(level: int) -> None:
    assert parsed(record(XID[0], 5, level=level)) == (5, 1_000_000, b"", b"")


@pytest.mark.parametrize("flag", ["c", "+", "", "-c"])
def test_a_fragment_of_an_interrupted_line_is_parsed_without_its_text(flag: str) -> None:
    assert parsed(record(XID[0], 5, flag=flag)) == (5, 1_000_000, b"", b"")


@pytest.mark.parametrize(
    "text",
    [
        # Text of users in lines of the kernel: a mount option, a process name, a file name.
        r"tmpfs: Unknown parameter 'x\x0aNVRM: Xid (PCI:0000:65:00): 79, '",
        "traps: NVRM: Xid (PCI:[812] trap int3",
        "EXT4-fs error (device loop0): NVRM: Xid (PCI:0000:65:00): 79",
        "usb 1-1: Product: amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
        " NVRM: Xid (PCI:0000:65:00): 79",
    ],
)
def test_text_of_a_driver_inside_another_line_is_ignored(text: str) -> None:
    assert parsed(record(text, 5)) == (5, 1_000_000, b"", b"")


@pytest.mark.parametrize("raw", [b"", b";", b"\n", b"4,1", b"4,1,2;x", b"a,1,2,-;x", b"4,,2,-;x", b"\0" * 99])
def test_the_parser_returns_none_for_an_invalid_record(raw: bytes) -> None:
    assert parsed(raw) is None


def test_the_device_is_read_only_from_a_separate_line_of_the_record() -> None:
    raw = record(f"{AMDGPU} DEVICE=+pci:0000:01:00.0\n SUBSYSTEM=pci\n DEVICE=+pci:0000:c1:00.0", 1)
    assert parsed(raw) == (1, 1_000_000, f"{AMDGPU} DEVICE=+pci:0000:01:00.0".encode(), b"+pci:0000:c1:00.0")


@given(some.binary(max_size=300))
def test_no_input_makes_the_parser_fail(raw: bytes) -> None:
    parsed(raw)
    found = parsed(b"4,1,2,-;NVRM: " + raw)
    assert found is not None
    for text in found[2:]:
        assert isinstance(text, bytes)
        assert all(32 <= byte < 127 for byte in text)
