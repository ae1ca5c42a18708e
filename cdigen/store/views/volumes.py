"""Volumes, which are stable paths to views: ``point_link`` sets a volume, ``remove_link`` removes it.

A volume is the link ``volumes/<name>`` of the state directory to ``../views/<view>``. ``docker run --volume``
can mount a volume in a container. At each start, the container gets the files of the present driver, even if
another driver was installed when the container was created. cdigen replaces a link in one step. cdigen does
not prune a view while a volume leads to it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError
from cdigen.store.directory import STATE_DIRECTORY, open_existing, open_owned, require_owned
from cdigen.store.failures import store_error, store_errors
from cdigen.store.lock import exclusive
from cdigen.store.tempfiles import TEMPORARY, fsync_directory, remove_file, temporary_name
from cdigen.store.views.folder import VIEW_NAME, VIEWS, host_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.store.directory import Directory

VOLUMES = "volumes"
VOLUME_DIRECTORY = "volume directory"


def point_link(state_dir: str, name: str, view: str) -> None:
    """Make the volume NAME of STATE_DIR a link to VIEW.

    Raises StoreError if a system call failed, or a foreign file has the name NAME.
    """
    with (
        open_owned(state_dir, what=STATE_DIRECTORY) as home,
        open_owned(f"{state_dir}/{VOLUMES}", what=VOLUME_DIRECTORY) as volumes_dir,
    ):
        target = f"../{VIEWS}/{view}"
        if _target(volumes_dir, name) != target:
            with exclusive(home):
                _sweep(volumes_dir)
                _exchange(volumes_dir, name, target)


def remove_link(state_dir: str, name: str) -> None:
    """Remove the volume NAME of STATE_DIR if it exists.

    Raises StoreError if a system call failed.
    """
    with (
        open_existing(state_dir, what=STATE_DIRECTORY) as home,
        open_existing(f"{state_dir}/{VOLUMES}", what=VOLUME_DIRECTORY) as volumes_dir,
    ):
        if home is None or volumes_dir is None or not _target(volumes_dir, name):
            return
        require_owned(volumes_dir, what=VOLUME_DIRECTORY)
        with exclusive(home):
            remove_file(volumes_dir, name)


def remove_all_links(state_dir: str) -> None:
    """Remove all volumes of STATE_DIR, and then the volume directory if it is empty.

    Raises StoreError if a system call failed, or other users may write to the directory.
    """
    with (
        open_existing(state_dir, what=STATE_DIRECTORY) as home,
        open_existing(f"{state_dir}/{VOLUMES}", what=VOLUME_DIRECTORY) as volumes_dir,
    ):
        if home is None or volumes_dir is None:
            return
        require_owned(volumes_dir, what=VOLUME_DIRECTORY)
        with exclusive(home):
            _sweep(volumes_dir)
            for name in _links(volumes_dir):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=volumes_dir.fd)
        # The directory stays if it contains foreign files or is a mount point.
        with suppress(OSError):
            os.rmdir(VOLUMES, dir_fd=home.fd)


def volumes(state_dir: str, root: Root) -> dict[str, str]:
    """Return the volumes of STATE_DIR that lead to an existing view: name -> path on the host of ROOT.

    Raises StoreError if the volumes cannot be read.
    """
    with open_existing(f"{state_dir}/{VOLUMES}", what=VOLUME_DIRECTORY) as volumes_dir:
        if volumes_dir is None:
            return {}
        return {
            name: host_path(volumes_dir.record(name), root)
            for name, view in _links(volumes_dir).items()
            if os.path.isdir(f"{volumes_dir.real}/../{VIEWS}/{view}")
        }


def linked_views(state_dir: str) -> dict[str, str]:
    """Return the views of the volumes of STATE_DIR: view -> path of the volume.

    Raises StoreError if the volumes cannot be read.
    """
    with open_existing(f"{state_dir}/{VOLUMES}", what=VOLUME_DIRECTORY) as volumes_dir:
        return (
            {}
            if volumes_dir is None
            else {view: volumes_dir.file(name) for name, view in _links(volumes_dir).items()}
        )


def _links(volumes_dir: Directory) -> dict[str, str]:
    """Return the volumes in VOLUMES_DIR: name -> view. All other files in VOLUMES_DIR are ignored."""
    with store_errors("cannot list", volumes_dir.path):
        names = sorted(os.listdir(volumes_dir.fd))
    found = {}
    for name in names:
        folder, _, view = _target(volumes_dir, name).rpartition("/")
        if folder == f"../{VIEWS}" and VIEW_NAME.fullmatch(view) and not TEMPORARY.fullmatch(name):
            found[name] = view
    return found


def _target(volumes_dir: Directory, name: str) -> str:
    """Return the text of the link NAME, or "" if there is no link."""
    try:
        return os.readlink(name, dir_fd=volumes_dir.fd)
    except FileNotFoundError:
        return ""
    except OSError as error:
        if error.errno == errno.EINVAL:
            return ""  # not a link
        raise store_error("cannot read", volumes_dir.file(name), error) from error


def _exchange(volumes_dir: Directory, name: str, target: str) -> None:
    # Docker makes a folder at the path of a container's --volume if the path does not exist.
    with suppress(OSError):
        os.rmdir(name, dir_fd=volumes_dir.fd)
    _require_link(volumes_dir, name)
    temporary = temporary_name(name)
    try:
        os.symlink(target, temporary, dir_fd=volumes_dir.fd)
        os.rename(temporary, name, src_dir_fd=volumes_dir.fd, dst_dir_fd=volumes_dir.fd)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=volumes_dir.fd)
        raise store_error("cannot make", volumes_dir.file(name), error) from error
    fsync_directory(volumes_dir)


def _require_link(volumes_dir: Directory, name: str) -> None:
    try:
        is_link = stat.S_ISLNK(os.stat(name, dir_fd=volumes_dir.fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot examine {shown(volumes_dir.file(name))}: {reason(error)}") from error
    if not is_link:
        raise StoreError(
            f"{shown(volumes_dir.file(name))} is not a link, and cdigen did not make it",
            hint="examine it and move it away",
        )


def _sweep(volumes_dir: Directory) -> None:
    """Remove the temporary links of killed writers. The caller holds the lock."""
    for name in os.listdir(volumes_dir.fd):
        if TEMPORARY.fullmatch(name):
            with suppress(OSError):
                os.unlink(name, dir_fd=volumes_dir.fd)
