"""Configuration files of other programs are changed completely or not at all, and can be restored."""

import json
import os
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.store.killing import killed_after, moments
from support.store.mounts import fill, read_only, tmpfs
from support.waiting import pause

from cdigen.host.root import Root
from cdigen.model.change import Change
from cdigen.model.errors import ConfigError, StoreError
from cdigen.store.configfiles import ConfiguredFile, apply, configured, revert

NAME = "docker"
PATH = "/etc/docker/daemon.json"
OLD = b'{"a": 1}\n'
NEW = b'{"a": 1, "cdi-spec-dirs": []}\n'
KEYS = ("cdi-spec-dirs",)


class Machine:
    """A host with files to change, and its state directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / "var/lib/cdigen"
        self.home = self.state / "configure" / NAME
        (root / "etc/docker").mkdir(parents=True)

    def file(self, path: str = PATH) -> Path:
        return self.root / path.lstrip("/")

    def apply(self, before: bytes | None, after: bytes | None, path: str = PATH) -> None:
        change = Change(path=path, before=before, after=after, keys=KEYS)
        apply(NAME, (change,), host=Root(str(self.root)), state_dir=str(self.state))

    def undo(self) -> None:
        """Restore all files that no other program has changed."""
        changes = tuple(
            Change(path=file.path, before=file.present, after=file.original)
            for file in self.configured()
            if file.is_ours and not file.is_undone
        )
        revert(NAME, changes, host=Root(str(self.root)), state_dir=str(self.state))

    def configured(self) -> tuple[ConfiguredFile, ...]:
        return configured(NAME, host=Root(str(self.root)), state_dir=str(self.state))

    def names(self) -> list[str]:
        """Return all files below the root except the lock."""
        files = (path.relative_to(self.root) for path in self.root.rglob("*") if not path.is_dir())
        return sorted(str(path) for path in files if path.name != "lock")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "host")


def test_a_file_is_changed_and_restored_byte_for_byte(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    assert machine.file().read_bytes() == NEW
    machine.undo()
    assert machine.file().read_bytes() == OLD
    assert machine.names() == ["etc/docker/daemon.json"]


def test_revert_removes_a_new_file_and_its_new_folders(machine: Machine) -> None:
    path = "/etc/crio/crio.conf.d/99-cdigen.conf"
    machine.apply(None, NEW, path)
    assert machine.file(path).read_bytes() == NEW
    machine.undo()
    assert not (machine.root / "etc/crio").exists()


def test_revert_keeps_a_new_folder_with_foreign_files(machine: Machine) -> None:
    path = "/etc/crio/crio.conf.d/99-cdigen.conf"
    machine.apply(None, NEW, path)
    machine.file("/etc/crio/crio.conf.d/theirs.conf").touch()
    machine.undo()
    assert machine.names() == ["etc/crio/crio.conf.d/theirs.conf"]


def test_backup_and_record_are_readable_only_by_root_and_are_not_beside_the_file(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.file().chmod(0o644)
    machine.apply(OLD, NEW)
    assert os.listdir(machine.file().parent) == ["daemon.json"]
    assert {path.stat().st_mode & 0o777 for path in machine.home.iterdir()} == {0o600}
    backups = [path for path in machine.home.iterdir() if path.read_bytes() == OLD]
    assert len(backups) == 1


def test_a_changed_file_keeps_its_owner_and_mode(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.file().chmod(0o640)
    if os.geteuid() == 0:
        os.chown(machine.file(), 0, 12)
    before = machine.file().stat()
    machine.apply(OLD, NEW)
    after = machine.file().stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    machine.undo()
    assert machine.file().stat().st_mode == before.st_mode


def test_a_changed_file_keeps_its_extended_attributes(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    try:
        os.setxattr(machine.file(), "user.note", b"mine")
    except OSError as error:
        cannot_run(f"the file system has no user attributes: {error}")
    machine.apply(OLD, NEW)
    assert os.getxattr(machine.file(), "user.note") == b"mine"


def test_a_new_file_is_world_readable(machine: Machine) -> None:
    old = os.umask(0o077)
    try:
        machine.apply(None, NEW, "/etc/containers/containers.conf.d/90-cdigen.conf")
    finally:
        os.umask(old)
    folder = machine.root / "etc/containers/containers.conf.d"
    assert (folder / "90-cdigen.conf").stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_file_that_another_process_changed_meanwhile_is_not_changed(machine: Machine) -> None:
    machine.file().write_bytes(b"{}")
    with pytest.raises(StoreError, match="changed by another"):
        machine.apply(OLD, NEW)
    assert machine.file().read_bytes() == b"{}"
    assert machine.names() == ["etc/docker/daemon.json"]


def test_content_that_the_check_refuses_is_not_installed(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    checked = []

    def check(path: str) -> str:
        checked.append(Path(path).read_bytes())
        return "unknown key"

    change = Change(path=PATH, before=OLD, after=NEW, keys=KEYS)
    with pytest.raises(ConfigError, match="unknown key"):
        apply(NAME, (change,), host=Root(str(machine.root)), state_dir=str(machine.state), check=check)
    assert checked == [NEW]
    assert machine.names() == ["etc/docker/daemon.json"]


def test_after_a_second_change_the_original_is_restored(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    machine.apply(NEW, NEW + b" ")
    (file,) = machine.configured()
    assert (file.original, file.is_ours) == (OLD, True)
    machine.undo()
    assert machine.file().read_bytes() == OLD


def test_a_file_that_another_program_changed_is_not_restored_after_a_later_change(
    machine: Machine,
) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    machine.file().write_bytes(b"theirs" + NEW)
    (file,) = machine.configured()
    assert (file.is_ours, file.is_undone, file.original) == (False, False, OLD)
    machine.apply(b"theirs" + NEW, b"again")
    (file,) = machine.configured()
    assert (file.is_ours, file.is_undone, file.original) == (False, False, OLD)
    assert Path(file.backup).read_bytes() == OLD


def test_a_file_that_another_program_restored_or_removed_has_no_changes_of_cdigen(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    machine.file().write_bytes(OLD)
    assert [file.is_undone for file in machine.configured()] == [True]
    machine.file().unlink()
    assert [file.is_undone for file in machine.configured()] == [True]


def test_a_link_is_followed_within_the_host(machine: Machine) -> None:
    (machine.root / "srv").mkdir()
    (machine.root / "srv/daemon.json").write_bytes(OLD)
    machine.file().symlink_to("/srv/daemon.json")
    machine.apply(OLD, NEW)
    assert machine.file().is_symlink()
    assert (machine.root / "srv/daemon.json").read_bytes() == NEW
    machine.undo()
    assert (machine.root / "srv/daemon.json").read_bytes() == OLD


def test_a_dangling_link_is_refused(machine: Machine) -> None:
    machine.file().symlink_to("/srv/daemon.json")
    with pytest.raises(StoreError, match="a dangling symlink"):
        machine.apply(None, NEW)
    assert not (machine.root / "srv").exists()


@pytest.mark.parametrize("others", ["etc/docker/daemon.json", "etc/docker", "etc"])
def test_a_file_that_other_users_may_write_to_is_refused(machine: Machine, others: str) -> None:
    machine.file().write_bytes(OLD)
    (machine.root / others).chmod(0o777)
    with pytest.raises(StoreError, match="writable by everyone"):
        machine.apply(OLD, NEW)
    assert machine.file().read_bytes() == OLD


@pytest.mark.needs_root
def test_a_file_of_another_user_is_refused(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    os.chown(machine.file(), 1234, 0)
    with pytest.raises(StoreError, match="belongs to uid 1234"):
        machine.apply(OLD, NEW)


def test_a_backup_folder_that_other_users_may_write_to_is_refused(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    machine.home.chmod(0o777)
    with pytest.raises(StoreError, match="writable by everyone"):
        machine.undo()
    assert machine.file().read_bytes() == NEW


def test_a_forged_backup_is_not_restored(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    (backup,) = (path for path in machine.home.iterdir() if path.read_bytes() == OLD)
    backup.write_bytes(b"other")
    (file,) = machine.configured()
    assert (file.is_ours, file.original) == (False, None)


RECORDS = (
    b"",
    b"{",
    b"[]",
    b"[" * 100_000,
    b'{"schema": 1' + b"0" * 5000 + b"}",
    b'{"schema": 2}',
    b'{"schema": 1, "files": [{}]}',
    b'{"schema": 1, "files": [{"path": "/a", "before": "none", "after": [1], "folders": []}]}',
)


@pytest.mark.parametrize("content", RECORDS, ids=range(len(RECORDS)))
def test_a_damaged_record_is_reported(machine: Machine, content: bytes) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    (machine.home / "record.json").write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        machine.undo()
    assert machine.file().read_bytes() == NEW


def test_a_fifo_is_refused(machine: Machine) -> None:
    os.mkfifo(machine.file())
    with pytest.raises(StoreError, match="a fifo"):
        machine.apply(None, NEW)


@pytest.mark.usefixtures("own_mounts")
def test_a_read_only_file_system_is_reported_without_a_change(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    with read_only(machine.file().parent), pytest.raises(StoreError, match="Read-only file system"):
        machine.apply(OLD, NEW)
    assert machine.names() == ["etc/docker/daemon.json"]


@pytest.mark.usefixtures("own_mounts")
def test_a_full_disk_is_reported_without_a_change(machine: Machine) -> None:
    machine.state.mkdir(parents=True)
    machine.file().write_bytes(OLD)
    with tmpfs(machine.state, "size=64k"):
        fill(machine.state / "ballast")
        with pytest.raises(StoreError, match="No space left on device"):
            machine.apply(OLD, NEW)
        assert machine.file().read_bytes() == OLD


DROP_IN = "/etc/crio/crio.conf.d/99-cdigen.conf"


def test_a_kill_at_any_moment_leaves_a_correct_record(machine: Machine) -> None:
    machine.file().write_bytes(OLD)

    def work() -> None:
        while True:
            for change in (
                Change(path=PATH, before=OLD, after=NEW, keys=KEYS),
                Change(path=DROP_IN, before=None, after=NEW, keys=KEYS),
            ):
                apply(NAME, (change,), host=Root(str(machine.root)), state_dir=str(machine.state))
            machine.undo()

    hits: set[tuple[bytes, bool, bool]] = set()
    for pause_s in moments(40, 0.03, lambda: len(hits) > 1):
        with killed_after(work):
            pause(pause_s)
        content = machine.file().read_bytes()
        assert content in {OLD, NEW}
        folder = machine.file(DROP_IN).parent
        # CRI-O loads every file in this folder.
        assert not folder.exists() or os.listdir(folder) in ([], [machine.file(DROP_IN).name])
        record = machine.home / "record.json"
        if record.exists():
            json.loads(record.read_bytes())
        hits.add((content, machine.file(DROP_IN).exists(), record.exists()))
        machine.undo()
        assert machine.file().read_bytes() == OLD
        assert not machine.file(DROP_IN).exists()
    # The next change removes the temporary files of writers that were killed before they recorded a change.
    machine.apply(OLD, NEW)
    machine.apply(None, NEW, DROP_IN)
    machine.undo()
    assert machine.names() == ["etc/docker/daemon.json"]
