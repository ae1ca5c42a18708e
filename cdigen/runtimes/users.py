"""Find a user who starts containers, and say as whom a runtime reads spec files: ``find``, ``Reader``.

podman reads specs and its own configuration as the user who runs it, and so does a rootless dockerd;
the other runtimes are daemons of root.
"""

from __future__ import annotations

from cdigen.host.root import DEFAULT_LIMIT
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root


@frozen
class Reader:
    """A process that reads spec files: its user id and all its group ids. Root reads everything.

    ``follows_links``: whether it follows a spec directory that is a symlink, as the library alone does not.
    """

    uid: int = 0
    gids: tuple[int, ...] = (0,)
    follows_links: bool = False


@frozen
class User:
    """A user without root's rights who starts containers: names of the host, folders as its XDG variables.

    ``config_home`` is XDG_CONFIG_HOME, by default ``<home>/.config``; ``runtime_dir`` XDG_RUNTIME_DIR, by
    default ``/run/user/<uid>``. Paths are the host's own.
    """

    name: str
    uid: int
    gid: int
    gids: tuple[int, ...]
    home: str
    config_home: str
    runtime_dir: str

    def reader(self) -> Reader:
        """Return who reads files for this user."""
        return Reader(uid=self.uid, gids=self.gids)


ROOT = Reader()


def find(host: Root, name: str) -> User | None:
    """Return the user NAME of HOST; None where there is none.

    On this machine as the system knows users, LDAP's too; in another tree as /etc/passwd and /etc/group do.
    XDG variables are taken as unset.
    """
    row = _known_here(name) if host.is_this_machine else _known_there(host, name)
    if row is None:
        return None
    uid, gid, home, groups = row
    return User(
        name=name,
        uid=uid,
        gid=gid,
        gids=tuple(dict.fromkeys((gid, *groups))),
        home=home,
        config_home=f"{home.rstrip('/')}/.config",
        runtime_dir=f"/run/user/{uid}",
    )


def _known_here(name: str) -> tuple[int, int, str, tuple[int, ...]] | None:
    import os  # noqa: PLC0415 - few commands are about a user
    import pwd  # noqa: PLC0415 - likewise

    try:
        entry = pwd.getpwnam(name)
        return entry.pw_uid, entry.pw_gid, entry.pw_dir, tuple(os.getgrouplist(name, entry.pw_gid))
    except (KeyError, OSError, ValueError):  # a name with a NUL is a ValueError
        return None


def _known_there(host: Root, name: str) -> tuple[int, int, str, tuple[int, ...]] | None:
    for fields in _rows(host, "/etc/passwd"):
        if fields[0] == name and len(fields) >= 6 and fields[2].isdecimal() and fields[3].isdecimal():
            groups = [
                int(group[2])
                for group in _rows(host, "/etc/group")
                if len(group) >= 4 and name in group[3].split(",") and group[2].isdecimal()
            ]
            return int(fields[2]), int(fields[3]), fields[5], tuple(groups)
    return None


def _rows(host: Root, path: str) -> Iterator[list[str]]:
    try:
        text = host.read(path, limit=DEFAULT_LIMIT).decode("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        yield line.split(":")
