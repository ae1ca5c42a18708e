"""The user that runs a runtime, and the files that the user may read.

An unprivileged user can run podman or a rootless dockerd. These programs read specs and configuration files
with the rights of the user. The other runtimes are daemons of root. cdigen often runs as root, which may read
every file. A user's podman may read a file only if the modes and the access lists of the file and of every
folder on its path permit it (path_resolution(7), acl(5)).
"""

from __future__ import annotations

import os
import stat
import struct

from cdigen.host.root import DEFAULT_LIMIT, shown
from cdigen.host.trust import ACCESS_LIST
from cdigen.model.errors import ConfigError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cdigen.host.root import Root

    # (name, user ID, group ID, home, IDs of additional groups).
    Row = tuple[str, int, int, str, list[int]]

_READ, _WRITE, _SEARCH = 4, 2, 1
# The tags in an access list: the kernel's include/uapi/linux/posix_acl.h. The value of the extended attribute
# has a version of 4 bytes, and 8 bytes for each entry (posix_acl_xattr.h).
_USER, _GROUP_OWNER, _GROUP, _MASK = 0x02, 0x04, 0x08, 0x10
_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")


@frozen
class Reader:
    """A process that reads spec files: its user ID and all its group IDs; root may read every file.

    If ``follows_links`` is true, the process follows a symlink to a spec directory. The CDI library itself
    does not follow such a symlink.
    """

    uid: int = 0
    gids: tuple[int, ...] = (0,)
    follows_links: bool = False


@frozen
class User:
    """An unprivileged user who starts containers, with the user's IDs and folders on the host.

    ``config_home`` is XDG_CONFIG_HOME, by default ``<home>/.config``. ``runtime_dir`` is XDG_RUNTIME_DIR, by
    default ``/run/user/<uid>``. Paths are paths of the host.
    """

    name: str
    uid: int
    gid: int
    gids: tuple[int, ...]
    home: str
    config_home: str
    runtime_dir: str

    def reader(self) -> Reader:
        """Return the reader for processes of this user."""
        return Reader(uid=self.uid, gids=self.gids)


ROOT = Reader()


def find_user(host: Root, name: str, environment: Mapping[str, str]) -> User | None:
    """Return the user of HOST with the name or number NAME, or None for root.

    On this machine, the source is the system's user database, including LDAP. On other hosts, the sources are
    /etc/passwd and /etc/group. ENVIRONMENT is the environment of the user's own process, with the XDG
    variables, or empty. Raises ConfigError if the user does not exist.
    """
    if name in {"root", "0"}:
        return None
    row = (_of_system(name) if host.is_this_machine else None) or _of_files(host, name)
    if row is None:
        raise ConfigError(
            f"--user {shown(name)!r}: the host has no such user", hint="'getent passwd' lists the users"
        )
    name, uid, gid, home, groups = row
    if uid == 0:
        return None
    return User(
        name=name,
        uid=uid,
        gid=gid,
        gids=tuple(dict.fromkeys((gid, *groups))),
        home=home,
        config_home=environment.get("XDG_CONFIG_HOME") or f"{home.rstrip('/')}/.config",
        runtime_dir=environment.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}",
    )


def _of_system(name: str) -> Row | None:
    import pwd  # noqa: PLC0415 - few commands need a user

    try:
        row = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
        return row.pw_name, row.pw_uid, row.pw_gid, row.pw_dir, os.getgrouplist(row.pw_name, row.pw_gid)
    except (KeyError, OSError, OverflowError):
        return None


def _of_files(host: Root, name: str) -> Row | None:
    for user, _, uid, gid, _, home, *_ in rows(host, "/etc/passwd", 6):
        if name in {user, uid} and uid.isdecimal() and gid.isdecimal():
            groups = [
                int(number)
                for _, _, number, members, *_ in rows(host, "/etc/group", 4)
                if number.isdecimal() and user in members.split(",")
            ]
            return user, int(uid), int(gid), home, groups
    return None


def rows(host: Root, path: str, least: int) -> Iterator[list[str]]:
    """Yield the fields of each line with at least LEAST fields in PATH, a file such as /etc/passwd."""
    try:
        text = host.read(path, limit=DEFAULT_LIMIT).decode("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        if len(fields := line.split(":")) >= least:
            yield fields


def may_read(host: Root, path: str, reader: Reader) -> bool:
    """Return whether READER may open PATH of HOST for reading; true if PATH does not exist."""
    return _may(host, path, reader, _READ)


def may_list(host: Root, path: str, reader: Reader) -> bool:
    """Return whether READER may list the folder PATH of HOST and look up its entries."""
    return _may(host, path, reader, _READ | _SEARCH)


def may_use(host: Root, path: str, reader: Reader) -> bool:
    """Return whether READER may open the device node PATH of HOST; true if PATH does not exist.

    Programs open a node for reading and writing. They open a node that not even its owner may write for
    reading (/dev/nvmap of Jetson Linux 36, 0440).
    """
    try:
        wanted = _access_of_programs(host.stat(path))
    except OSError:
        return True
    return _may(host, path, reader, wanted)


def _access_of_programs(status: os.stat_result) -> int:
    return _READ | _WRITE if status.st_mode & stat.S_IWUSR else _READ


def groups_with_access(host: Root, path: str) -> tuple[int, ...]:
    """Return the groups whose members may open the device node PATH; the owning group is the first."""
    try:
        real, status = host.located(path)
        entries = _entries(host, real, status)
    except OSError:
        return ()
    wanted = _access_of_programs(status)
    return tuple(
        who for tag, bits, who in entries if tag in {_GROUP_OWNER, _GROUP} and bits & wanted == wanted
    )


def _may(host: Root, path: str, reader: Reader, wanted: int) -> bool:
    if reader.uid == 0:
        return True
    try:
        real, status = host.located(path)
        return (
            _is_open(host, real, status, reader, wanted)
            and _is_reachable(host, real, reader)
            # The reader must be able to search the folder of a link, in addition to the folder of its target.
            and (real == path or _is_reachable(host, path, reader))
        )
    except OSError:
        return True


def _is_reachable(host: Root, path: str, reader: Reader) -> bool:
    folder = path.rpartition("/")[0]
    while folder:
        real, status = host.located(folder)
        if not _is_open(host, real, status, reader, _SEARCH):
            return False
        folder = folder.rpartition("/")[0]
    return True


def _is_open(host: Root, real: str, status: os.stat_result, reader: Reader, wanted: int) -> bool:
    """Return whether the mode and the access list of REAL permit WANTED to READER (acl(5))."""
    if status.st_uid == reader.uid:
        return (status.st_mode >> 6) & wanted == wanted
    entries = _entries(host, real, status)
    own = [bits for tag, bits, who in entries if tag == _USER and who == reader.uid]
    if own:
        return own[0] & wanted == wanted
    groups = [bits for tag, bits, who in entries if tag in {_GROUP_OWNER, _GROUP} and who in reader.gids]
    return any(bits & wanted == wanted for bits in groups or [status.st_mode])


def _entries(host: Root, real: str, status: os.stat_result) -> list[tuple[int, int, int]]:
    """Return the tag, the effective bits and the id of each user and group with an entry for REAL.

    The owning group is the first. Its bits in the mode are the mask of the list if REAL has an access list.
    """
    try:
        value = os.getxattr(host.outer_path(real), ACCESS_LIST)
    except OSError:
        value = b""  # no access list, or no support in the file system
    mask, bits = status.st_mode >> 3, status.st_mode >> 3
    listed = []
    if value.startswith(_VERSION) and len(value) % _ENTRY.size == len(_VERSION):
        for tag, rights, who in _ENTRY.iter_unpack(value[len(_VERSION) :]):
            if tag == _GROUP_OWNER:
                bits = rights
            elif tag == _MASK:
                mask = rights
            elif tag in {_USER, _GROUP}:
                listed.append((tag, rights, who))
    everyone = [(_GROUP_OWNER, bits, status.st_gid), *listed]
    return [(tag, rights & mask, who) for tag, rights, who in everyone]
