"""``disable``: prevents the driver's libraries from creating device nodes (ModifyDeviceFiles: 0).

The driver's libraries create or change /dev/nvidia* if /proc/driver/nvidia/params permits this. ``disable``
mounts another file over the params file. This mount exists only in the container's mount namespace, and the
mounted file is not in the image. A program with the permission to mount can remove the mount.

``disable`` mounts a tmpfs over /proc/driver/nvidia, creates the new file on the tmpfs, and unmounts the tmpfs
at the end. The tmpfs is necessary because a read-only root has no writable folder. All mounts use the
descriptors (/proc/self/fd/N) of files that were checked before. The functions do not close the descriptors,
because the program ends soon.
"""

from __future__ import annotations

import posix
from posix import O_CLOEXEC, O_RDONLY

from cdigen.hook.container import (
    EXAMINE,
    NEW,
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

# A limit of cdigen in bytes. The driver's file has 1.5 KB.
_MAX_PARAMS = 65536

# Flags of mount(2) and umount(2) from linux/mount.h.
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND = 1, 2, 4, 8, 32, 4096
_DETACH = 2
_CLOSED = _NOSUID | _NODEV | _NOEXEC


@frozen
class ParamsFile:
    """The params file and its folder.

    ``parent`` is the descriptor of the folder above the file's folder. ``folder_name`` is the name of the
    file's folder, and ``name`` is the name of the file. ``folder`` and ``file`` are the O_PATH descriptors of
    the file's folder and of the file.
    """

    parent: int
    folder_name: str
    name: str
    folder: int
    file: int


def disable(container: ContainerRoot) -> None:
    """Mount a copy of the container's params file with ModifyDeviceFiles: 0 over the original file.

    The function does nothing if the params file does not exist or has no ModifyDeviceFiles: 1. Raise
    ContainerPathError if the file is not on a proc file system, if mounts on this /proc are shared with the
    host, if another file is already mounted over the file, or if the system refuses the mount.
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
    """Return the file NAME in the folder FOLDER_NAME of the open PARENT.

    Raise OSError if the file or the folder cannot be opened.
    """
    folder = _open_path(folder_name, parent)
    return ParamsFile(
        parent=parent, folder_name=folder_name, name=name, folder=folder, file=_open_path(name, folder)
    )


def without_modification(content: bytes) -> bytes | None:
    """Return CONTENT with ModifyDeviceFiles: 0, or None if CONTENT has no ModifyDeviceFiles: 1."""
    lines = content.split(b"\n")
    if MODIFY not in lines:
        return None
    return b"\n".join([DO_NOT_MODIFY if line == MODIFY else line for line in lines])


def check_mounts(place: ParamsFile) -> None:
    """Raise ContainerPathError if the folder and the file of PLACE are not on the same proc mount.

    The function also raises the error if this mount is shared (``-v /proc:/proc:rshared``), because the
    hook's mount would then also appear on the host.
    """
    mount = mount_of(place.folder)
    if mount_of(place.file) != mount:
        raise ContainerPathError(PARAMS, "another file is already mounted over this file")
    fields, file_system = _mountinfo(mount)
    if file_system != b"proc":
        raise ContainerPathError(PARAMS, "is not on a proc file system")
    if any(field.startswith(b"shared:") for field in fields):
        raise ContainerPathError(PARAMS, "is on a shared mount: the host would also get the hook's mount")


def mount_over(place: ParamsFile, content: bytes) -> None:
    """Mount a read-only file with CONTENT over the file of PLACE.

    Raise OSError if the system refuses a mount. No mount then remains.
    """
    mount, unmount = _system_calls()
    mount("tmpfs", _at(place.folder), "tmpfs", _CLOSED, "size=64k,mode=755")
    # The folder is opened by name, because the old descriptor still refers to the folder under the tmpfs.
    cover = _open_path(place.folder_name, place.parent)
    try:
        fd = posix.open(place.name, NEW, 0o600, dir_fd=cover)
        write_all(fd, content)
        mount(_at(fd), _at(place.file), None, _BIND, None)
        _make_read_only(mount, unmount, _open_path(place.name, place.folder))
    finally:
        unmount(_at(cover), _DETACH)


def _make_read_only(mount: Mount, unmount: Unmount, over: int) -> None:
    """Make the mount with the descriptor OVER read-only. On failure, remove the mount and raise OSError."""
    try:
        mount(None, _at(over), None, _REMOUNT | _BIND | _RDONLY | _CLOSED, None)
    except OSError:
        unmount(_at(over), _DETACH)
        raise


def _open_path(name: str, folder: int) -> int:
    """Return an O_PATH descriptor of NAME in FOLDER. The descriptor stays open until the program ends."""
    return posix.open(name, EXAMINE, dir_fd=folder)


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
    """Return the optional fields of the mount with the ID MOUNT, and its file system type (proc(5))."""
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(b" - ")
        fields = before.split()
        if fields[:1] == [b"%d" % mount]:
            return fields[6:], after.split()[0]
    raise ContainerPathError(PARAMS, "is on a mount that /proc/self/mountinfo does not list")


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines of the file PATH, which can be large."""
    fd = posix.open(path, O_RDONLY | O_CLOEXEC)
    try:
        rest = b""
        while piece := posix.read(fd, 65536):
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
    finally:
        posix.close(fd)


def _system_calls() -> tuple[Mount, Unmount]:
    """Return a mount(2) and an umount2(2) function, because Python has none. Both raise OSError."""
    import ctypes  # noqa: PLC0415 - the import takes 3 ms, and few containers have the driver's file

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
