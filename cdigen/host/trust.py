"""Check that only root can change a file before root executes or loads the file: ``untrusted``.

A program that root starts, or a library that root loads, has the privileges of root. A user who can
change the file, a folder on its path or a link on its path would have the same privileges.
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
    """Return the reason why root must not execute or load PATH; "" if there is no reason.

    The file, every link on its path, and every folder above the file and the links must belong to root. No
    other user and no group except root's group may write to them. The user who runs this process and OWNERS
    are treated as root. PATH is on this machine, or in the tree at BASE. Never raises.
    """
    if not path.startswith("/"):
        return f"{shown(path)} is not an absolute path"
    try:
        return _judge_path(path, owners | _trusted(), base)
    except OSError as error:
        return f"{shown(path)} cannot be examined: {reason(error)}"
    except ValueError:
        return f"{shown(path)} is not a path"  # the path contains a NUL


def untrusted_below(root: Root, folder: str, *, most: int = MAX_FILES) -> str:
    """Return the reason why root must not use files below FOLDER of ROOT; "" if there is no reason.

    More than MOST files or a circular link are also a reason.
    """
    pending = [folder] if folder else []
    checked = 0
    while pending:
        path = pending.pop()
        checked += 1
        if checked > most:
            return f"{shown(folder)} contains more than {most} files"
        if problem := untrusted(path, base=root.outer):
            return problem
        pending.extend(f"{path}/{name}" for name in root.names(path))
    return ""


def untrusted_tree(root: Root, paths: tuple[str, ...], *, owners: frozenset[int] = frozenset()) -> str:
    """Return the reason why root must not trust the files PATHS of the tree ROOT; "" if there is no reason.

    Only root may replace the tree, change PATHS, or change folders on their paths. Missing parts are trusted.
    A folder of root with the sticky bit, such as /tmp, may be above the tree, because other users cannot
    replace the tree there. OWNERS are as in ``untrusted``. Never raises.
    """
    owners |= _trusted()
    folder = root.outer
    try:
        while folder := folder.rpartition("/")[0]:
            status = os.lstat(folder)
            is_sticky = status.st_mode & stat.S_ISVTX and status.st_uid in owners
            if not is_sticky and (problem := _judge(folder, "", owners)):
                return problem
    except OSError as error:
        return f"{shown(folder)} cannot be examined: {reason(error)}"
    return next(filter(None, (_untrusted_parts(path, owners, root.outer) for path in paths)), "")


def _untrusted_parts(path: str, owners: frozenset[int], base: str) -> str:
    """Return the reason why root must not trust PATH of the tree at BASE; missing parts are trusted."""
    try:
        return _judge_path(path, owners, base)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"{shown(path)} cannot be examined: {reason(error)}"


def _trusted() -> frozenset[int]:
    return frozenset({0, os.geteuid()})


def _judge_path(path: str, owners: frozenset[int], base: str) -> str:
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
    return problem or ("" if base else _judge_target(path, here or "/"))


def _judge_target(path: str, here: str) -> str:
    """Return a reason if the kernel resolves PATH to another file than HERE (as for /proc/PID/root)."""
    if os.path.samestat(os.stat(path), os.lstat(here)):
        return ""
    return f"{shown(path)} leads to another file than {shown(here)}, the target of its links"


def _judge(path: str, base: str, owners: frozenset[int]) -> str:
    status = os.lstat(base + path)
    if status.st_uid not in owners:
        return f"{shown(path)} belongs to uid {status.st_uid}, not to root"
    mode = status.st_mode
    if stat.S_ISLNK(mode):
        return ""  # the mode of a link has no meaning (symlink(7))
    if mode & stat.S_IWOTH:
        return f"{shown(path)} is writable by everyone"
    if not mode & stat.S_IWGRP or _keeps_entries(mode):
        return ""
    if status.st_gid != 0:
        return f"{shown(path)} is writable by the group {status.st_gid}"
    if has_access_list(base + path):
        return f"{shown(path)} is writable by users other than root (see getfacl)"
    return ""


def _keeps_entries(mode: int) -> bool:
    """Return whether a folder's group may add files, but may not rename or remove files of root.

    An example is /nix/store (1775 root:nixbld), which contains all files of NixOS. If a path goes
    through such a folder, the folder's entry on the path is checked separately. Folders in which everyone may
    add files (/tmp) are refused.
    """
    return stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)


def has_access_list(file: int | str) -> bool:
    """Return whether FILE, a path or a descriptor, has an access list.

    The group bits of the mode are the maximum for all entries of the list (acl(5)).
    """
    try:
        return bool(os.getxattr(file, ACCESS_LIST, follow_symlinks=isinstance(file, int)))
    except OSError:
        return False  # no access list, or no support in the file system
