"""/proc: small text files of the kernel."""

from pathlib import Path

import pytest
from support.hosts.driver_files import put

from cdigen.host.procfs import kernel_release, read_text
from cdigen.host.root import Root

RELEASE = "proc/sys/kernel/osrelease"


def test_the_kernels_release_is_read_without_its_newline(tmp_path: Path) -> None:
    put(tmp_path / RELEASE, b"6.12.30-amd64\n")
    assert kernel_release(Root(str(tmp_path))) == "6.12.30-amd64"


def test_an_unknown_release_is_empty(tmp_path: Path) -> None:
    assert kernel_release(Root(str(tmp_path))) == ""


def test_invalid_utf8_becomes_replacement_characters(tmp_path: Path) -> None:
    put(tmp_path / "a", b"\xff\xfetext")
    assert read_text(Root(str(tmp_path)), "/a") == "\ufffd\ufffdtext"


def test_a_text_that_is_too_large_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "a", b"x" * 65537)
    with pytest.raises(OSError, match="larger than 65536 bytes"):
        read_text(Root(str(tmp_path)), "/a")


@pytest.mark.parametrize("content", [b"6.12\0\n", b"../../..\n", b"6.12\n6.13\n", b""])
def test_a_text_that_cannot_be_a_folder_name_is_not_a_release(tmp_path: Path, content: bytes) -> None:
    put(tmp_path / RELEASE, content)
    assert kernel_release(Root(str(tmp_path))) == ""
