"""Open a path of the image for reading, its links followed as in the container: ``open_image_path``.

The kernel is never given a link, or ``..``, to resolve: an absolute link begins again at the container's
root, ``..`` takes back the last step, and of a magic link (/proc/self/root) only the text counts. For
reading only: a folder that a user has mounted into the container is part of it here, as nothing is
written and what is read are a few bounded bytes of a regular file.
"""

from __future__ import annotations

import posix
from _stat import S_ISLNK
from posix import O_CLOEXEC, O_NOFOLLOW, O_PATH

from cdigen.hook.container import ContainerPathError, MissingPathError, path_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.hook.container import ContainerRoot

# The kernel's own bound for links (path_resolution(7)), and one of ours for all that a path becomes.
MAX_LINKS = 40
MAX_STEPS = 512
_LOOK = O_PATH | O_NOFOLLOW | O_CLOEXEC


def open_image_path(container: ContainerRoot, path: str, *, closed: frozenset[str] = frozenset()) -> int:
    """Return an O_PATH descriptor of what PATH, absolute, is for the container's processes.

    Folders of the root whose names are CLOSED are not entered. MissingPathError: it is not there, or there.
    ContainerPathError: too many links or steps, or the system does not let us.
    """
    trail = [posix.dup(container.fd)]
    try:
        _walk(trail, path, closed)
        return trail.pop()
    finally:
        for fd in trail:
            posix.close(fd)


def _walk(trail: list[int], path: str, closed: frozenset[str]) -> None:
    """Go along PATH; TRAIL holds the descriptors from the root to where we are."""
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
            raise MissingPathError(path, f"it leads into /{name}")
        target = _enter(trail, name, path)
        if target is None:
            continue
        links += 1
        if links > MAX_LINKS:
            raise ContainerPathError(path, f"more than {MAX_LINKS} links are on the way")
        if target.startswith("/"):
            _drop(trail, len(trail) - 1)
        todo += target.split("/")[::-1]
    raise ContainerPathError(path, f"more than {MAX_STEPS} steps are on the way")


def _enter(trail: list[int], name: str, path: str) -> str | None:
    """Go one step further, or return the text of the link that is there."""
    try:
        fd = posix.open(name, _LOOK, dir_fd=trail[-1])
        trail.append(fd)
        if not S_ISLNK(posix.fstat(fd).st_mode):
            return None
        target = posix.readlink("", dir_fd=fd)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingPathError(path, "it is not there") from None
    except OSError as error:
        raise path_error(path, error) from error
    _drop(trail, 1)
    return target


def _drop(trail: list[int], count: int) -> None:
    for _ in range(count):
        posix.close(trail.pop())
