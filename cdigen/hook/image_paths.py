"""``open_image_path``: opens a path of the image for reading, and resolves links as in the container.

The module, not the kernel, resolves links and ``..``. An absolute link starts again at the container's root.
``..`` leads to the previous folder, and never above the container's root. For a magic link (/proc/self/root),
only the text of the link is used. The module opens no file for writing. It also opens folders that a user has
mounted into the container. This is safe, because the hook reads only a limited number of bytes of regular
files there. Only ``device_params`` also mounts a file over such a path, after a check of the mount.
"""

from __future__ import annotations

import posix
from _stat import S_ISLNK

from cdigen.hook.container import EXAMINE, ContainerPathError, MissingPathError, path_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.hook.container import ContainerRoot

# MAX_LINKS is the kernel's limit for links (path_resolution(7)). MAX_STEPS is cdigen's limit for the
# components of a path and of the links in it.
MAX_LINKS = 40
MAX_STEPS = 512


def open_image_path(container: ContainerRoot, path: str, *, closed: frozenset[str] = frozenset()) -> int:
    """Return an O_PATH descriptor of the file at the absolute PATH in the container.

    CLOSED are the names of folders directly below the container's root. The function does not open these
    folders. Raise MissingPathError if PATH does not exist or leads into such a folder. Raise
    ContainerPathError if PATH has too many links or components, or if the system refuses to open a component.
    """
    trail = [posix.dup(container.fd)]
    try:
        _walk(trail, path, closed)
        return trail.pop()
    finally:
        for fd in trail:
            posix.close(fd)


def _walk(trail: list[int], path: str, closed: frozenset[str]) -> None:
    """Open the components of PATH; TRAIL contains the descriptors from the root to the current folder."""
    todo = path.split("/")[::-1]
    links = 0
    for _ in range(MAX_STEPS):
        if not todo:
            return
        name = todo.pop()
        if name in {"", "."}:
            continue
        if name == "..":
            _drop(trail, 1 if len(trail) > 1 else 0)
            continue
        if name in closed and len(trail) == 1:
            raise MissingPathError(path, f"leads into /{name}")
        target = _enter(trail, name, path)
        if target is None:
            continue
        links += 1
        if links > MAX_LINKS:
            raise ContainerPathError(path, f"the path has more than {MAX_LINKS} links")
        if target.startswith("/"):
            _drop(trail, len(trail) - 1)
        todo += target.split("/")[::-1]
    raise ContainerPathError(path, f"the path has more than {MAX_STEPS} steps")


def _enter(trail: list[int], name: str, path: str) -> str | None:
    """Return the text of the link NAME, or add the descriptor of NAME to TRAIL and return None."""
    try:
        fd = posix.open(name, EXAMINE, dir_fd=trail[-1])
        trail.append(fd)
        if not S_ISLNK(posix.fstat(fd).st_mode):
            return None
        target = posix.readlink("", dir_fd=fd)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingPathError(path, "does not exist") from None
    except OSError as error:
        raise path_error(path, error) from error
    _drop(trail, 1)
    return target


def _drop(trail: list[int], count: int) -> None:
    for _ in range(count):
        posix.close(trail.pop())
