"""Open the folders on a path one after the other, and follow only trusted links.

The walk uses a descriptor for each folder. It applies the kernel's rule for links (``may_follow_link`` in
fs/namei.c) to all links on the path. The value of the sysctl fs.protected_symlinks is irrelevant. The rule
applies to links in a sticky folder that is writable by everyone. The walk follows such a link only if the
owner of the link is the user of this process or the owner of the folder. The walk also has a rule that the
kernel does not have. A link of another user must lead to a file of this other user. Without this rule, cdigen
could write to a file that the user may not write to.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from errno import EISDIR, ELOOP, ENOTDIR

from cdigen.host.root import MAX_LINKS, parts, shown
from cdigen.model.errors import StoreError
from cdigen.value import frozen

# 0755: rootless podman reads the specs as the user (podman issue 17539).
MODE = 0o755
_PARENT = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_HELD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ANYONES = stat.S_ISVTX | stat.S_IWOTH


class Blocked(Exception):
    """The error if the walk cannot continue at the path AT, which is a leading part of the caller's path.

    TARGET is the text of the link if AT is a link. ERROR is the error of the system call. ``is_new`` is true
    if the system call was mkdir for the folder AT.
    """

    def __init__(self, at: str, target: str | None, error: OSError, *, is_new: bool = False) -> None:
        super().__init__(at, target, error)
        self.at = at
        self.target = target
        self.error = error
        self.is_new = is_new


@frozen
class FileLocation:
    """The location of an existing or new file: the open folder (O_PATH), the name, the path without links.

    ``is_magic`` is true if the name is a link in /proc whose text is not its target. The kernel follows the
    link when the file is opened.
    """

    folder: int
    name: str
    real: str
    is_magic: bool = False


def to_folder(path: str, *, create: bool) -> tuple[int, str]:
    """Return an O_PATH descriptor of the folder at the absolute PATH, and the folder's path without links.

    The function makes missing folders if CREATE is set. It does not follow a link at the end of PATH.
    Raises ``Blocked`` if a folder on PATH cannot be opened. Raises FileNotFoundError if a folder is missing,
    and CREATE is not set. Raises StoreError if a link is not trusted.
    """
    walk = _Walk(path, create=create)
    try:
        while walk.pending:
            walk.enter(follow=len(walk.pending) > 1 or walk.is_within_link)
        walk.verify(walk.fd)
    except BaseException:
        os.close(walk.fd)
        raise
    return walk.fd, walk.real


def to_file(path: str, *, create: bool, follow: bool = True) -> FileLocation:
    """Return the location of the file at the absolute PATH.

    The function makes missing folders if CREATE is set. If FOLLOW is set, it follows a link at the end of
    PATH. Raises the same errors as ``to_folder``.
    """
    walk = _Walk(path, create=create)
    try:
        while True:
            walk.enter_all_but_last()
            if not walk.pending:
                raise Blocked(path, None, OSError(EISDIR, os.strerror(EISDIR)))
            name = walk.pending[0]
            is_end, is_magic = walk.is_end(name, follow=follow)
            if is_end:
                walk.verify(walk.fd, name)
                real = f"{walk.real.rstrip('/')}/{name}"
                return FileLocation(folder=walk.fd, name=name, real=real, is_magic=is_magic)
    except BaseException:
        os.close(walk.fd)
        raise


class _Walk:
    """A walk in progress: the present folder and the remaining parts in reverse order."""

    def __init__(self, path: str, *, create: bool) -> None:
        self.pending = parts(path)
        self.fd = os.open("/", _PARENT)
        self._create = create
        self._is_making = False
        self._path = path
        self._real: list[str] = []
        self._walked: list[str] = []
        self._links_left = MAX_LINKS
        # The link in the caller's path that the walk follows: its path, its text, and the number of parts
        # after the link.
        self._link: tuple[str, str, int] | None = None
        # Root, the user of this process, and the owner of "/". In a user namespace, the host's root is the
        # overflow user.
        self._trusted = {0, os.geteuid(), os.fstat(self.fd).st_uid}
        self._link_owners: set[int] = set()

    @property
    def real(self) -> str:
        """The path of the present folder, without links."""
        return "/" + "/".join(self._real)

    @property
    def is_within_link(self) -> bool:
        """Whether the next part is from the text of a link."""
        return self._link is not None and len(self.pending) > self._link[2]

    def enter_all_but_last(self) -> None:
        """Enter all parts except the last part. Enter the last part if it is ".."."""
        while len(self.pending) > 1 or self.pending == [".."]:
            self.enter(follow=True)

    def enter(self, *, follow: bool) -> None:
        """Enter the next part, which is a folder or a link.

        If FOLLOW is set, the parts of the link's text become the next parts.
        """
        is_from_caller = not self.is_within_link
        name = self.pending.pop()
        if is_from_caller:
            self._leave_link()
            self._walked.append(name)
        try:
            if name == "..":
                self._move(os.open(name, _PARENT, dir_fd=self.fd))
                del self._real[-1:]
                return
            held = self._hold(name, may_make=self._create and is_from_caller)
            try:
                status = os.fstat(held)
                if stat.S_ISLNK(status.st_mode):
                    self._follow(held, name, status, follow=follow)
                    return
                if not stat.S_ISDIR(status.st_mode):
                    raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR))
                self._move(os.dup(held))
                self._real.append(name)
            finally:
                os.close(held)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not self._create:
                raise
            raise self._blocked(error) from error

    def is_end(self, name: str, *, follow: bool) -> tuple[bool, bool]:
        """Return whether the walk ends at the last part NAME, and whether NAME is a magic link in /proc.

        The walk does not end at a link that it follows.
        """
        if not self.is_within_link:
            self._leave_link()
        try:
            held = os.open(name, _HELD, dir_fd=self.fd)
        except FileNotFoundError:
            return True, False
        except OSError as error:
            raise self._blocked(error) from error
        try:
            status = os.fstat(held)
            if not stat.S_ISLNK(status.st_mode) or not follow:
                return True, False
            if _is_magic(held, status):
                self._check_link(name, status)
                return True, True
        finally:
            os.close(held)
        self.enter(follow=True)
        return False, False

    def verify(self, folder: int, name: str = "") -> None:
        """Raise StoreError if a link of another user led to a file of a third user (FOLDER or NAME in it)."""
        if not self._link_owners:
            return
        owners = {os.fstat(folder).st_uid}
        if name:
            with suppress(FileNotFoundError):
                owners.add(os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid)
        if not self._link_owners <= owners:
            raise StoreError(
                f"{shown(self._path)} is not written: a symlink of uid {min(self._link_owners - owners)} "
                f"leads to {shown(self.real)}, which belongs to another user",
                hint="use the path of the target",
            )

    def _hold(self, name: str, *, may_make: bool) -> int:
        try:
            return os.open(name, _HELD, dir_fd=self.fd)
        except FileNotFoundError:
            if not may_make:
                raise
        self._is_making = True
        try:
            os.mkdir(name, MODE, dir_fd=self.fd)
        except FileExistsError:
            return os.open(name, _HELD, dir_fd=self.fd)  # another process has made the folder
        fd = os.open(name, _NEW, dir_fd=self.fd)
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode | MODE != mode:
            os.fchmod(fd, mode | MODE)  # the umask removed some bits
        self._is_making = False
        return fd

    def _leave_link(self) -> None:
        """Finish the resolution of the present link. The next parts are in the target of the link."""
        self.verify(self.fd)
        self._link_owners.clear()
        self._link = None

    def _follow(self, held: int, name: str, link: os.stat_result, *, follow: bool) -> None:
        target = os.readlink("", dir_fd=held)
        if self._link is None:
            self._link = (self._at(), target, len(self.pending))
        if not follow:
            raise OSError(ELOOP, os.strerror(ELOOP))
        self._check_link(name, link)
        self._links_left -= 1
        if self._links_left < 0:
            raise OSError(ELOOP, os.strerror(ELOOP))
        if _is_magic(held, link):
            self._move(os.open(name, _PARENT, dir_fd=self.fd))
            self._real.append(name)
            return
        self.pending += parts(target)
        if target.startswith("/"):
            self._move(os.open("/", _PARENT))
            self._real = []

    def _check_link(self, name: str, link: os.stat_result) -> None:
        """Raise StoreError if the link NAME in the present folder is not trusted.

        LINK is the status of the link.
        """
        folder = os.fstat(self.fd)
        if folder.st_mode & _ANYONES == _ANYONES and link.st_uid not in {os.geteuid(), folder.st_uid}:
            where = f"{self.real.rstrip('/')}/{name}"
            raise StoreError(
                f"{shown(where)} is a symlink of uid {link.st_uid} in a folder where everyone may write, and "
                "is not followed",
                hint="use the path of the target, or remove the link",
            )
        if link.st_uid not in self._trusted:
            self._link_owners.add(link.st_uid)

    def _move(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd

    def _at(self) -> str:
        return "/" + "/".join(self._walked)

    def _blocked(self, error: OSError) -> Blocked:
        at, target = (self._link[0], self._link[1]) if self._link else (self._at(), None)
        return Blocked(at, target, error, is_new=self._is_making)


def _is_magic(held: int, link: os.stat_result) -> bool:
    """Return whether the open link HELD is a magic link, whose text is not its target (proc(5)).

    LINK is the status of the link.

    The size of a magic link differs from the length of its text. The result is also true for a link in sysfs.
    The kernel then follows this link, and its text leads to the same file.
    """
    return len(os.fsencode(os.readlink("", dir_fd=held))) != link.st_size
