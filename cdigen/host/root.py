"""Read a folder tree as a host (``Root``): links are followed within the tree, as chroot(2) would.

Links are followed as the host itself would follow them, from the tree's own ``/``: an absolute
link or a ``..`` never leads out of the tree. The kernel would do the same after chroot(2); doing it
here needs no privilege and works for many trees in one process.
"""

from __future__ import annotations

import os
import stat
from errno import EFBIG, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR, EXDEV

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

# Linux gives up after 40 links in one walk (path_resolution(7)).
MAX_LINKS = 40
# Files that cdigen reads whole are small; the largest is ld.so.cache (16 MiB, binfmt.ldcache).
DEFAULT_LIMIT = 1 << 20
# Deeper paths are walked step by step, not folder by folder.
_MAX_NESTING = 64
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class Root:
    """A host's file tree: the machine's own (``/``) or any folder.

    ``outer`` is the tree's path on this machine. ``seen_at`` is its path on the host: ``/`` for a host's own
    root, ``/run/nvidia/driver`` for a driver container's. Paths given to the methods are absolute within the
    tree. Folders and links on the way are cached, also missing ones, so an instance is for one reading of the
    host. Methods raise the ``OSError`` of the underlying system call.
    """

    def __init__(self, outer: str = "/", *, seen_at: str = "/") -> None:
        self.outer = "" if outer == "/" else outer
        self.seen_at = "" if seen_at == "/" else seen_at
        self._directories: dict[str, str] = {"/": "/"}
        self._links: dict[str, str | None] = {}
        # Canonical paths where nothing is, and folders as they were asked for that lead nowhere. A link to
        # nothing is of the second alone: it is there, and where it leads decides where a path is made.
        self._missing: set[str] = set()
        self._leading_nowhere: set[str] = set()
        self._inside = os.path.realpath(outer).rstrip("/") + "/"

    def __repr__(self) -> str:
        return f"Root({self.outer or '/'!r}, seen_at={self.seen_at or '/'!r})"

    @property
    def is_this_machine(self) -> bool:
        """Whether the tree is the running machine's own root."""
        return not self.outer

    def below(self, path: str) -> Root:
        """Return the folder PATH of this tree as a tree of its own, which the host has at PATH."""
        real = self.resolve(path)
        if real == "/":
            return self
        return Root(self.outer + real, seen_at=self.seen_at + real)

    def forget_missing(self) -> None:
        """Forget which folders were missing: some were made since."""
        self._missing.clear()
        self._leading_nowhere.clear()

    def host_path(self, path: str) -> str:
        """Return PATH of this tree as a path of the host."""
        return self.seen_at + path

    def outer_path(self, path: str) -> str:
        """Return PATH of this tree as a path of this machine; PATH must be resolved already."""
        return self.outer + path

    def resolve(self, path: str) -> str:
        """Return the canonical path of PATH: links followed within the tree, no ``.`` or ``..``.

        Raises FileNotFoundError, NotADirectoryError, PermissionError, OSError(ELOOP), or OSError(EINVAL)
        where PATH holds a NUL byte.
        """
        head, _, name = path.rpartition("/")
        if name in {"", ".", ".."} or "\0" in path:
            return self._walk("/", path)
        folder = self.directory(head or "/")
        path = f"{folder}/{name}" if folder != "/" else f"/{name}"
        # Most are not links: with a walk for each, the daemon's cycle would spend most of its time here.
        target = self._link_target(path)
        if target is None:
            return path
        return self._follow(folder, target)

    def resolve_new(self, path: str) -> str:
        """Return where PATH is or would be made: as ``resolve``, but the last parts may be missing.

        Without it, making the missing folders of a path through a link whose target does not exist in
        the tree would follow that link out of the tree. Raises as ``resolve``, except for missing parts.
        """
        return self._walk("/", path, must_exist=False)

    def located(self, path: str) -> tuple[str, os.stat_result]:
        """Return the canonical path of PATH, and its status; raises as ``resolve`` does."""
        head, _, name = path.rpartition("/")
        if name not in {"", ".", ".."} and "\0" not in path:
            folder = self.directory(head or "/")
            real = f"{folder}/{name}" if folder != "/" else f"/{name}"
            status = os.lstat(self.outer + real)
            if not stat.S_ISLNK(status.st_mode):
                return real, status
        real = self.resolve(path)
        return real, os.lstat(self.outer + real)

    def directory(self, path: str) -> str:
        """Return the canonical path of the folder PATH, and cache it; raises as ``resolve`` does."""
        real = self._directories.get(path)
        if real is None:
            if path in self._leading_nowhere:
                raise FileNotFoundError(ENOENT, os.strerror(ENOENT), path)
            try:
                real = self._find_directory(path)
            except FileNotFoundError:
                self._leading_nowhere.add(path)
                raise
            self._directories[path] = real
        return real

    def _find_directory(self, path: str) -> str:
        head, _, name = path.rpartition("/")
        if name in {"", ".", ".."} or "\0" in path or path.count("/") > _MAX_NESTING:
            return self._walk("/", path)
        # From its parent, which is cached: a host has hundreds of folders side by side.
        above = self.directory(head or "/")
        real = f"{above}/{name}" if above != "/" else f"/{name}"
        target = self._folder_link(real)
        return real if target is None else self._follow(above, target)

    def _follow(self, folder: str, target: str) -> str:
        """Return the path of a link's target, for the text TARGET in the canonical FOLDER."""
        return self._walk("/" if target.startswith("/") else folder, target, links_left=MAX_LINKS - 1)

    def _walk(self, base: str, path: str, *, must_exist: bool = True, links_left: int = MAX_LINKS) -> str:
        if "\0" in path:
            # Python's wrappers of the system calls raise ValueError for it.
            raise OSError(EINVAL, "a path cannot hold a NUL byte", path)
        here = base
        pending = path.split("/")[::-1]
        while pending:
            name = pending.pop()
            if name in {"", ".", ".."}:
                if must_exist and (name == ".." or not pending):
                    self._require_folder(here)
                if name == "..":
                    here = here.rpartition("/")[0] or "/"
                continue
            there = f"{here}/{name}" if here != "/" else f"/{name}"
            target = self._target(there, is_last=not pending, must_exist=must_exist)
            if target is None:
                here = there
                continue
            links_left -= 1
            if links_left < 0:
                raise OSError(ELOOP, os.strerror(ELOOP), path)
            pending.extend(target.split("/")[::-1])
            if target.startswith("/"):
                here = "/"
        return here

    def _target(self, path: str, *, is_last: bool, must_exist: bool) -> str | None:
        """Return the target of the link PATH, None if it is not a link, or is missing and may be."""
        try:
            # Folders on the way are met again and again; the last part of a path rarely is.
            return self._link_target(path) if is_last else self._folder_link(path)
        except FileNotFoundError:
            if must_exist:
                raise
            return None

    def _require_folder(self, path: str) -> None:
        """Raise NotADirectoryError if PATH is no directory: no path goes through a file, even with ``..``."""
        if not stat.S_ISDIR(os.lstat(self.outer + path).st_mode):
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), path)

    def _folder_link(self, path: str) -> str | None:
        if path in self._missing:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), path)
        if path not in self._links:
            try:
                self._links[path] = self._link_target(path)
            except FileNotFoundError:
                self._missing.add(path)
                raise
        return self._links[path]

    def _link_target(self, path: str) -> str | None:
        try:
            return os.readlink(self.outer + path)
        except OSError as error:
            # It exists and is not a link.
            if error.errno != EINVAL:
                raise
            return None

    def stat(self, path: str) -> os.stat_result:
        """Return the status of PATH, links followed."""
        return self.located(path)[1]

    def exists(self, path: str) -> bool:
        """Return whether PATH exists, links followed."""
        try:
            self.resolve(path)
        except OSError:
            return False
        return True

    def listdir(self, path: str) -> list[str]:
        """Return the names in the folder PATH, sorted by code point; raises as os.listdir."""
        return sorted(os.listdir(self.outer + self.directory(path)))

    def names(self, path: str) -> list[str]:
        """Return the names in the folder PATH; empty if it is missing or not a folder."""
        try:
            return self.listdir(path)
        except OSError:
            return []

    def read(self, path: str, *, limit: int = DEFAULT_LIMIT) -> bytes:
        """Return the content of the regular file PATH; raises OSError(EFBIG) above LIMIT bytes."""
        with self.open(path) as file:
            return file.read_all(limit)

    def open(self, path: str) -> OpenFile:
        """Open the regular file that PATH leads to, for reading; a context manager.

        A FIFO or device in its place is refused without opening it: opening a watchdog device starts it.
        """
        real, status = self.located(path)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(EISDIR, "not a regular file", real)
        descriptor = _opened(self.outer + real, status)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(EISDIR, "not a regular file", real)
            if self.outer and not self._is_within(descriptor):
                raise OSError(EXDEV, "the path was moved out of the root while it was read", real)
        except OSError:
            os.close(descriptor)
            raise
        return OpenFile(descriptor, real, status)

    def _is_within(self, descriptor: int) -> bool:
        """Ask the kernel for the path of an opened file.

        The walk above and the open are two steps, and a foreign tree may be changed between them. Without
        /proc, the walk alone has to do.
        """
        try:
            real = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            return True
        return real.startswith(self._inside)


def _opened(path: str, status: os.stat_result) -> int:
    """Open the regular file PATH, whose STATUS was just read.

    A user may swap a folder on the way for a link to /dev in between, and Python's open has no flag
    against that. O_PATH gets a descriptor without opening the file (open(2)). That costs three more system
    calls, so it is only for files of other users: most files that a cycle reads belong to root.
    """
    if status.st_uid in {0, os.geteuid()}:
        return os.open(path, _FLAGS | os.O_NOFOLLOW)
    held = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(held).st_mode):
            raise OSError(EISDIR, "not a regular file", path)
        try:
            return os.open(f"/proc/self/fd/{held}", _FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            # Without /proc, the earlier status has to do.
            return os.open(path, _FLAGS | os.O_NOFOLLOW)
    finally:
        os.close(held)


class OpenFile:
    """An open regular file: its canonical path, its status, and reads at any offset."""

    def __init__(self, descriptor: int, path: str, status: os.stat_result) -> None:
        self.descriptor = descriptor
        self.path = path
        self.size = status.st_size
        self.mode = status.st_mode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to LENGTH bytes from OFFSET; fewer at the end of the file."""
        return os.pread(self.descriptor, length, offset)

    def read_all(self, limit: int) -> bytes:
        """Return the whole content; raises OSError(EFBIG) above LIMIT bytes."""
        chunks: list[bytes] = []
        total = 0
        # Files of /proc report size 0, so read until the end, not by size.
        while chunk := os.read(self.descriptor, min(1 << 16, limit + 1 - total)):
            chunks.append(chunk)
            total += len(chunk)
            if total > limit:
                raise OSError(EFBIG, f"larger than {limit} bytes", self.path)
        return b"".join(chunks)


def parts(path: str) -> list[str]:
    """Return the names in PATH that lead anywhere, the first one last: as a walk takes them from its end."""
    return [name for name in reversed(path.split("/")) if name not in {"", "."}]


def shown(path: str) -> str:
    """Return PATH for one line of text: control characters and bytes that are not UTF-8 are escaped."""
    return path if is_plain(path) else ascii(path)[1:-1]


def is_plain(path: str) -> bool:
    """Return whether PATH is UTF-8 and free of control characters, so that a spec may contain it."""
    return path.isprintable()


def reason(error: Exception) -> str:
    """Return the system's text for ERROR without its path (``Permission denied``), or another error's."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
