"""Keep the driver's libraries from making device nodes in the container (ModifyDeviceFiles: 0): ``disable``.

The driver's libraries make or change /dev/nvidia* as /proc/driver/nvidia/params says. ``disable`` lays a
file of its own over it: mounts of the container's mount namespace alone, none of which has a source in
the image. It is advice to well-behaved programs: who may mount in the container may take it away.

The file is on a tmpfs of ours, that lies over /proc/driver/nvidia for as long as this takes: no other
place is sure to be there and writable (a read-only root has none), and nothing is left behind. All
mounting is by the descriptors (/proc/self/fd/N) of what was checked before. Descriptors stay open: the
program's end is near.
"""

from __future__ import annotations

import posix
from posix import O_CLOEXEC, O_CREAT, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_WRONLY

from cdigen.hook.container import (
    ContainerPathError,
    MissingPathError,
    mount_of,
    path_error,
    regular_size,
    reopen,
    write_all,
)
from cdigen.hook.image_paths import open_image_path
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.hook.container import ContainerRoot

    Mount = Callable[[str | None, str, str | None, int, str | None], None]
    Unmount = Callable[[str, int], None]

PARENT, FOLDER, NAME = "/proc/driver", "nvidia", "params"
PARAMS = f"{PARENT}/{FOLDER}/{NAME}"
MODIFY = b"ModifyDeviceFiles: 1"
DO_NOT_MODIFY = b"ModifyDeviceFiles: 0"

# A bound of ours: the driver's file has 1.5 KB.
_MAX_PARAMS = 65536

# mount(2), umount(2): linux/mount.h
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND = 1, 2, 4, 8, 32, 4096
_DETACH = 2
_CLOSED = _NOSUID | _NODEV | _NOEXEC

_LOOK = O_PATH | O_NOFOLLOW | O_CLOEXEC
_NEW = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC


@frozen
class ParamsFile:
    """The file ``name`` in ``folder_name`` in the open ``parent``, and O_PATH descriptors of both."""

    parent: int
    folder_name: str
    name: str
    folder: int
    file: int


def disable(container: ContainerRoot) -> None:
    """Lay ModifyDeviceFiles: 0 over the container's driver parameters, where they say 1.

    Nothing is done without the driver's file, and where it says something else. ContainerPathError: it is
    not the driver's own file in a /proc of the container alone, or the system does not let us mount.
    """
    try:
        place = open_params(open_image_path(container, PARENT), FOLDER, NAME)
        changed = without_modification(_content(place.file))
        if changed is not None:
            check_mounts(place)
            mount_over(place, changed)
    except (MissingPathError, FileNotFoundError):
        return
    except OSError as error:
        raise path_error(PARAMS, error) from error


def open_params(parent: int, folder_name: str, name: str) -> ParamsFile:
    """Return the place of the file NAME in FOLDER_NAME in the open PARENT. OSError: it cannot be opened."""
    folder = _look(folder_name, parent)
    return ParamsFile(
        parent=parent, folder_name=folder_name, name=name, folder=folder, file=_look(name, folder)
    )


def without_modification(content: bytes) -> bytes | None:
    """Return the driver's parameters with ModifyDeviceFiles: 0, or None where they do not say 1."""
    lines = content.split(b"\n")
    if MODIFY not in lines:
        return None
    return b"\n".join([DO_NOT_MODIFY if line == MODIFY else line for line in lines])


def check_mounts(place: ParamsFile) -> None:
    """Raise ContainerPathError unless the place is on one proc file system whose mounts nobody shares.

    What is mounted under a shared mount (``-v /proc:/proc:rshared``) is mounted on the host as well.
    """
    mount = mount_of(place.folder)
    if mount_of(place.file) != mount:
        raise ContainerPathError(PARAMS, "another mount lies there already")
    fields, file_system = _mountinfo(mount)
    if file_system != b"proc":
        raise ContainerPathError(PARAMS, "it is not on a proc file system")
    if any(field.startswith(b"shared:") for field in fields):
        raise ContainerPathError(PARAMS, "what is mounted on this /proc is mounted on the host as well")


def mount_over(place: ParamsFile, content: bytes) -> None:
    """Mount a read-only file with CONTENT over the file of PLACE.

    OSError: the system does not let us; nothing is mounted then.
    """
    mount, unmount = _system_calls()
    mount("tmpfs", _at(place.folder), "tmpfs", _CLOSED, "size=64k,mode=755")
    # By name: the descriptor of the folder still stands for what our tmpfs now lies over.
    cover = _look(place.folder_name, place.parent)
    try:
        fd = posix.open(place.name, _NEW, 0o600, dir_fd=cover)
        write_all(fd, content)
        mount(_at(fd), _at(place.file), None, _BIND, None)
        _close_down(mount, unmount, _look(place.name, place.folder))
    finally:
        unmount(_at(cover), _DETACH)


def _close_down(mount: Mount, unmount: Unmount, over: int) -> None:
    """Make the new mount OVER read-only; without that it must not stay."""
    try:
        mount(None, _at(over), None, _REMOUNT | _BIND | _RDONLY | _CLOSED, None)
    except OSError:
        unmount(_at(over), _DETACH)
        raise


def _look(name: str, folder: int) -> int:
    """Return an O_PATH descriptor, closed at exec and otherwise by the end of the program."""
    return posix.open(name, _LOOK, dir_fd=folder)


def _at(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def _content(params: int) -> bytes:
    regular_size(params, PARAMS)
    fd = reopen(params)
    try:
        return posix.read(fd, _MAX_PARAMS)
    finally:
        posix.close(fd)


def _mountinfo(mount: int) -> tuple[list[bytes], bytes]:
    """Return the optional fields of the mount with that number, and its file system type (proc(5))."""
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(b" - ")
        fields = before.split()
        if fields[:1] == [b"%d" % mount]:
            return fields[6:], after.split()[0]
    raise ContainerPathError(PARAMS, "its mount is not among the container's")


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a table that may be far larger than what is wanted of it."""
    fd = posix.open(path, O_RDONLY | O_CLOEXEC)
    try:
        rest = b""
        while piece := posix.read(fd, 65536):
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
    finally:
        posix.close(fd)


def _system_calls() -> tuple[Mount, Unmount]:
    """Return mount(2) and umount2(2), which Python lacks. They raise OSError."""
    import ctypes  # noqa: PLC0415 - 3 ms that only a container with the driver's file pays

    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, posix.strerror(number))

    def text(value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
        call("mount", text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data))

    def unmount(target: str, flags: int) -> None:
        call("umount2", text(target), flags)

    return mount, unmount
