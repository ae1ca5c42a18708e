"""Configuration files of other programs: changed whole or not at all, and put back as they were."""

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
    """A host whose files can be changed, and its state directory."""

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
        """Restore everything that nobody else has changed since."""
        changes = tuple(
            Change(path=file.path, before=file.present, after=file.original)
            for file in self.configured()
            if file.is_ours and not file.is_undone
        )
        revert(NAME, changes, host=Root(str(self.root)), state_dir=str(self.state))

    def configured(self) -> tuple[ConfiguredFile, ...]:
        return configured(NAME, host=Root(str(self.root)), state_dir=str(self.state))

    def names(self) -> list[str]:
        """Return all files below the root but the lock."""
        files = (path.relative_to(self.root) for path in self.root.rglob("*") if not path.is_dir())
        return sorted(str(path) for path in files if path.name != "lock")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "host")


def test_a_file_is_changed_and_put_back_byte_for_byte(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    assert machine.file().read_bytes() == NEW
    machine.undo()
    assert machine.file().read_bytes() == OLD
    assert machine.names() == ["etc/docker/daemon.json"]


def test_a_file_that_was_made_goes_with_its_folders(machine: Machine) -> None:
    path = "/etc/crio/crio.conf.d/99-cdigen.conf"
    machine.apply(None, NEW, path)
    assert machine.file(path).read_bytes() == NEW
    machine.undo()
    assert not (machine.root / "etc/crio").exists()


def test_a_folder_in_which_others_have_put_something_stays(machine: Machine) -> None:
    path = "/etc/crio/crio.conf.d/99-cdigen.conf"
    machine.apply(None, NEW, path)
    machine.file("/etc/crio/crio.conf.d/theirs.conf").touch()
    machine.undo()
    assert machine.names() == ["etc/crio/crio.conf.d/theirs.conf"]


def test_backup_and_record_are_for_root_alone_and_never_beside_the_file(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.file().chmod(0o644)
    machine.apply(OLD, NEW)
    assert os.listdir(machine.file().parent) == ["daemon.json"]
    assert {path.stat().st_mode & 0o777 for path in machine.home.iterdir()} == {0o600}
    backups = [path for path in machine.home.iterdir() if path.read_bytes() == OLD]
    assert len(backups) == 1


def test_owner_and_mode_stay(machine: Machine) -> None:
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


def test_extended_attributes_stay(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    try:
        os.setxattr(machine.file(), "user.note", b"mine")
    except OSError as error:
        cannot_run(f"the file system has no user attributes: {error}")
    machine.apply(OLD, NEW)
    assert os.getxattr(machine.file(), "user.note") == b"mine"


def test_a_new_file_can_be_read_by_all(machine: Machine) -> None:
    old = os.umask(0o077)
    try:
        machine.apply(None, NEW, "/etc/containers/containers.conf.d/90-cdigen.conf")
    finally:
        os.umask(old)
    folder = machine.root / "etc/containers/containers.conf.d"
    assert (folder / "90-cdigen.conf").stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_file_that_another_changed_meanwhile_is_left_alone(machine: Machine) -> None:
    machine.file().write_bytes(b"{}")
    with pytest.raises(StoreError, match="changed by another"):
        machine.apply(OLD, NEW)
    assert machine.file().read_bytes() == b"{}"
    assert machine.names() == ["etc/docker/daemon.json"]


def test_what_the_check_refuses_is_not_put_in_place(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    seen = []

    def check(path: str) -> str:
        seen.append(Path(path).read_bytes())
        return "it will not do"

    change = Change(path=PATH, before=OLD, after=NEW, keys=KEYS)
    with pytest.raises(ConfigError, match="it will not do"):
        apply(NAME, (change,), host=Root(str(machine.root)), state_dir=str(machine.state), check=check)
    assert seen == [NEW]
    assert machine.names() == ["etc/docker/daemon.json"]


def test_a_second_change_keeps_what_was_there_before_the_first(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    machine.apply(NEW, NEW + b" ")
    (file,) = machine.configured()
    assert (file.original, file.is_ours) == (OLD, True)
    machine.undo()
    assert machine.file().read_bytes() == OLD


def test_what_others_have_changed_is_not_restored_whatever_is_set_in_it_later(
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


def test_a_file_that_others_put_back_holds_nothing_of_ours(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    machine.file().write_bytes(OLD)
    assert [file.is_undone for file in machine.configured()] == [True]
    machine.file().unlink()
    assert [file.is_undone for file in machine.configured()] == [True]


def test_the_record_of_the_first_release_is_read(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    file = machine.home / "record.json"
    document = json.loads(file.read_bytes())
    key = {"path": ["cdi-spec-dirs"], "value": "[]", "before": None, "made": 0}
    document["files"] = [{**row, "keys": [key]} for row in document["files"]]
    file.write_text(json.dumps(document))
    machine.undo()
    assert machine.file().read_bytes() == OLD


def test_an_original_that_the_first_release_did_not_keep_is_not_restored(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    file = machine.home / "record.json"
    document = json.loads(file.read_bytes())
    document["files"] = [{**row, "before": "mixed", "keys": []} for row in document["files"]]
    file.write_text(json.dumps(document))
    (found,) = machine.configured()
    assert (found.is_ours, found.is_undone, found.original, found.backup) == (False, False, None, "")


def test_a_link_is_followed_within_the_host(machine: Machine) -> None:
    (machine.root / "srv").mkdir()
    (machine.root / "srv/daemon.json").write_bytes(OLD)
    machine.file().symlink_to("/srv/daemon.json")
    machine.apply(OLD, NEW)
    assert machine.file().is_symlink()
    assert (machine.root / "srv/daemon.json").read_bytes() == NEW
    machine.undo()
    assert (machine.root / "srv/daemon.json").read_bytes() == OLD


def test_a_link_to_nothing_is_refused(machine: Machine) -> None:
    machine.file().symlink_to("/srv/daemon.json")
    with pytest.raises(StoreError, match="symlink to nothing"):
        machine.apply(None, NEW)
    assert not (machine.root / "srv").exists()


@pytest.mark.parametrize("others", ["etc/docker/daemon.json", "etc/docker", "etc"])
def test_what_others_may_write_to_is_refused(machine: Machine, others: str) -> None:
    machine.file().write_bytes(OLD)
    (machine.root / others).chmod(0o777)
    with pytest.raises(StoreError, match="writable by everyone"):
        machine.apply(OLD, NEW)
    assert machine.file().read_bytes() == OLD


@pytest.mark.needs_root
def test_what_belongs_to_another_is_refused(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    os.chown(machine.file(), 1234, 0)
    with pytest.raises(StoreError, match="belongs to uid 1234"):
        machine.apply(OLD, NEW)


def test_a_backup_folder_that_others_may_write_to_is_refused(machine: Machine) -> None:
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
def test_a_damaged_record_is_said(machine: Machine, content: bytes) -> None:
    machine.file().write_bytes(OLD)
    machine.apply(OLD, NEW)
    (machine.home / "record.json").write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        machine.undo()
    assert machine.file().read_bytes() == NEW


def test_what_is_no_file_is_refused(machine: Machine) -> None:
    os.mkfifo(machine.file())
    with pytest.raises(StoreError, match="a fifo"):
        machine.apply(None, NEW)


@pytest.mark.usefixtures("own_mounts")
def test_a_read_only_file_system_changes_nothing_and_is_said(machine: Machine) -> None:
    machine.file().write_bytes(OLD)
    with read_only(machine.file().parent), pytest.raises(StoreError, match="Read-only file system"):
        machine.apply(OLD, NEW)
    assert machine.names() == ["etc/docker/daemon.json"]


@pytest.mark.usefixtures("own_mounts")
def test_a_full_disk_changes_nothing_and_is_said(machine: Machine) -> None:
    machine.state.mkdir(parents=True)
    machine.file().write_bytes(OLD)
    with tmpfs(machine.state, "size=64k"):
        fill(machine.state / "ballast")
        with pytest.raises(StoreError, match="No space left on device"):
            machine.apply(OLD, NEW)
        assert machine.file().read_bytes() == OLD


DROP_IN = "/etc/crio/crio.conf.d/99-cdigen.conf"


def test_killed_at_any_moment_it_is_known_what_is_whose(machine: Machine) -> None:
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
        # CRI-O loads whatever lies there.
        assert not folder.exists() or os.listdir(folder) in ([], [machine.file(DROP_IN).name])
        record = machine.home / "record.json"
        if record.exists():
            json.loads(record.read_bytes())
        hits.add((content, machine.file(DROP_IN).exists(), record.exists()))
        machine.undo()
        assert machine.file().read_bytes() == OLD
        assert not machine.file(DROP_IN).exists()
    # What was left by writers that were killed before they had recorded anything goes with the next change.
    machine.apply(OLD, NEW)
    machine.apply(None, NEW, DROP_IN)
    machine.undo()
    assert machine.names() == ["etc/docker/daemon.json"]
