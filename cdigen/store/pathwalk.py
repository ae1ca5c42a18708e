"""Walk to a path with one descriptor at a time, never through a link that another user may have planted.

The kernel's rule (``may_follow_link`` in fs/namei.c), whatever the sysctl fs.protected_symlinks says, and for
every link on the path, not only the last: in a sticky folder that everyone may write to, a link is followed
only if it belongs to our user or to the folder's owner. And one rule that the kernel lacks: another user's
link must lead to that user's own file, or we would write for them where they may not.
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
    """The walk ended early, at AT, a part of the path as given.

    TARGET: the text of AT, if it is a link; ERROR: of the failed system call; ``is_new``: that call was to
    make the folder AT.
    """

    def __init__(self, at: str, target: str | None, error: OSError, *, is_new: bool = False) -> None:
        super().__init__(at, target, error)
        self.at = at
        self.target = target
        self.error = error
        self.is_new = is_new


@frozen
class FileLocation:
    """Where a file is or would be made: its open folder (O_PATH), its name, and the path without links.

    ``is_magic``: the name is a link of /proc whose target is not its text; opening it follows it.
    """

    folder: int
    name: str
    real: str
    is_magic: bool = False


def to_folder(path: str, *, create: bool) -> tuple[int, str]:
    """Return an O_PATH descriptor of the folder at absolute PATH, and its path without links.

    Missing folders are made if CREATE is set. A link as the last part is not followed. ``Blocked``: a part
    cannot be entered; FileNotFoundError: it is missing, and CREATE is not set; StoreError: a planted link.
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
    """Return where the file at absolute PATH is or would be; missing folders are made if CREATE is set.

    A link as the last part is followed if FOLLOW is set. Errors as ``to_folder``.
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
    """A walk in progress: where it is, and the parts still to be entered (the next one last)."""

    def __init__(self, path: str, *, create: bool) -> None:
        self.pending = parts(path)
        self.fd = os.open("/", _PARENT)
        self._create = create
        self._is_making = False
        self._path = path
        self._real: list[str] = []
        self._asked: list[str] = []
        self._links_left = MAX_LINKS
        # The link, in the path as given, that is being followed: its path, its text, the parts after it.
        self._link: tuple[str, str, int] | None = None
        # Root, our user, and the owner of "/": in a user namespace, the host's root is nobody.
        self._trusted = {0, os.geteuid(), os.fstat(self.fd).st_uid}
        self._led_by: set[int] = set()

    @property
    def real(self) -> str:
        """The present folder's path, without links."""
        return "/" + "/".join(self._real)

    @property
    def is_within_link(self) -> bool:
        """Whether the next part comes from a link's text."""
        return self._link is not None and len(self.pending) > self._link[2]

    def enter_all_but_last(self) -> None:
        """Enter all parts except the last; that one too if it cannot be a file's name."""
        while len(self.pending) > 1 or self.pending == [".."]:
            self.enter(follow=True)

    def enter(self, *, follow: bool) -> None:
        """Enter the next part: a folder, or if FOLLOW is set a link, whose text becomes the next parts."""
        is_given = not self.is_within_link
        name = self.pending.pop()
        if is_given:
            self._leave_link()
            self._asked.append(name)
        try:
            if name == "..":
                self._move(os.open(name, _PARENT, dir_fd=self.fd))
                del self._real[-1:]
                return
            held = self._hold(name, may_make=self._create and is_given)
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
        """Return whether the walk ends at NAME, its last part, and whether that is a magic link of /proc.

        A link that is followed is not an end.
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
                self._judge(name, status)
                return True, True
        finally:
            os.close(held)
        self.enter(follow=True)
        return False, False

    def verify(self, folder: int, name: str = "") -> None:
        """Raise StoreError if another user's link led here, and FOLDER, or NAME in it, is not that user's."""
        if not self._led_by:
            return
        owners = {os.fstat(folder).st_uid}
        if name:
            with suppress(FileNotFoundError):
                owners.add(os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid)
        if not self._led_by <= owners:
            raise StoreError(
                f"{shown(self._path)} is not written: a symlink of uid {min(self._led_by - owners)} leads to "
                f"{shown(self.real)}, which is not theirs",
                hint="name its target instead",
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
            return os.open(name, _HELD, dir_fd=self.fd)  # another process was faster
        fd = os.open(name, _NEW, dir_fd=self.fd)
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode | MODE != mode:
            os.fchmod(fd, mode | MODE)  # the umask removed some bits
        self._is_making = False
        return fd

    def _leave_link(self) -> None:
        """Note that a link's text has been walked: the next parts are below its target."""
        self.verify(self.fd)
        self._led_by.clear()
        self._link = None

    def _follow(self, held: int, name: str, link: os.stat_result, *, follow: bool) -> None:
        target = os.readlink("", dir_fd=held)
        if self._link is None:
            self._link = (self._at(), target, len(self.pending))
        if not follow:
            raise OSError(ELOOP, os.strerror(ELOOP))
        self._judge(name, link)
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

    def _judge(self, name: str, link: os.stat_result) -> None:
        """Raise StoreError if the LINK called NAME here may have been planted."""
        folder = os.fstat(self.fd)
        if folder.st_mode & _ANYONES == _ANYONES and link.st_uid not in {os.geteuid(), folder.st_uid}:
            where = f"{self.real.rstrip('/')}/{name}"
            raise StoreError(
                f"{shown(where)} is a symlink of uid {link.st_uid} in a folder where everyone may write, and "
                "is not followed",
                hint="name its target instead, or remove the link",
            )
        if link.st_uid not in self._trusted:
            self._led_by.add(link.st_uid)

    def _move(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd

    def _at(self) -> str:
        return "/" + "/".join(self._asked)

    def _blocked(self, error: OSError) -> Blocked:
        at, target = (self._link[0], self._link[1]) if self._link else (self._at(), None)
        return Blocked(at, target, error, is_new=self._is_making)


def _is_magic(held: int, link: os.stat_result) -> bool:
    """Return whether the open LINK's target differs from its text (proc(5)): its size is not its text's.

    The text of a link in sysfs is its target, so we can follow it ourselves.
    """
    return len(os.fsencode(os.readlink("", dir_fd=held))) != link.st_size
