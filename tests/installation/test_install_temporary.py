"""Other users cannot access the temporary files of `make install` in TMPDIR.

In these tests, all users can write to TMPDIR, and it has no sticky bit. The kernel protects no file in such a
folder. It also protects no file in /tmp if the sysctl fs.protected_regular is 0.
"""

import ctypes
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.installation.installing import LOCAL, done, make

NOBODY = 65534
# Suffixes of file names that scripts made, or could make, from the name that mktemp printed.
SUFFIXES = ("dirs", "gone", "needs", "new", "old", "text", "tmp")
# This program runs the real mktemp(1). Another user then creates files with these suffixes at once.
OBSERVED_MKTEMP = """#!/bin/sh
made=$({mktemp} "$@") || exit
setpriv --reuid={user} --clear-groups sh -c '
	for suffix in {suffixes}; do
		cp {plant} "$0.$suffix"
		cp {plant} "$0/$suffix" || cp {plant} "$0/list.$suffix"
	done' "$made" 2>/dev/null
echo "$made"
"""

IN_OPEN, IN_CREATE, IN_MOVED_TO, IN_ISDIR = 0x20, 0x100, 0x80, 0x40000000


@pytest.fixture
def shared(other_users: None) -> Iterator[Path]:  # noqa: ARG001 - the folder contains files of another user
    """Return a folder that all users can read, with a folder `tmp` that all users can write."""
    folder = Path(tempfile.mkdtemp(prefix="install-"))
    folder.chmod(0o755)
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("target", ["install", "uninstall"])
def test_files_that_another_user_planted_are_neither_read_nor_written(
    shared: Path, tmp_path: Path, target: str
) -> None:
    if target == "uninstall":
        done(make("install", tmp_path, *LOCAL))
    precious = tmp_path / "precious"
    precious.write_text("of the host\n")
    plant = shared / "plant"
    plant.write_text("f /precious\n")
    programs = shared / "bin"
    programs.mkdir()
    mktemp = programs / "mktemp"
    mktemp.write_text(
        OBSERVED_MKTEMP.format(
            mktemp=shutil.which("mktemp"), user=NOBODY, suffixes=" ".join(SUFFIXES), plant=plant
        )
    )
    mktemp.chmod(0o755)
    environment = {"TMPDIR": str(shared / "tmp"), "PATH": f"{programs}:{os.environ['PATH']}"}

    done(make(target, tmp_path, *LOCAL, environment=environment))

    assert precious.exists()
    planted = list((shared / "tmp").iterdir())
    assert {path.suffix[1:] for path in planted} == set(SUFFIXES)
    for path in planted:
        assert (path.read_text(), path.stat().st_uid) == ("f /precious\n", NOBODY)


def test_in_the_temporary_folder_only_folders_are_made_and_no_file_is_opened(
    shared: Path, tmp_path: Path
) -> None:
    temporary = shared / "tmp"
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(watch, os.fsencode(temporary), IN_OPEN | IN_CREATE | IN_MOVED_TO) > 0
    for target in ("install", "install", "uninstall"):
        done(make(target, tmp_path, *LOCAL, environment={"TMPDIR": str(temporary)}))
    found = os.read(watch, 1 << 20)
    os.close(watch)
    made, files = 0, []
    while found:
        _, mask, _, length = struct.unpack_from("iIII", found)
        if not mask & IN_ISDIR:
            files.append(found[16 : 16 + length].rstrip(b"\0"))
        made += mask & (IN_CREATE | IN_ISDIR) == IN_CREATE | IN_ISDIR
        found = found[16 + length :]
    assert files == []
    assert made == 3
    assert list(temporary.iterdir()) == []
