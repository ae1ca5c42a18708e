"""Root writes to the run directory, so files of other users must not redirect these writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.daemon.status_files import HOST, STATUS, written
from support.paths import REPOSITORY, TESTS

from cdigen.daemon import status as files
from cdigen.model.errors import StoreError
from cdigen.service import rundir


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "run/cdigen"
    rundir.prepare(str(path))
    return path


@pytest.mark.parametrize("name", [rundir.STATUS_FILE, rundir.INVENTORY_FILE])
def test_a_link_is_replaced_and_its_target_is_unchanged(run_dir: Path, name: str) -> None:
    victim = run_dir.parent / "victim"
    victim.write_text("root:x:0:0")
    victim.chmod(0o600)
    (run_dir / name).symlink_to(victim)
    written(run_dir, name)
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("root:x:0:0", 0o600)
    assert (run_dir / name).is_file()
    assert not (run_dir / name).is_symlink()


@pytest.mark.parametrize("name", [rundir.STATUS_FILE, rundir.INVENTORY_FILE])
def test_a_fifo_is_replaced_without_waiting(run_dir: Path, name: str) -> None:
    os.mkfifo(run_dir / name)
    # The write runs in a separate process, because a wait for a FIFO can be ended only by another process.
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from pathlib import Path; from support.daemon.status_files import written\n"
        "written(Path(sys.argv[3]), sys.argv[4])"
    )
    command = [sys.executable, "-c", code, str(TESTS), str(REPOSITORY), str(run_dir), name]
    subprocess.run(command, check=True, timeout=60)
    assert json.loads((run_dir / name).read_text())


def test_a_link_to_the_same_inventory_is_replaced(run_dir: Path) -> None:
    files.save_inventory(str(run_dir), HOST)
    path = run_dir / rundir.INVENTORY_FILE
    path.rename(run_dir / "elsewhere")
    path.symlink_to("elsewhere")
    assert files.save_inventory(str(run_dir), HOST)
    assert not path.is_symlink()


def test_an_inventory_that_is_not_world_readable_is_written_again(run_dir: Path) -> None:
    files.save_inventory(str(run_dir), HOST)
    path = run_dir / rundir.INVENTORY_FILE
    path.chmod(0o600)
    assert files.save_inventory(str(run_dir), HOST)
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("mode", "message"), [(0o1777, "writable by everyone"), (0o757, "writable by everyone")]
)
def test_a_world_writable_directory_is_refused(run_dir: Path, mode: int, message: str) -> None:
    run_dir.chmod(mode)
    with pytest.raises(StoreError, match=message):
        rundir.prepare(str(run_dir))


@pytest.mark.needs_root
def test_a_directory_that_a_group_may_write_to_is_refused(run_dir: Path) -> None:
    os.chown(run_dir, 0, 12345)
    run_dir.chmod(0o775)
    with pytest.raises(StoreError, match="writable by others"):
        rundir.prepare(str(run_dir))


@pytest.mark.needs_root
def test_a_directory_of_another_user_is_refused_and_nothing_is_written_there(run_dir: Path) -> None:
    os.chown(run_dir, 65534, 65534)
    with pytest.raises(StoreError, match="belongs to uid 65534") as caught:
        rundir.prepare(str(run_dir))
    assert caught.value.hint
    for name in (rundir.STATUS_FILE, rundir.INVENTORY_FILE):
        with pytest.raises(StoreError, match="belongs to uid 65534"):
            written(run_dir, name)
    assert os.listdir(run_dir) == []


@pytest.mark.needs_root
def test_the_daemon_does_not_start_in_a_directory_of_a_user(tmp_path: Path) -> None:
    run_dir = tmp_path / "theirs"
    run_dir.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("root:x:0:0")
    (run_dir / rundir.STATUS_FILE).symlink_to(victim)
    os.mkfifo(run_dir / rundir.INVENTORY_FILE)
    os.chown(run_dir, 65534, 65534)
    command = [sys.executable, "-m", "cdigen", "run", "--root", str(tmp_path), "--run-dir", str(run_dir)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 5
    assert f"run directory {run_dir} belongs to uid 65534" in done.stderr
    assert victim.read_text() == "root:x:0:0"
    assert sorted(os.listdir(run_dir)) == [rundir.INVENTORY_FILE, rundir.STATUS_FILE]


def test_a_removed_directory_is_created_again(run_dir: Path) -> None:
    run_dir.rmdir()
    written(run_dir, rundir.STATUS_FILE)
    assert files.read(str(run_dir))["state"] == STATUS.state
