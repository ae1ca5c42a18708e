from __future__ import annotations

import os
import pwd

from cdigen.host.root import Root
from cdigen.runtimes.users import Reader, User, find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

PASSWD = "root:x:0:0::/root:/bin/sh\nalice:x:1234:100:A:/home/alice:/bin/sh\nbad:x:x:1\nshort\n"
GROUP = "users:x:100:\nvideo:x:44:bob,alice\nrender:x:105:alice\nodd:x:y:alice\nalices:x:7:malice\n"


def test_a_user_of_another_tree_is_read_from_its_files(tmp_path: Path) -> None:
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
    assert find(host, "alice") == alice
    assert alice.reader() == Reader(uid=1234, gids=(100, 44, 105))
    assert [find(host, name) for name in ("bob", "bad", "short", "")] == [None] * 4


def test_a_tree_without_users_has_none(tmp_path: Path) -> None:
    assert find(Root(str(tmp_path)), "root") is None


def test_a_user_of_this_machine_is_who_the_system_says() -> None:
    entry = pwd.getpwuid(os.geteuid())
    found = find(Root(), entry.pw_name)
    assert found is not None
    assert (found.uid, found.gid, found.home) == (entry.pw_uid, entry.pw_gid, entry.pw_dir)
    assert entry.pw_gid in found.gids
    assert find(Root(), "no\0body") is None
    assert find(Root(), "no such user") is None
