"""A Root reads only regular files below its folder, up to a size limit."""

from __future__ import annotations

import errno
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts.driver_files import link, put
from support.hosts.nvidia import empty_root, make_instead
from support.law_examples import examples

from cdigen.host.root import Root, is_plain, reason, shown

SECRET = b"not for containers"


class Opened:
    """A context manager that records which paths this process opens or lists, by an audit hook."""

    paths: list[str]
    active = False

    @classmethod
    def note(cls, event: str, arguments: tuple[object, ...]) -> None:
        if cls.active and event in {"open", "os.listdir", "os.scandir"}:
            path = arguments[0]
            cls.paths.append(os.fsdecode(path) if isinstance(path, str | bytes | Path) else str(path))

    def __enter__(self) -> list[str]:
        Opened.paths, Opened.active = [], True
        return Opened.paths

    def __exit__(self, *_: object) -> None:
        Opened.active = False


sys.addaudithook(Opened.note)


def read(root: Path, path: str, limit: int = 100) -> bytes:
    return Root(str(root)).read(path, limit=limit)


def error_of(root: Path, path: str, limit: int = 100) -> int | None:
    with pytest.raises(OSError, match=r"\S") as caught:
        read(root, path, limit)
    assert reason(caught.value).isprintable()
    return caught.value.errno


def test_a_file_is_read_completely(tmp_path: Path) -> None:
    put(tmp_path / "a/b", b"content")
    assert read(tmp_path, "/a/b") == b"content"


def test_a_file_as_large_as_the_limit_is_read(tmp_path: Path) -> None:
    put(tmp_path / "a", b"x" * 100)
    assert read(tmp_path, "/a") == b"x" * 100


def test_a_file_larger_than_the_limit_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "a", b"x" * 101)
    assert error_of(tmp_path, "/a") == errno.EFBIG


def test_files_of_proc_are_read_although_their_size_is_zero() -> None:
    assert Root().read("/proc/self/stat").startswith(str(os.getpid()).encode())


def test_an_endless_device_is_refused() -> None:
    with pytest.raises(OSError, match="not a regular file"):
        Root().read("/dev/zero")


@pytest.mark.parametrize("kind", ["FIFO", "folder"])
def test_a_fifo_or_a_folder_is_refused_without_waiting(tmp_path: Path, kind: str) -> None:
    make_instead(tmp_path / "a", kind)
    assert error_of(tmp_path, "/a") == errno.EISDIR


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/missing", errno.ENOENT),
        ("/file/below", errno.ENOTDIR),
        ("/loop", errno.ELOOP),
        ("/dangling", errno.ENOENT),
    ],
)
def test_a_path_that_cannot_be_resolved_raises_the_kernels_error(
    tmp_path: Path, path: str, expected: int
) -> None:
    put(tmp_path / "file")
    link(tmp_path / "loop", "loop")
    link(tmp_path / "dangling", "nowhere")
    assert error_of(tmp_path, path) == expected


def test_a_piece_of_a_file_is_read_at_its_offset(tmp_path: Path) -> None:
    put(tmp_path / "a", b"0123456789")
    with Root(str(tmp_path)).open("/a") as file:
        assert (file.read_at(3, 4), file.read_at(8, 4), file.read_at(20, 4)) == (b"3456", b"89", b"")
        assert (file.path, file.size) == ("/a", 10)


def test_an_open_file_is_closed_at_the_end(tmp_path: Path) -> None:
    put(tmp_path / "a")
    with Root(str(tmp_path)).open("/a") as file:
        os.fstat(file.descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file.descriptor)


def test_no_descriptor_is_left_open_by_a_refusal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    put(tmp_path / "large", b"x" * 200)
    before = os.listdir("/proc/self/fd")
    for path in ("/fifo", "/large", "/missing"):
        error_of(tmp_path, path)
    assert os.listdir("/proc/self/fd") == before


def test_the_names_in_a_folder_are_sorted(tmp_path: Path) -> None:
    for name in ("b", "a", "C", "ä"):
        put(tmp_path / "folder" / name)
    assert Root(str(tmp_path)).listdir("/folder") == ["C", "a", "b", "ä"]


def test_a_path_that_is_not_a_folder_has_no_names(tmp_path: Path) -> None:
    put(tmp_path / "file")
    root = Root(str(tmp_path))
    assert (root.names("/file"), root.names("/missing")) == ([], [])
    with pytest.raises(NotADirectoryError):
        root.listdir("/file")


def test_a_file_name_that_is_not_utf8_can_be_listed_and_read(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff\xfe", "wb") as file:
        file.write(b"content")
    root = Root(str(tmp_path))
    (name,) = root.names("/")
    assert root.read(f"/{name}") == b"content"


ESCAPES = st.sampled_from(
    ["/secret", "secret", "../secret", "../../secret", "{}/secret", "{}", "..", "/", "a", "a/b"]
)


@examples(4)
@given(st.dictionaries(st.sampled_from(["a", "b", "c/d", "c/e"]), ESCAPES), st.lists(ESCAPES))
def test_no_path_outside_the_root_is_opened(links: dict[str, str], more: list[str]) -> None:
    with empty_root() as folder:
        inside, outside = folder / "root", folder / "outside"
        put(outside / "secret", SECRET)
        put(folder / "secret", SECRET)
        put(inside / "c/secret", b"inside")
        for name, target in links.items():
            with suppress(FileExistsError, NotADirectoryError):
                link(inside / name, target.format(outside))
        root = Root(str(inside))
        with Opened() as opened:
            for path in [f"/{each.format(outside)}" for each in [*more, *links, *links.values(), "c/secret"]]:
                with suppress(OSError):
                    assert root.read(path) != SECRET
                with suppress(OSError):
                    root.stat(path)
                root.names(path)
                root.exists(path)
        assert opened
        assert all(os.path.realpath(path).startswith(f"{inside}") for path in opened)


def test_no_file_outside_is_read_while_a_folder_is_swapped_with_a_link(tmp_path: Path) -> None:
    inside, outside = tmp_path / "root", tmp_path / "outside"
    put(inside / "folder/file", b"inside")
    put(outside / "file", SECRET)
    link(tmp_path / "way out", str(outside))
    done = threading.Event()

    def swap_again_and_again() -> None:
        while not done.is_set():
            os.rename(inside / "folder", tmp_path / "kept")
            os.rename(tmp_path / "way out", inside / "folder")
            os.rename(inside / "folder", tmp_path / "way out")
            os.rename(tmp_path / "kept", inside / "folder")

    swapping = threading.Thread(target=swap_again_and_again)
    swapping.start()
    results: set[bytes | int | None] = set()
    try:
        for _ in range(4000):
            try:
                results.add(Root(str(inside)).read("/folder/file"))
            except OSError as error:
                results.add(error.errno)
    finally:
        done.set()
        swapping.join()
    assert b"inside" in results
    assert SECRET not in results


@pytest.mark.parametrize(
    ("path", "plain"),
    [("/usr/lib", True), ("/my driver", True), ("/ド", True), ("/a\nb", False), ("/\udcff", False)],
)
def test_a_path_is_plain_if_a_spec_can_contain_it(path: str, plain: bool) -> None:  # noqa: FBT001 - a table
    assert is_plain(path) is plain


@given(st.text())
def test_any_path_is_shown_in_one_line(path: str) -> None:
    assert shown(path).isprintable()
