"""``Root`` resolves paths as the kernel does after chroot(2)."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts.driver_files import link, put
from support.hosts.nvidia import empty_root
from support.law_examples import examples

from cdigen.host.root import MAX_LINKS, Root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    Resolve = Callable[[Path, list[str]], list[str | int]]

NAMES = ("a", "b", "c")
LAWS = examples(4)

# The parts of a tree: paths and files. The targets of links lead up, down, to missing files and in circles.
PARTS = st.sampled_from([*NAMES, *NAMES, "..", ".", ""])
TARGETS = st.builds(
    lambda start, parts, end: f"{start}{'/'.join(parts)}{end}" or ".",
    st.sampled_from(["", "/", "../", "../../../../"]),
    st.lists(PARTS, max_size=4),
    st.sampled_from(["", "/", "/."]),
)
PLACES = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
TREES = st.lists(st.tuples(PLACES, st.just("folder") | st.just("file") | TARGETS), max_size=12)
PATHS = st.lists(TARGETS.map("/{}".format), min_size=1, max_size=8)


def grow(root: Path, tree: Iterable[tuple[str, str]]) -> None:
    """Create TREE below ROOT, without entries that have a file or a link on their path."""
    for place, what in tree:
        path = root / place
        if any(parent.is_symlink() or parent.is_file() for parent in path.parents if root in parent.parents):
            continue
        if path.is_symlink() or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if what == "folder":
            path.mkdir()
        elif what == "file":
            path.write_text(place)
        else:
            path.symlink_to(what)


# Each line of standard input is a root and paths. The program prints the kernel's result for each path below
# that root: its canonical path, or an errno. It forks for each line, which is cheap for a small process.
RESOLVER = """
import json, os, sys

def found(path, descriptors):
    try:
        opened = os.open(path, os.O_PATH)
    except OSError as error:
        return error.errno or 0
    try:
        real = os.readlink(str(opened), dir_fd=descriptors)
    finally:
        os.close(opened)
    assert os.path.realpath(path, strict=True) == real
    return real

for line in sys.stdin:
    root, paths = json.loads(line)
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    try:
        descriptors = os.open("/proc/self/fd", os.O_RDONLY)
        os.chroot(root)
        os.chdir("/")
        answer = [found(path, descriptors) for path in paths]
    except BaseException as error:
        answer = repr(error)
    print(json.dumps(answer), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def after_chroot(real_root: None) -> Iterator[Resolve]:
    """Yield a function that returns the kernel's results (paths or errnos) for paths below a root."""
    del real_root
    command = [sys.executable, "-I", "-S", "-c", RESOLVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as resolver:
        assert resolver.stdin
        assert resolver.stdout
        requests, answers = resolver.stdin, resolver.stdout

        def ask(root: Path, paths: list[str]) -> list[str | int]:
            print(json.dumps([str(root), paths]), file=requests, flush=True)
            answer: list[str | int] = json.loads(answers.readline())
            assert isinstance(answer, list), answer
            return answer

        yield ask


def resolved_by_root(root: Root, path: str) -> str | int:
    try:
        return root.resolve(path)
    except OSError as error:
        return error.errno or 0


@LAWS
@given(TREES, PATHS)
def test_root_resolves_each_path_as_the_kernel_does_after_chroot(
    after_chroot: Resolve, tree: list[tuple[str, str]], paths: list[str]
) -> None:
    with empty_root() as folder:
        grow(folder, tree)
        root = Root(str(folder))
        assert [resolved_by_root(root, path) for path in paths] == after_chroot(folder, paths)


@LAWS
@given(TREES, PATHS)
def test_cached_folders_do_not_change_results(tree: list[tuple[str, str]], paths: list[str]) -> None:
    with empty_root() as folder:
        grow(folder, tree)
        root = Root(str(folder))
        first = [resolved_by_root(root, path) for path in paths]
        assert [resolved_by_root(root, path) for path in paths] == first
        assert [resolved_by_root(Root(str(folder)), path) for path in paths] == first


def test_a_link_to_a_folder_that_exists_only_outside_does_not_lead_out_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    link(tmp_path / "tree/dev/caps", str(tmp_path / "outside"))
    host = Root(str(tmp_path / "tree"))
    assert not host.exists("/dev/caps/cap1")
    assert host.resolve_new("/dev/caps/cap1") == f"{tmp_path}/outside/cap1"


@LAWS
@given(TREES, PATHS)
def test_a_canonical_path_resolves_to_itself(tree: list[tuple[str, str]], paths: list[str]) -> None:
    with empty_root() as folder:
        grow(folder, tree)
        root = Root(str(folder))
        for path in paths:
            real = resolved_by_root(root, path)
            if isinstance(real, str):
                assert root.resolve(real) == real
                assert not (folder / real.lstrip("/")).is_symlink()


@pytest.mark.parametrize("length", [MAX_LINKS, MAX_LINKS + 1])
def test_root_follows_as_many_links_as_the_kernel(after_chroot: Resolve, tmp_path: Path, length: int) -> None:
    put(tmp_path / "0")
    for number in range(1, length + 1):
        link(tmp_path / str(number), str(number - 1))
    result = resolved_by_root(Root(str(tmp_path)), f"/{length}")
    assert result == ("/0" if length <= MAX_LINKS else errno.ELOOP)
    assert after_chroot(tmp_path, [f"/{length}"]) == [result]


def test_a_folder_below_a_root_can_be_a_root(tmp_path: Path) -> None:
    put(tmp_path / "run/driver/usr/lib/libcuda.so.1")
    link(tmp_path / "run/driver/lib", "/usr/lib")
    link(tmp_path / "drv", "/run/driver")
    below = Root(str(tmp_path)).below("/drv")
    assert below.resolve("/lib/libcuda.so.1") == "/usr/lib/libcuda.so.1"
    assert below.host_path("/usr/lib") == "/run/driver/usr/lib"


def test_below_returns_the_same_object_for_the_path_of_the_root(tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    assert root.below("/") is root


def test_below_raises_an_error_for_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Root(str(tmp_path)).below("/missing")


def test_only_the_default_root_is_this_machine(tmp_path: Path) -> None:
    assert Root().is_this_machine
    assert not Root(str(tmp_path)).is_this_machine
    assert Root().outer_path("/usr") == "/usr"
    assert Root(str(tmp_path)).outer_path("/usr") == f"{tmp_path}/usr"


def test_a_path_with_a_nul_byte_raises_an_os_error(tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    for path in ("/a\0b", "/a\0b/c", "/\0"):
        for call in (root.resolve, root.resolve_new, root.stat, root.listdir, root.read, root.below):
            with pytest.raises(OSError, match="NUL") as caught:
                call(path)
            assert caught.value.errno == errno.EINVAL
        assert not root.exists(path)
        assert root.names(path) == []


def test_a_folder_that_was_made_later_is_found_after_forget_missing(tmp_path: Path) -> None:
    host = Root(str(tmp_path))
    assert not host.exists("/views/1/file")
    (tmp_path / "views/1").mkdir(parents=True)
    (tmp_path / "views/1/file").touch()
    host.forget_missing()
    assert host.exists("/views/1/file")
