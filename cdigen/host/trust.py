"""Find out why root must not execute or load a file: because others may change it (``untrusted``).

A program that root starts, or a library that it loads, is as powerful as root. Anyone who may write to the
file, or to any folder on the way to it, or replace a link on the way, would have that power too.
"""

from __future__ import annotations

import os
import stat
from errno import ELOOP

from cdigen.host.root import MAX_LINKS, reason, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

MAX_FILES = 200
ACCESS_LIST = "system.posix_acl_access"


def untrusted(path: str, *, base: str = "", owners: frozenset[int] = frozenset()) -> str:
    """Return why root must not execute or load PATH; an empty text if it may.

    The file, every folder above it, every link on the way and every folder above those must belong
    to root, and nobody else may write to them: no other user, no group except root's. Files of the user who
    runs this process, or of one of OWNERS, count as root's. PATH is on this machine, or in the tree at BASE
    on it; never raises.
    """
    if not path.startswith("/"):
        return f"{shown(path)} is not an absolute path"
    try:
        return _judge_way(path, owners | {0, os.geteuid()}, base)
    except OSError as error:
        return f"{shown(path)} cannot be examined: {reason(error)}"
    except ValueError:
        return f"{shown(path)} is not a path"  # it holds a NUL


def untrusted_below(root: Root, folder: str) -> str:
    """Return why root must not load files below FOLDER of ROOT; an empty text if it may, or there are none.

    For the few files of a program: more than ``MAX_FILES``, or a circular link, are a reason as well.
    """
    pending = [folder] if folder else []
    seen = 0
    while pending:
        path = pending.pop()
        seen += 1
        if seen > MAX_FILES:
            return f"{shown(folder)} holds more than {MAX_FILES} files"
        if problem := untrusted(path, base=root.outer):
            return problem
        pending.extend(f"{path}/{name}" for name in root.names(path))
    return ""


def _judge_way(path: str, owners: frozenset[int], base: str) -> str:
    """Walk PATH as the kernel does (path_resolution(7)), after chroot(2) to BASE, and check each part."""
    here = ""
    pending = path.split("/")[::-1]
    links_left = MAX_LINKS
    problem = _judge("/", base, owners)
    while pending and not problem:
        name = pending.pop()
        if name in {"", "."}:
            continue
        if name == "..":
            here = here.rpartition("/")[0]
            continue
        there = f"{here}/{name}"
        problem = _judge(there, base, owners)
        if not stat.S_ISLNK(os.lstat(base + there).st_mode):
            here = there
            continue
        links_left -= 1
        if links_left < 0:
            raise OSError(ELOOP, os.strerror(ELOOP))
        target = os.readlink(base + there)
        pending.extend(target.split("/")[::-1])
        if target.startswith("/"):
            here = ""
    return problem or ("" if base else _judge_arrival(path, here or "/"))


def _judge_arrival(path: str, here: str) -> str:
    """Compare with the kernel's result: the target of links such as /proc/PID/root is not their text."""
    if os.path.samestat(os.stat(path), os.lstat(here)):
        return ""
    return f"{shown(path)} does not lead to {shown(here)}, where its links point"


def _judge(path: str, base: str, owners: frozenset[int]) -> str:
    status = os.lstat(base + path)
    if status.st_uid not in owners:
        return f"{shown(path)} belongs to uid {status.st_uid}, not to root"
    mode = status.st_mode
    if stat.S_ISLNK(mode):
        return ""  # a link's own mode has no meaning (symlink(7)); its folder's has
    if mode & stat.S_IWOTH:
        return f"{shown(path)} is writable by everyone"
    if not mode & stat.S_IWGRP or _keeps_entries(mode):
        return ""
    if status.st_gid != 0:
        return f"{shown(path)} is writable by the group {status.st_gid}"
    if has_access_list(base + path):
        return f"{shown(path)} is writable by others than root (see getfacl)"
    return ""


def _keeps_entries(mode: int) -> bool:
    """Return whether a folder's group may add files, but neither rename nor remove root's.

    Such is /nix/store (1775 root:nixbld), which has all files of NixOS; each entry of it on the way is
    checked by itself. Folders where everyone may add files (/tmp) are still refused.
    """
    return stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)


def has_access_list(path: str) -> bool:
    """Return whether PATH has an access list: the group's bits then limit every entry of it (acl(5))."""
    try:
        return bool(os.getxattr(path, ACCESS_LIST, follow_symlinks=False))
    except OSError:
        return False  # it has none, or the file system has none
