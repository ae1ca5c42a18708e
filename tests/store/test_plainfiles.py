"""Writes to files that the user names, in folders with links, files and FIFOs of other users."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import sys
from itertools import product
from typing import TYPE_CHECKING

import pytest
from support.store.users import ALICE, MALLORY, ROOT, by, folder

from cdigen.model.errors import StoreError
from cdigen.store import plainfiles
from cdigen.store.directory import open_or_create

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = b"root's own"
NEW = b"a spec"


def file(path: Path, owner: int = ROOT, mode: int = 0o600) -> Path:
    path.write_bytes(SECRET)
    os.chown(path, owner, owner)
    path.chmod(mode)
    return path


def link(path: Path, target: Path | str, owner: int) -> Path:
    path.symlink_to(target)
    os.chown(path, owner, owner, follow_symlinks=False)
    return path


def saved(path: Path) -> Callable[[], None]:
    return lambda: plainfiles.save_file(str(path), NEW)


@pytest.mark.parametrize(
    ("mode", "folder_owner", "link_owner", "user"),
    list(product((0o1777, 0o755), (ROOT, ALICE), (ROOT, ALICE, MALLORY), (ROOT, ALICE))),
)
def test_the_kernels_rule_for_links_in_sticky_folders_is_applied(
    mode: int, folder_owner: int, link_owner: int, user: int, top: Path
) -> None:
    # The target belongs to the owner of the link, so only the kernel's rule for links can refuse the write.
    target = file(folder(top / "target", link_owner, 0o777) / "file", link_owner, 0o666)
    planted = link(folder(top / "drop", folder_owner, mode) / "spec.json", target, link_owner)
    is_followed = mode != 0o1777 or link_owner in {user, folder_owner}
    message = by(user, saved(planted))
    if is_followed and (user in {ROOT, link_owner}):
        assert message == ""
        assert target.read_bytes() == NEW
    elif not is_followed:
        assert message.startswith(
            f"{planted} is a symlink of uid {link_owner} in a folder where everyone may write"
        )
        assert target.read_bytes() == SECRET
    assert planted.is_symlink()


@pytest.mark.parametrize("parent", ["{drop}/link", "{drop}/link/", "{drop}/./link"])
def test_a_link_of_another_user_in_the_path_of_a_file_is_refused(parent: str, top: Path) -> None:
    drop, etc = folder(top / "drop"), folder(top / "etc", mode=0o755)
    link(drop / "link", etc, MALLORY)
    parent = parent.format(drop=drop)
    for path in (f"{parent}/spec.json", f"{parent}/new/spec.json"):
        with pytest.raises(StoreError, match=f"symlink of uid {MALLORY}"):
            plainfiles.save_file(path, NEW)
        with pytest.raises(StoreError, match=f"symlink of uid {MALLORY}"):
            plainfiles.create(path, NEW)
    with pytest.raises(StoreError, match=f"symlink of uid {MALLORY}"), open_or_create(f"{drop}/link/cdi"):
        pass
    assert list(etc.iterdir()) == []


def test_a_trusted_link_through_a_link_of_another_user_is_refused(top: Path) -> None:
    etc = folder(top / "etc", mode=0o755)
    link(folder(top / "drop") / "planted", etc, MALLORY)
    trusted = link(top / "trusted", "drop/planted/spec.json", ROOT)
    with pytest.raises(StoreError, match=f"symlink of uid {MALLORY}"):
        plainfiles.save_file(str(trusted), NEW)
    assert list(etc.iterdir()) == []


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777])
@pytest.mark.parametrize("leads_to", ["file", "folder"])
def test_root_does_not_follow_a_link_of_a_user_to_a_file_of_another_user(
    leads_to: str, mode: int, top: Path
) -> None:
    """An example is `--output-dir /tmp/specs` if another user has made /tmp/specs with links in it."""
    roots = folder(top / "roots", mode=0o755)
    victim = file(roots / "victim")
    specs = folder(top / "specs", MALLORY, mode)
    planted = link(specs / "x", victim if leads_to == "file" else roots, MALLORY)
    with pytest.raises(
        StoreError, match=f"a symlink of uid {MALLORY} leads to .*, which belongs to another user"
    ):
        plainfiles.save_file(str(planted if leads_to == "file" else planted / "victim"), NEW)
    assert victim.read_bytes() == SECRET
    assert victim.stat().st_mode & 0o777 == 0o600


def test_root_follows_a_link_of_a_user_to_a_folder_of_the_same_user(top: Path) -> None:
    """An example is `sudo cdigen generate --output ~/latest/spec.json`."""
    home = folder(top / "home", ALICE, 0o755)
    folder(home / "data", ALICE, 0o755)
    link(home / "latest", "data", ALICE)
    for content in (NEW, SECRET):
        plainfiles.save_file(str(home / "latest/new/spec.json"), content)
        assert (home / "data/new/spec.json").read_bytes() == content


def test_a_replaced_file_keeps_its_owner_and_mode(top: Path) -> None:
    spec = file(folder(top / "home", ALICE, 0o755) / "spec.json", ALICE, 0o640)
    plainfiles.save_file(str(spec), NEW)
    status = spec.stat()
    assert (spec.read_bytes(), status.st_uid, status.st_gid) == (NEW, ALICE, ALICE)
    assert stat.S_IMODE(status.st_mode) == 0o640


def test_a_replaced_file_keeps_its_access_list(top: Path) -> None:
    shared = file(top / "spec.json", mode=0o640)
    # The kernel's format of the access list user::rw-, user:ALICE:r--, group::---, mask::r--, other::---
    rows = ((1, 6, -1), (2, 4, ALICE), (4, 0, -1), (16, 4, -1), (32, 0, -1))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)
    os.setxattr(shared, "system.posix_acl_access", acl)
    plainfiles.save_file(str(shared), NEW)
    assert os.getxattr(shared, "system.posix_acl_access") == acl
    assert shared.read_bytes() == NEW


def test_a_new_file_is_world_readable(top: Path) -> None:
    plainfiles.save_file(str(top / "new/spec.json"), NEW)
    assert stat.S_IMODE((top / "new/spec.json").stat().st_mode) == 0o644


@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_a_fifo_of_another_user_is_not_waited_for(mode: int, top: Path) -> None:
    foreign = folder(top / "drop", MALLORY, mode=mode) / "spec.json"
    os.mkfifo(foreign)
    os.chown(foreign, MALLORY, MALLORY)
    command = "import sys; from cdigen.store.plainfiles import save_file; save_file(sys.argv[1], b'x')"
    done = subprocess.run(
        [sys.executable, "-c", command, foreign],
        capture_output=True,
        check=False,
        cwd=os.getcwd(),
        timeout=60,
    )
    assert f"it is a FIFO of uid {MALLORY}".encode() in done.stderr


@pytest.mark.parametrize("mode", [0o1777, 0o1775])
@pytest.mark.parametrize("kind", ["file", "FIFO"])
def test_a_file_of_another_user_in_a_sticky_folder_is_not_written_to(mode: int, kind: str, top: Path) -> None:
    foreign = folder(top / "drop", mode=mode) / "spec.json"
    if kind == "FIFO":
        os.mkfifo(foreign)
        os.chown(foreign, MALLORY, MALLORY)
        reader = os.open(foreign, os.O_RDONLY | os.O_NONBLOCK)
    else:
        file(foreign, MALLORY, 0o666)
    with pytest.raises(StoreError, match=f"it (belongs to|is a FIFO of) uid {MALLORY}"):
        plainfiles.save_file(str(foreign), NEW)
    if kind == "FIFO":
        assert os.read(reader, 100) == b""
        os.close(reader)
    else:
        assert foreign.read_bytes() == SECRET


def test_a_hard_link_to_a_file_of_root_is_replaced_and_the_file_is_unchanged(top: Path) -> None:
    victim = file(top / "victim")
    planted = folder(top / "hers", MALLORY, 0o755) / "spec.json"
    os.link(victim, planted)
    plainfiles.save_file(str(planted), NEW)
    assert victim.read_bytes() == SECRET


def test_dev_stdout_is_written_to(top: Path) -> None:
    command = (
        "import sys; from cdigen.store.plainfiles import save_file; save_file(sys.argv[1], b'x' * 200_000)"
    )
    for path in ("/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"):
        done = subprocess.run(
            [sys.executable, "-c", command, path], capture_output=True, check=True, cwd=os.getcwd()
        )
        assert done.stdout == b"x" * 200_000
        with (top / "out").open("wb") as out:
            subprocess.run([sys.executable, "-c", command, path], stdout=out, check=True, cwd=os.getcwd())
        assert (top / "out").read_bytes() == b"x" * 200_000


def test_a_fifo_of_the_same_user_is_written_to(top: Path) -> None:
    os.mkfifo(top / "fifo")
    with subprocess.Popen(["cat", top / "fifo"], stdout=subprocess.PIPE) as reader:
        plainfiles.save_file(str(top / "fifo"), NEW)
        assert reader.communicate()[0] == NEW


@pytest.mark.parametrize("name", ["there", "link", "loop"])
def test_create_refuses_a_path_that_exists(name: str, top: Path) -> None:
    file(top / "there")
    link(top / "link", "nowhere", ROOT)
    link(top / "loop", "loop", ROOT)
    with pytest.raises(StoreError, match="exists already"):
        plainfiles.create(str(top / name), NEW)
    assert sorted(path.name for path in top.iterdir()) == ["link", "loop", "there"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("loop", "loop is a symlink to loop"),
        ("file/below", "is not a directory"),
        ("folder", "Is a directory"),
        ("folder/..", "Is a directory"),
        ("lost/below/x", "lost is a symlink to nowhere"),
    ],
)
def test_an_impossible_file_name_is_an_error_of_one_line(path: str, words: str, top: Path) -> None:
    file(top / "file")
    folder(top / "folder")
    link(top / "loop", "loop", ROOT)
    link(top / "lost", "nowhere", ROOT)
    with pytest.raises(StoreError) as caught:
        plainfiles.save_file(f"{top}/{path}", NEW)
    assert words in caught.value.message
    assert "\n" not in caught.value.message


def test_no_descriptor_stays_open(top: Path) -> None:
    before = os.listdir("/proc/self/fd")
    plainfiles.save_file(str(top / "a/b"), NEW)
    link(folder(top / "drop") / "planted", top, MALLORY)
    for path in ("drop/planted", "drop/planted/x", "a/b/c", "a"):
        with pytest.raises(StoreError):
            plainfiles.save_file(str(top / path), NEW)
    assert os.listdir("/proc/self/fd") == before
