"""Read a folder tree as the root of a host: ``Root``.

``Root`` follows links within the tree. An absolute link or a ``..`` never leads out of the tree. The kernel
follows links in the same manner after chroot(2). ``Root`` needs no privilege, and works for many trees in one
process.
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
# Most files that cdigen reads completely are small. Larger files, such as ld.so.cache (16 MiB,
# binfmt.ldcache), have their own limits.
DEFAULT_LIMIT = 1 << 20
# For deeper paths, ``Root`` resolves each part without the cache of folders.
_MAX_NESTING = 64
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class Root:
    """The file tree of a host: the root of this machine (``/``) or any other folder.

    ``outer`` is the tree's path on this machine. ``host_prefix`` is the tree's path on the host: ``/`` for
    the root of a host, ``/run/nvidia/driver`` for the root of a driver container. Path arguments are absolute
    within the tree. An instance caches existing and missing folders and links, so use an instance for only
    one read of the host. Methods raise the ``OSError`` of the underlying system call.
    """

    def __init__(self, outer: str = "/", *, host_prefix: str = "/") -> None:
        self.outer = "" if outer == "/" else outer
        self.host_prefix = "" if host_prefix == "/" else host_prefix
        self._directories: dict[str, str] = {"/": "/"}
        self._links: dict[str, str | None] = {}
        # _missing has canonical paths that do not exist. _dangling has requested paths that do not lead to a
        # folder. A dangling link is only in _dangling, because the link itself exists.
        self._missing: set[str] = set()
        self._dangling: set[str] = set()
        self._inside = os.path.realpath(outer).rstrip("/") + "/"

    def __repr__(self) -> str:
        return f"Root({self.outer or '/'!r}, host_prefix={self.host_prefix or '/'!r})"

    @property
    def is_this_machine(self) -> bool:
        """Whether the tree is the root of the running machine."""
        return not self.outer

    def below(self, path: str) -> Root:
        """Return the folder PATH of this tree as a new ``Root``."""
        real = self.resolve(path)
        if real == "/":
            return self
        return Root(self.outer + real, host_prefix=self.host_prefix + real)

    def forget_missing(self) -> None:
        """Remove missing folders from the cache, after another part of cdigen has made some of them."""
        self._missing.clear()
        self._dangling.clear()

    def host_path(self, path: str) -> str:
        """Return PATH of this tree as a path of the host."""
        return self.host_prefix + path

    def outer_path(self, path: str) -> str:
        """Return the canonical PATH of this tree as a path of this machine."""
        return self.outer + path

    def resolve(self, path: str) -> str:
        """Return the canonical path of PATH in the tree, without links, ``.`` and ``..``.

        Raises FileNotFoundError, NotADirectoryError, PermissionError, OSError(ELOOP), or OSError(EINVAL) if
        PATH contains a NUL byte.
        """
        head, _, name = path.rpartition("/")
        if name in {"", ".", ".."} or "\0" in path:
            return self._walk("/", path)
        folder = self.directory(head or "/")
        path = f"{folder}/{name}" if folder != "/" else f"/{name}"
        # Most paths are not links. A complete walk for each path would take most of the daemon's time.
        target = self._link_target(path)
        if target is None:
            return path
        return self._follow(folder, target)

    def resolve_new(self, path: str) -> str:
        """Return the canonical path of PATH, as ``resolve`` does, but the last parts may be missing.

        Resolve a path with this method before you make its missing folders. If the path were not resolved,
        the kernel would follow an absolute link out of the tree. Raises the same errors as ``resolve``,
        except for missing parts.
        """
        return self._walk("/", path, must_exist=False)

    def located(self, path: str) -> tuple[str, os.stat_result]:
        """Return the canonical path and the status of PATH; raises the same errors as ``resolve``."""
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
        """Return (and cache) the canonical path of the folder PATH; raises the same errors as ``resolve``."""
        real = self._directories.get(path)
        if real is None:
            if path in self._dangling:
                raise FileNotFoundError(ENOENT, os.strerror(ENOENT), path)
            try:
                real = self._find_directory(path)
            except FileNotFoundError:
                self._dangling.add(path)
                raise
            self._directories[path] = real
        return real

    def _find_directory(self, path: str) -> str:
        head, _, name = path.rpartition("/")
        if name in {"", ".", ".."} or "\0" in path or path.count("/") > _MAX_NESTING:
            return self._walk("/", path)
        # The parent is cached, because a parent can have hundreds of folders.
        above = self.directory(head or "/")
        real = f"{above}/{name}" if above != "/" else f"/{name}"
        target = self._folder_link(real)
        return real if target is None else self._follow(above, target)

    def _follow(self, folder: str, target: str) -> str:
        """Return the canonical path to which the link target TARGET leads from the canonical FOLDER."""
        return self._walk("/" if target.startswith("/") else folder, target, links_left=MAX_LINKS - 1)

    def _walk(self, base: str, path: str, *, must_exist: bool = True, links_left: int = MAX_LINKS) -> str:
        if "\0" in path:
            # Python's wrappers of the system calls would raise ValueError.
            raise OSError(EINVAL, "a path cannot contain a NUL byte", path)
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
        """Return the target of the link PATH; None for no link, or if PATH is missing and need not exist."""
        try:
            # Only folders are cached, because the last part of a path is rarely needed again.
            return self._link_target(path) if is_last else self._folder_link(path)
        except FileNotFoundError:
            if must_exist:
                raise
            return None

    def _require_folder(self, path: str) -> None:
        """Raise NotADirectoryError if PATH is not a directory."""
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
            # EINVAL: PATH exists and is not a link.
            if error.errno != EINVAL:
                raise
            return None

    def stat(self, path: str) -> os.stat_result:
        """Return the status of PATH; all links are followed."""
        return self.located(path)[1]

    def exists(self, path: str) -> bool:
        """Return whether PATH exists; all links are followed."""
        try:
            self.resolve(path)
        except OSError:
            return False
        return True

    def is_link(self, path: str) -> bool:
        """Return whether the last component of PATH is a link; the links above it are followed."""
        folder, _, name = path.rpartition("/")
        try:
            return os.path.islink(f"{self.outer_path(self.directory(folder))}/{name}")
        except OSError:
            return False

    def listdir(self, path: str) -> list[str]:
        """Return the names in the folder PATH, sorted by code point; raises OSError."""
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
        """Return the regular file PATH, open for reading, as a context manager.

        A FIFO or a device at PATH raises OSError and is not opened, because opening a watchdog device starts
        the watchdog.
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
        """Return whether the kernel's path of an opened file is within the tree.

        Another process can change the tree between the walk of the path and the open. Without /proc, the
        method returns True.
        """
        try:
            real = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            return True
        return real.startswith(self._inside)


def _opened(path: str, status: os.stat_result) -> int:
    """Return a descriptor of the regular file PATH; STATUS is the status from just before the call.

    After the read of STATUS, a user can replace a folder on the path with a link to /dev. Python's open has
    no flag that prevents this. For this reason, O_PATH first returns a descriptor without opening the file
    (open(2)). O_PATH needs three more system calls, so only the files of other users are opened with O_PATH.
    Most files that a cycle reads belong to root.
    """
    if status.st_uid in {0, os.geteuid()}:
        return os.open(path, _FLAGS | os.O_NOFOLLOW)
    path_descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(path_descriptor).st_mode):
            raise OSError(EISDIR, "not a regular file", path)
        try:
            return os.open(f"/proc/self/fd/{path_descriptor}", _FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            # Without /proc, only STATUS shows that the file is regular.
            return os.open(path, _FLAGS | os.O_NOFOLLOW)
    finally:
        os.close(path_descriptor)


class OpenFile:
    """An open regular file with its canonical path, its size and its mode."""

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
        # Files of /proc have the size 0, so the loop reads until the end of the file.
        while chunk := os.read(self.descriptor, min(1 << 16, limit + 1 - total)):
            chunks.append(chunk)
            total += len(chunk)
            if total > limit:
                raise OSError(EFBIG, f"larger than {limit} bytes", self.path)
        return b"".join(chunks)


def parts(path: str) -> list[str]:
    """Return the names in PATH in reverse order, without empty names and ``.``."""
    return [name for name in reversed(path.split("/")) if name not in {"", "."}]


def shown(path: str) -> str:
    """Return PATH for one line of text, with escaped control characters and escaped non-UTF-8 bytes."""
    return path if is_plain(path) else ascii(path)[1:-1]


def is_plain(path: str) -> bool:
    """Return whether PATH is UTF-8 without control characters; a spec can contain only such paths."""
    return path.isprintable()


def reason(error: Exception) -> str:
    """Return the system's text for ERROR without the path (``Permission denied``), or the text of ERROR."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
