from __future__ import annotations

import os
import pwd

import pytest
from support.hosts.access_list import set_access_list

from cdigen.host.root import Root
from cdigen.model.errors import ConfigError
from cdigen.runtimes.users import Reader, User, find_user, groups_with_access, may_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

PASSWD = "root:x:0:0::/root:/bin/sh\nalice:x:1234:100:A:/home/alice:/bin/sh\nbad:x:x:1\nshort\n"
GROUP = "users:x:100:\nvideo:x:44:bob,alice\nrender:x:105:alice\nodd:x:y:alice\nalices:x:7:malice\n"


def test_a_user_below_another_root_is_read_from_passwd_and_group(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(PASSWD)
    (tmp_path / "etc/group").write_text(GROUP)
    host = Root(str(tmp_path))
    alice = User(
        name="alice",
        uid=1234,
        gid=100,
        gids=(100, 44, 105),
        home="/home/alice",
        config_home="/home/alice/.config",
        runtime_dir="/run/user/1234",
    )
    assert find_user(host, "alice", {}) == find_user(host, "1234", {}) == alice
    assert alice.reader() == Reader(uid=1234, gids=(100, 44, 105))
    for name in ("bob", "bad", "short", "", "²"):
        with pytest.raises(ConfigError, match="no such user"):
            find_user(host, name, {})


def test_a_host_without_passwd_and_group_has_only_root(tmp_path: Path) -> None:
    assert find_user(Root(str(tmp_path)), "root", {}) is None
    with pytest.raises(ConfigError, match="no such user"):
        find_user(Root(str(tmp_path)), "alice", {})


def test_a_user_of_this_machine_comes_from_the_system() -> None:
    entry = next(row for row in pwd.getpwall() if row.pw_uid)
    for name in (entry.pw_name, str(entry.pw_uid)):
        found = find_user(Root(), name, {"XDG_CONFIG_HOME": "/c", "XDG_RUNTIME_DIR": "/r"})
        assert found is not None
        assert (found.uid, found.gid, found.home) == (entry.pw_uid, entry.pw_gid, entry.pw_dir)
        assert (found.config_home, found.runtime_dir) == ("/c", "/r")
        assert entry.pw_gid in found.gids
    assert find_user(Root(), pwd.getpwuid(0).pw_name, {}) is None
    with pytest.raises(ConfigError, match="no such user"):
        find_user(Root(), "no such user", {})


# Access list -> the groups that may open the file, and whether alice may (user 1234, groups 100 and 44).
# The owner is user 7. The owning group is 44.
LISTS = {
    "user::rw-,user:1234:rw-,group::---,mask::rw-,other::---": ((), True),
    "user::rw-,user:1234:rw-,group::rw-,mask::r--,other::rw-": ((), False),
    "user::rw-,user:1234:r--,group::rw-,mask::rw-,other::rw-": ((44,), False),
    "user::---,user:99:rw-,group::rw-,mask::rw-,other::---": ((44,), True),
    "user::rw-,user:99:rw-,group::---,mask::rw-,other::rw-": ((), False),
    "user::rw-,group::r--,group:100:rw-,mask::rw-,other::---": ((100,), True),
    "user::rw-,group::r--,group:101:rw-,mask::rw-,other::rw-": ((101,), False),
}


@pytest.mark.usefixtures("other_users")
@pytest.mark.parametrize("text", LISTS)
def test_an_access_list_decides_as_the_kernel_does(tmp_path: Path, text: str) -> None:
    file = tmp_path / "node"
    file.write_text("")
    os.chown(file, 7, 44)
    set_access_list(file, text)
    host, alice = Root(str(tmp_path)), Reader(uid=1234, gids=(100, 44))
    groups, may_open = LISTS[text]
    assert groups_with_access(host, "/node") == groups
    assert may_use(host, "/node", alice) is may_open
    assert may_use(host, "/node", Reader())
    assert may_use(host, "/node", Reader(uid=7, gids=(7,))) is text.startswith("user::rw-")


def test_a_missing_file_is_not_closed(tmp_path: Path) -> None:
    host = Root(str(tmp_path))
    assert may_use(host, "/node", Reader(uid=1234, gids=(100,)))
    assert groups_with_access(host, "/node") == ()
