"""Remove cdigen's state, views and folders in /run.

etc/uninstall runs this module for ``cdigen install-service --remove``, after etc/uninstall has stopped the
services and withdrawn the specs. cdigen keeps a view if a spec names the view or a container has mounted it.
cdigen also keeps the original of each runtime file that ``cdigen configure`` has changed.

cdigen removes nothing in these places: a directory that other users can write to, a state directory of
another program, a mount.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from argparse import Namespace
from contextlib import suppress

from cdigen.cli.shared import options
from cdigen.config import Settings
from cdigen.health import marks, state_file
from cdigen.host.mountinfo import rows
from cdigen.host.root import reason, shown
from cdigen.kubelet.labels import label_file
from cdigen.model.errors import CdigenError
from cdigen.store import lock, tempfiles
from cdigen.store.configfiles import FOLDER
from cdigen.store.directory import STATE_DIRECTORY, open_existing, require_owned
from cdigen.store.records import config_files, owned_specs, run_dir, saved, unit_sizes
from cdigen.store.snapshot import NO_FILE, take_snapshot
from cdigen.store.views.folder import BOOT_FILE, VIEWS
from cdigen.store.views.pruning import GRACE_S, prune
from cdigen.store.views.volumes import remove_all_links

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.store.directory import Directory

_FILES = (
    *(state_file.FILE, saved.KNOWN_LINKS.name, lock.LOCK_FILE, marks.FILE, saved.PARTITION_NAMES.name),
    *(*owned_specs.DAMAGED_FILES, *marks.DAMAGED_FILES),
    # The state file is removed last. If a removal fails and runs again, cdigen recognizes a configured state
    # directory by this file.
    *(unit_sizes.FILE, run_dir.FILE, f"{VIEWS}/{BOOT_FILE}", owned_specs.STATE_FILE),
)
# The prefixes of the hook, as installed by packages, 'make install' and 'install-service'.
_PREFIXES = ("/usr", "/usr/local", "/etc/cdigen/installed")
_SPECS_OF_RUN = "/run/cdi"


def run(*, own_hook: str) -> None:
    """Remove the state and the views of this host; print each remaining file and the reason on stderr.

    If the host has an installation with another hook than OWN_HOOK, all state stays.
    """
    arguments = Namespace(root="/", config=None, spec_dir=None)
    host, settings, _ = options.host_and_usable_settings(arguments)
    hooks = [f"{prefix}/libexec/cdigen/cdigen-hook" for prefix in _PREFIXES]
    other = next((hook for hook in hooks if hook != own_hook and os.path.lexists(hook)), "")
    if other:
        _note(f"{shown(settings.state_dir)} stays: the installation of {other} uses it")
        return
    try:
        _remove_state(settings.state_dir, options.known_spec_directories(arguments, host, settings))
    except (CdigenError, OSError) as error:
        _note(f"{shown(settings.state_dir)} stays: {reason(error)}")
    # Only the default folders are removed, because configured folders can contain files of other programs.
    for folder in (Settings().daemon.run_dir, Settings().nri.run_dir, Settings().kubelet.run_dir):
        _remove_run_dir(folder)
    _remove_labels(settings.kubelet.labels)
    with suppress(OSError):
        os.rmdir(_SPECS_OF_RUN)


def _remove_state(state_dir: str, spec_dirs: tuple[str, ...]) -> None:
    """Remove cdigen's files in STATE_DIR and old temporary files; remove STATE_DIR if it is empty."""
    _sweep(spec_dirs)
    with open_existing(state_dir, what=STATE_DIRECTORY) as home:
        if home is None:
            return
        require_owned(home, what=STATE_DIRECTORY)
        if state_dir != Settings().state_dir and not _has_state(home):
            _note(f"{shown(state_dir)} stays: it has no {owned_specs.STATE_FILE} of cdigen")
            return
        remove_all_links(state_dir)
        # A runtime that read a spec before the withdrawal can still start a container with this spec. No
        # grace period is necessary here, because etc/uninstall has waited for such starts.
        views = prune(state_dir, spec_dirs=spec_dirs, now=lambda: time.time() + GRACE_S)
        for view in views:
            if view.result != "removed":
                _note(f"{shown(state_dir)}/{VIEWS}/{view.name} stays: {view.reason}")
        with lock.exclusive(home):
            tempfiles.sweep(home)
            for name in _FILES:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=home.fd)
        with suppress(OSError):
            os.rmdir(VIEWS, dir_fd=home.fd)
        _remove_undone(home.file(FOLDER))
        _report_remaining(home)
    with suppress(OSError):
        os.rmdir(state_dir)


def _sweep(spec_dirs: tuple[str, ...]) -> None:
    """Remove the temporary files in SPEC_DIRS that remain after a killed write."""
    for spec_dir in spec_dirs:
        # If a spec directory is a link or cannot be opened, it contains no specs of cdigen.
        with suppress(CdigenError), open_existing(spec_dir) as directory:
            if directory is not None:
                tempfiles.sweep(directory)


def _has_state(home: Directory) -> bool:
    _, damage = owned_specs.read_only(home)
    return take_snapshot(home, owned_specs.STATE_FILE) != NO_FILE and not damage


def _remove_undone(folder: str) -> None:
    """Remove each runtime's folder in FOLDER if ``cdigen configure --undo`` has restored its files."""
    with suppress(OSError):
        for runtime in os.listdir(folder):
            with suppress(OSError):
                if not os.path.lexists(f"{folder}/{runtime}/{config_files.FILE}"):
                    os.unlink(f"{folder}/{runtime}/{lock.LOCK_FILE}")
                    os.rmdir(f"{folder}/{runtime}")
        os.rmdir(folder)


def _report_remaining(home: Directory) -> None:
    """Report the remaining files in HOME, except the views, which are reported separately."""
    for name in sorted(os.listdir(home.fd)):
        if name == FOLDER:
            _note(f"{shown(home.file(name))} stays: it has the files that 'cdigen configure' replaced")
        elif name != VIEWS:
            _note(f"{shown(home.file(name))} stays: cdigen did not write it")


def _remove_run_dir(folder: str) -> None:
    if mount := _mount_in(folder):
        _note(f"{shown(folder)} stays: {shown(mount)} is a mount point")
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _mount_in(folder: str) -> str:
    """Return the first mount point that is FOLDER or inside FOLDER, or an empty text if there is none.

    Source of the format: proc_pid_mountinfo(5), field 5.
    """
    points = (os.fsdecode(row.split(b" ", 5)[4]) for row in rows("/proc/self/mountinfo"))
    return next((point for point in points if f"{point}/".startswith(f"{folder}/")), "")


def _remove_labels(path: str) -> None:
    """Remove the file PATH with the labels for Node Feature Discovery if ``cdigen kubelet`` wrote it."""
    if not path:
        return
    try:
        with open_existing(os.path.dirname(path), what="the folder") as directory:
            if directory is None:
                return
            content = take_snapshot(directory, os.path.basename(path), limit=label_file.MAX_BYTES).content
            if content is not None and label_file.is_ours(content):
                os.unlink(os.path.basename(path), dir_fd=directory.fd)
    except (CdigenError, OSError) as error:
        _note(f"{shown(path)} stays: {reason(error)}")


def _note(text: str) -> None:
    sys.stderr.write(f"etc/install: {text}\n")
