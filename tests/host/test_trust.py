"""A process of root loads only files that no other user can write or replace."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.nvml.standin import trusted_folder

from cdigen.host.trust import untrusted

STRANGER = 12345


@pytest.fixture
def folder() -> Iterator[Path]:
    with trusted_folder() as made:
        yield made


@pytest.fixture
def library(folder: Path) -> Path:
    path = folder / "lib" / "libnvidia-ml.so.1"
    path.parent.mkdir(mode=0o755)
    path.touch(mode=0o644)
    return path


def test_a_file_that_only_root_may_write_is_trusted(library: Path) -> None:
    assert untrusted(str(library)) == ""


def test_a_file_of_the_system_is_trusted() -> None:
    assert untrusted("/etc/passwd") == ""


@pytest.mark.parametrize("levels", [0, 1, 2], ids=["file", "folder", "folder above"])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_a_path_that_everyone_may_write_is_not_trusted(library: Path, levels: int, mode: int) -> None:
    place = (library, *library.parents)[levels]
    place.chmod(mode)
    assert untrusted(str(library)) == f"{place} is writable by everyone"


@pytest.mark.usefixtures("other_users")
@pytest.mark.parametrize("levels", [0, 1, 2], ids=["file", "folder", "folder above"])
def test_a_path_of_another_user_is_not_trusted(library: Path, levels: int) -> None:
    place = (library, *library.parents)[levels]
    os.chown(place, STRANGER, 0)
    assert untrusted(str(library)) == f"{place} belongs to uid {STRANGER}, not to root"


@pytest.mark.usefixtures("other_users")
@pytest.mark.parametrize("levels", [0, 1], ids=["file", "folder"])
def test_a_path_that_a_group_may_write_is_not_trusted(library: Path, levels: int) -> None:
    place = (library, *library.parents)[levels]
    os.chown(place, 0, STRANGER)
    place.chmod(0o775)
    assert untrusted(str(library)) == f"{place} is writable by the group {STRANGER}"


@pytest.mark.usefixtures("other_users")
def test_a_path_that_roots_group_may_write_is_trusted(library: Path) -> None:
    library.parent.chmod(0o775)
    library.chmod(0o664)
    assert untrusted(str(library)) == ""


@pytest.mark.usefixtures("other_users")
def test_a_folder_like_the_nix_store_is_trusted_for_files_of_root(library: Path) -> None:
    os.chown(library.parent, 0, STRANGER)
    library.parent.chmod(0o1775)
    assert untrusted(str(library)) == ""
    os.chown(library, STRANGER, 0)
    assert untrusted(str(library)) != ""


@pytest.mark.usefixtures("other_users")
def test_a_group_writable_file_with_the_sticky_bit_is_not_trusted(library: Path) -> None:
    os.chown(library, 0, STRANGER)
    library.chmod(0o1664)
    assert untrusted(str(library)) == f"{library} is writable by the group {STRANGER}"


@pytest.mark.usefixtures("other_users")
def test_an_access_list_is_checked_if_only_roots_group_may_write(library: Path) -> None:
    # acl(5) in the kernel's form: version 2, then tag, permissions, id of each entry.
    entries = ((0x01, 6, -1), (0x02, 6, STRANGER), (0x04, 4, -1), (0x10, 6, -1), (0x20, 4, -1))
    value = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little") + rights.to_bytes(2, "little") + (who & 0xFFFFFFFF).to_bytes(4, "little")
        for tag, rights, who in entries
    )
    try:
        os.setxattr(library, "system.posix_acl_access", value)
    except OSError as error:
        cannot_run(f"no access lists here: {error.strerror}")
    assert untrusted(str(library)) == f"{library} is writable by users other than root (see getfacl)"


@pytest.mark.usefixtures("library")
def test_the_folder_of_a_link_is_also_checked(folder: Path) -> None:
    open_to_all = folder / "open"
    open_to_all.mkdir()
    (open_to_all / "link").symlink_to("../lib/libnvidia-ml.so.1")
    assert untrusted(str(open_to_all / "link")) == ""
    open_to_all.chmod(0o777)
    assert untrusted(str(open_to_all / "link")) == f"{open_to_all} is writable by everyone"


def test_each_folder_in_a_chain_of_links_is_checked(folder: Path, library: Path) -> None:
    middle = folder / "middle"
    middle.mkdir()
    (middle / "lib").symlink_to(library.parent)
    (folder / "first").symlink_to("middle/lib")
    path = str(folder / "first" / library.name)
    assert untrusted(path) == ""
    middle.chmod(0o777)
    assert untrusted(path) == f"{middle} is writable by everyone"


@pytest.mark.usefixtures("other_users")
def test_a_link_of_another_user_is_not_trusted(folder: Path, library: Path) -> None:
    link = folder / "link"
    link.symlink_to(library)
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    assert untrusted(str(link)) == f"{link} belongs to uid {STRANGER}, not to root"


def test_each_folder_of_a_path_with_dots_is_checked(folder: Path, library: Path) -> None:
    (folder / "aside").mkdir(mode=0o777)
    (folder / "aside").chmod(0o777)
    path = f"{folder}/aside/.././/lib/{library.name}"
    assert untrusted(path) == f"{folder / 'aside'} is writable by everyone"


@pytest.mark.usefixtures("own_mounts")
def test_a_link_that_the_kernel_resolves_to_another_target_is_not_trusted(library: Path) -> None:
    """The text of /proc/PID/root is "/", but the kernel resolves the link to the root of the process PID."""
    script = 'mount -t tmpfs none "$1" && touch "$1/$2" && echo ready && read end'
    unshare = ("unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh")
    other = subprocess.Popen(
        [*unshare, library.parent, library.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "ready\n"
        assert untrusted(str(library)) == ""
        path = f"/proc/{other.pid}/root{library}"
        assert untrusted(path) == f"{path} leads to another file than {library}, the target of its links"
    finally:
        other.communicate()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("lib/libnvidia-ml.so.1", "is not an absolute path"),
        ("", "is not an absolute path"),
        ("/nowhere/lib.so", "cannot be examined: No such file or directory"),
        ("/etc/passwd/lib.so", "cannot be examined: Not a directory"),
        ("/etc/\0", "is not a path"),
        ("/" + "a" * 300, "cannot be examined: File name too long"),
        ("/nowhere/\udcff\n", "cannot be examined"),
    ],
)
def test_a_path_that_cannot_be_examined_is_not_trusted(path: str, words: str) -> None:
    reason = untrusted(path)
    assert words in reason
    assert reason.isprintable()


def test_links_in_a_circle_are_not_trusted(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    assert "Too many levels of symbolic links" in untrusted(str(folder / "a"))


@pytest.mark.usefixtures("other_users")
def test_a_file_of_a_user_is_trusted_only_by_processes_of_this_user() -> None:
    with tempfile.TemporaryDirectory(prefix="cdigen-test-", dir="/run") as made:
        Path(made).chmod(0o755)
        library = Path(made) / "library"
        library.touch(mode=0o644)
        os.chown(library, STRANGER, STRANGER)
        assert untrusted(str(library)) == f"{library} belongs to uid {STRANGER}, not to root"
        assert _as_user(STRANGER, str(library)) == ""
        assert _as_user(STRANGER + 1, str(library)) != ""


def _as_user(uid: int, path: str) -> str:
    """Return the result for PATH in a process of this user."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setuid(uid)
        os.write(writing, untrusted(path).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return text
