"""Files that the user named, in folders where other users have laid links, files and FIFOs before."""

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
    ("mode", "owner", "planter", "follower"),
    list(product((0o1777, 0o755), (ROOT, ALICE), (ROOT, ALICE, MALLORY), (ROOT, ALICE))),
)
def test_a_link_in_a_sticky_folder_is_followed_by_the_kernels_rule(
    mode: int, owner: int, planter: int, follower: int, top: Path
) -> None:
    # What it leads to is the planter's own, so that nothing but the kernel's rule decides.
    target = file(folder(top / "target", planter, 0o777) / "file", planter, 0o666)
    planted = link(folder(top / "drop", owner, mode) / "spec.json", target, planter)
    is_followed = mode != 0o1777 or planter in {follower, owner}
    said = by(follower, saved(planted))
    if is_followed and (follower in {ROOT, planter}):
        assert said == ""
        assert target.read_bytes() == NEW
    elif not is_followed:
        assert said.startswith(
            f"{planted} is a symlink of uid {planter} in a folder where everyone may write"
        )
        assert target.read_bytes() == SECRET
    assert planted.is_symlink()


@pytest.mark.parametrize("place", ["{drop}/way", "{drop}/way/", "{drop}/./way"])
def test_a_link_on_the_way_is_none_that_may_be_planted_either(place: str, top: Path) -> None:
    drop, etc = folder(top / "drop"), folder(top / "etc", mode=0o755)
    link(drop / "way", etc, MALLORY)
    way = place.format(drop=drop)
    for path in (f"{way}/spec.json", f"{way}/new/spec.json"):
        with pytest.raises(StoreError, match=f"symlink of uid {MALLORY}"):
            plainfiles.save_file(path, NEW)
        with pytest.raises(StoreError, match=f"symlink of uid {MALLORY}"):
            plainfiles.create(path, NEW)
    with pytest.raises(StoreError, match=f"symlink of uid {MALLORY}"), open_or_create(f"{drop}/way/cdi"):
        pass
    assert list(etc.iterdir()) == []


def test_a_trusted_link_that_leads_over_a_planted_one_is_followed_to_that_alone(top: Path) -> None:
    etc = folder(top / "etc", mode=0o755)
    link(folder(top / "drop") / "planted", etc, MALLORY)
    mine = link(top / "mine", "drop/planted/spec.json", ROOT)
    with pytest.raises(StoreError, match=f"symlink of uid {MALLORY}"):
        plainfiles.save_file(str(mine), NEW)
    assert list(etc.iterdir()) == []


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777])
@pytest.mark.parametrize("leads_to", ["file", "folder"])
def test_a_link_of_a_users_in_her_own_folder_leads_root_to_nothing_but_hers(
    leads_to: str, mode: int, top: Path
) -> None:
    """`--output-dir /tmp/specs`, where somebody has made /tmp/specs before, and has put links into it."""
    roots = folder(top / "roots", mode=0o755)
    victim = file(roots / "victim")
    specs = folder(top / "specs", MALLORY, mode)
    planted = link(specs / "x", victim if leads_to == "file" else roots, MALLORY)
    with pytest.raises(StoreError, match=f"a symlink of uid {MALLORY} leads to .*, which is not theirs"):
        plainfiles.save_file(str(planted if leads_to == "file" else planted / "victim"), NEW)
    assert victim.read_bytes() == SECRET
    assert victim.stat().st_mode & 0o777 == 0o600


def test_a_users_own_link_to_her_own_folder_serves_root_again_and_again(top: Path) -> None:
    """`sudo cdigen generate --output ~/latest/spec.json`."""
    home = folder(top / "home", ALICE, 0o755)
    folder(home / "data", ALICE, 0o755)
    link(home / "latest", "data", ALICE)
    for content in (NEW, SECRET):
        plainfiles.save_file(str(home / "latest/new/spec.json"), content)
        assert (home / "data/new/spec.json").read_bytes() == content


def test_a_file_keeps_its_owner_and_its_mode(top: Path) -> None:
    mine = file(folder(top / "home", ALICE, 0o755) / "spec.json", ALICE, 0o640)
    plainfiles.save_file(str(mine), NEW)
    status = mine.stat()
    assert (mine.read_bytes(), status.st_uid, status.st_gid) == (NEW, ALICE, ALICE)
    assert stat.S_IMODE(status.st_mode) == 0o640


def test_a_file_keeps_its_access_list(top: Path) -> None:
    shared = file(top / "spec.json", mode=0o640)
    # acl(5) as the kernel keeps it: user::rw-, user:ALICE:r--, group::---, mask::r--, other::---
    rows = ((1, 6, -1), (2, 4, ALICE), (4, 0, -1), (16, 4, -1), (32, 0, -1))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)
    os.setxattr(shared, "system.posix_acl_access", acl)
    plainfiles.save_file(str(shared), NEW)
    assert os.getxattr(shared, "system.posix_acl_access") == acl
    assert shared.read_bytes() == NEW


def test_a_new_file_may_be_read_by_everybody(top: Path) -> None:
    plainfiles.save_file(str(top / "new/spec.json"), NEW)
    assert stat.S_IMODE((top / "new/spec.json").stat().st_mode) == 0o644


@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_a_fifo_of_another_user_is_not_waited_for(mode: int, top: Path) -> None:
    theirs = folder(top / "drop", MALLORY, mode=mode) / "spec.json"
    os.mkfifo(theirs)
    os.chown(theirs, MALLORY, MALLORY)
    command = "import sys; from cdigen.store.plainfiles import save_file; save_file(sys.argv[1], b'x')"
    done = subprocess.run(
        [sys.executable, "-c", command, theirs], capture_output=True, check=False, cwd=os.getcwd(), timeout=60
    )
    assert f"it is a FIFO of uid {MALLORY}".encode() in done.stderr


@pytest.mark.parametrize("mode", [0o1777, 0o1775])
@pytest.mark.parametrize("kind", ["file", "FIFO"])
def test_what_another_user_has_put_into_a_sticky_folder_is_not_written_to(
    mode: int, kind: str, top: Path
) -> None:
    theirs = folder(top / "drop", mode=mode) / "spec.json"
    if kind == "FIFO":
        os.mkfifo(theirs)
        os.chown(theirs, MALLORY, MALLORY)
        reader = os.open(theirs, os.O_RDONLY | os.O_NONBLOCK)
    else:
        file(theirs, MALLORY, 0o666)
    with pytest.raises(StoreError, match=f"it (belongs to|is a FIFO of) uid {MALLORY}"):
        plainfiles.save_file(str(theirs), NEW)
    if kind == "FIFO":
        assert os.read(reader, 100) == b""
        os.close(reader)
    else:
        assert theirs.read_bytes() == SECRET


def test_a_hard_link_to_a_file_of_roots_is_replaced_and_not_written_through(top: Path) -> None:
    victim = file(top / "victim")
    planted = folder(top / "hers", MALLORY, 0o755) / "spec.json"
    os.link(victim, planted)
    plainfiles.save_file(str(planted), NEW)
    assert victim.read_bytes() == SECRET


def test_standard_output_by_its_name_is_written_to(top: Path) -> None:
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


def test_a_fifo_of_ones_own_is_written_to(top: Path) -> None:
    os.mkfifo(top / "fifo")
    with subprocess.Popen(["cat", top / "fifo"], stdout=subprocess.PIPE) as reader:
        plainfiles.save_file(str(top / "fifo"), NEW)
        assert reader.communicate()[0] == NEW


@pytest.mark.parametrize("name", ["there", "link", "loop"])
def test_a_new_file_is_made_in_the_place_of_nothing(name: str, top: Path) -> None:
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
def test_what_cannot_be_a_file_is_said_in_one_line(path: str, words: str, top: Path) -> None:
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
