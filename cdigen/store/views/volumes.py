"""Keep a stable path to the view of each kind: ``lead`` exchanges its link, ``drop`` removes it.

The links ``volumes/<name>`` of the state directory lead to ``../views/<view>``. Whoever names files by such a
path, as ``docker run --volume`` does, has those of the driver that is there when the container starts, not of
the one that was there when it was made. A link is exchanged in one step, and its view is not pruned.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError
from cdigen.store.directory import STATE_DIRECTORY, open_existing, open_owned, require_owned
from cdigen.store.failures import store_error
from cdigen.store.lock import exclusive
from cdigen.store.tempfiles import TEMPORARY, fsync_directory, temporary_name
from cdigen.store.views.folder import VIEW_NAME, VIEWS, host_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.store.directory import Directory

VOLUMES = "volumes"
VOLUME_DIRECTORY = "volume directory"


def lead(state_dir: str, name: str, view: str) -> bool:
    """Let the volume NAME of STATE_DIR lead to VIEW from now on; return whether it led elsewhere.

    StoreError: the system refused, or something of others is in its place.
    """
    with (
        open_owned(state_dir, what=STATE_DIRECTORY) as home,
        open_owned(f"{state_dir}/{VOLUMES}", what=VOLUME_DIRECTORY) as place,
    ):
        target = f"../{VIEWS}/{view}"
        if _target(place, name) == target:
            return False
        with exclusive(home):
            _sweep(place)
            _exchange(place, name, target)
    return True


def drop(state_dir: str, name: str) -> bool:
    """Remove the volume NAME of STATE_DIR, whose files are not served any more; return whether it was there.

    StoreError: the system refused.
    """
    with (
        open_existing(state_dir, what=STATE_DIRECTORY) as home,
        open_existing(f"{state_dir}/{VOLUMES}", what=VOLUME_DIRECTORY) as place,
    ):
        if home is None or place is None or not _target(place, name):
            return False
        require_owned(place, what=VOLUME_DIRECTORY)
        with exclusive(home):
            try:
                os.unlink(name, dir_fd=place.fd)
            except FileNotFoundError:
                return False
            except OSError as error:
                raise store_error("cannot remove", place.file(name), error) from error
            fsync_directory(place)
    return True


def volumes(state_dir: str, root: Root) -> dict[str, str]:
    """Return the volumes of STATE_DIR that lead to a view: name -> path on the host of ROOT.

    StoreError: they cannot be read.
    """
    with open_existing(f"{state_dir}/{VOLUMES}", what=VOLUME_DIRECTORY) as place:
        if place is None:
            return {}
        return {
            name: host_path(place.record(name), root)
            for name, view in _links(place).items()
            if os.path.isdir(f"{place.real}/../{VIEWS}/{view}")
        }


def led_to(state_dir: str) -> dict[str, str]:
    """Return the views to which volumes of STATE_DIR lead: view -> path of volume. StoreError: as above."""
    with open_existing(f"{state_dir}/{VOLUMES}", what=VOLUME_DIRECTORY) as place:
        return {} if place is None else {view: place.file(name) for name, view in _links(place).items()}


def _links(place: Directory) -> dict[str, str]:
    """Return name -> view of the links in PLACE; everything else there is ignored."""
    try:
        names = sorted(os.listdir(place.fd))
    except OSError as error:
        raise store_error("cannot list", place.path, error) from error
    found = {}
    for name in names:
        folder, _, view = _target(place, name).rpartition("/")
        if folder == f"../{VIEWS}" and VIEW_NAME.fullmatch(view) and not TEMPORARY.fullmatch(name):
            found[name] = view
    return found


def _target(place: Directory, name: str) -> str:
    """Return what the link NAME holds; empty where there is none."""
    try:
        return os.readlink(name, dir_fd=place.fd)
    except FileNotFoundError:
        return ""
    except OSError as error:
        if error.errno == errno.EINVAL:
            return ""  # no link
        raise store_error("cannot read", place.file(name), error) from error


def _exchange(place: Directory, name: str, target: str) -> None:
    # Docker makes a folder of what a container's --volume names and is not there.
    with suppress(OSError):
        os.rmdir(name, dir_fd=place.fd)
    _require_link(place, name)
    temporary = temporary_name(name)
    try:
        os.symlink(target, temporary, dir_fd=place.fd)
        os.rename(temporary, name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=place.fd)
        raise store_error("cannot make", place.file(name), error) from error
    fsync_directory(place)


def _require_link(place: Directory, name: str) -> None:
    try:
        is_link = stat.S_ISLNK(os.stat(name, dir_fd=place.fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot look at {shown(place.file(name))}: {reason(error)}") from error
    if not is_link:
        raise StoreError(
            f"{shown(place.file(name))} is not a link, and cdigen did not make it",
            hint="see what it is, and move it away",
        )


def _sweep(place: Directory) -> None:
    """Remove the links that writers left when killed; the caller holds the lock."""
    for name in os.listdir(place.fd):
        if TEMPORARY.fullmatch(name):
            with suppress(OSError):
                os.unlink(name, dir_fd=place.fd)
