"""The files status.json and inventory.json, which the daemon writes and every user can read."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.command.statuses import end_process
from support.daemon.status_files import HOST, PROCESS, changed, document
from support.daemon.status_files import STATUS as FULL
from support.values.cycle_reports import CHANGED, FILE, FINDING, KIND, QUIET, STARTING

from cdigen.daemon import status as files
from cdigen.daemon.cycle.report import DaemonStatus, next_status
from cdigen.model.errors import HostError, StoreError
from cdigen.model.inventory_json import from_document
from cdigen.model.times.timestamps import timestamp
from cdigen.service import rundir
from cdigen.service.process.buffered_log import BufferedLogger
from cdigen.service.status import reason_not_running, this_process
from cdigen.store.directory import open_or_create
from cdigen.store.lock import exclusive
from cdigen.value import replace

STATUS = next_status(
    next_status(STARTING, CHANGED, {"files": ""}), QUIET, {"files": "", "uevents": "no permission"}
)


@pytest.fixture
def run_dir(tmp_path: Path) -> str:
    return str(tmp_path / "run/cdigen")


def saved(run_dir: str) -> Path:
    rundir.prepare(run_dir)
    rundir.save_status(run_dir, files.document(STATUS, this_process()))
    return Path(run_dir, rundir.STATUS_FILE)


def test_a_saved_status_is_read_back(run_dir: str) -> None:
    saved(run_dir)
    found = files.read(run_dir)
    assert (found["state"], found["since"]) == ("ready", "2026-01-01T00:00:00.264Z")
    assert (found["pid"], found["version"]) == (os.getpid(), "1.2.3")
    assert found["last_cycle"] == {
        "number": 2,
        "started": "2026-01-01T00:05:00.250Z",
        "duration_s": 0.01,
        "result": "unchanged",
        "error": "",
        "events": 1,
        "reasons": [{"source": "timer", "reason": "cycle without an event"}],
    }
    assert [(spec["kind"], spec["file"], spec["devices"]) for spec in found["specs"]] == [
        (KIND, FILE, {"served": 2, "left_out": 0})
    ]
    assert found["sources"]["uevents"] == {"healthy": False, "problem": "no permission"}
    assert [entry["summary"] for entry in found["journal"]] == ["+1 device"]


def test_before_the_first_cycle_the_document_has_the_same_keys() -> None:
    process = this_process()
    assert files.document(STARTING, process).keys() == files.document(STATUS, process).keys()
    assert files.document(STARTING, process)["state"] == "starting"


def test_findings_of_the_last_cycle_are_shown() -> None:
    (row,) = files.document(next_status(STARTING, CHANGED, {}), this_process())["findings"]
    assert (row["severity"], row["rule"], row["hint"]) == ("warning", FINDING.rule, FINDING.hint)


def test_every_user_may_read_the_files_and_there_are_no_other_files(run_dir: str) -> None:
    old = os.umask(0o077)
    try:
        path = saved(run_dir)
        files.save_inventory(run_dir, HOST)
    finally:
        os.umask(old)
    assert sorted(os.listdir(run_dir)) == ["inventory.json", "status.json"]
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o644}


def test_a_reader_never_gets_an_incomplete_status(run_dir: str) -> None:
    path = saved(run_dir)
    script = (
        f"import json\nwhile True:\n json.load(open({str(path)!r}))\n"
        f" if json.load(open({str(path)!r}))['last_cycle'].get('number') == 199: break\n"
    )
    reader = subprocess.Popen([sys.executable, "-I", "-S", "-c", script], stderr=subprocess.PIPE)
    for number in range(200):
        rundir.save_status(
            run_dir,
            files.document(replace(STATUS, cycle=replace(QUIET, number=number)), this_process()),
        )
    _, problem = reader.communicate(timeout=60)
    assert (reader.returncode, problem) == (0, b"")


def test_the_temporary_files_of_a_killed_writer_are_removed(run_dir: str) -> None:
    rundir.prepare(run_dir)
    rubbish = Path(run_dir, ".cdigen-status.json.999999.0123abcd.tmp")
    rubbish.write_text("{")
    rundir.prepare(run_dir)
    assert os.listdir(run_dir) == []


def test_an_unchanged_inventory_is_not_written_again(run_dir: str) -> None:
    rundir.prepare(run_dir)
    assert files.save_inventory(run_dir, HOST)
    path = Path(run_dir, rundir.INVENTORY_FILE)
    before = path.stat().st_ino
    assert not files.save_inventory(run_dir, HOST)
    assert path.stat().st_ino == before
    assert from_document(json.loads(path.read_text())) == HOST


def test_a_missing_status_is_reported_as_no_daemon(run_dir: str) -> None:
    with pytest.raises(HostError, match=r"status\.json does not exist") as caught:
        files.read(run_dir)
    assert (caught.value.kind, caught.value.exit_code) == ("no-daemon", 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        # A number that is too long to read.
        (changed("pid", "HERE").replace(b'"HERE"', b"9" * 10_000), "not JSON"),
        (b"[]", "its schema is None"),
        (b'{"schema": 2}', "its schema is 2"),
        *((changed("schema", schema), "its schema is") for schema in (2, "1", [1], {"a": 1}, None)),
        (b'{"schema": 1}', "its member 'state' is not a text"),
    ],
    ids=[
        *("empty", "nested", "long number", "a list", "schema alone"),
        *(f"schema {schema}" for schema in (2, "'1'", [1], {"a": 1}, None)),
        "no state",
    ],
)
def test_an_invalid_status_is_refused_with_the_reason(run_dir: str, content: bytes, reason: str) -> None:
    saved(run_dir).write_bytes(content)
    with pytest.raises(StoreError, match=reason):
        files.read(run_dir)


@pytest.mark.parametrize("status", [STARTING, FULL])
def test_the_daemons_own_status_is_valid(run_dir: str, status: DaemonStatus) -> None:
    found = files.document(status, PROCESS)
    saved(run_dir).write_text(json.dumps(found))
    assert files.read(run_dir) == json.loads(json.dumps(found))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("state", 5),
        ("pid", "1"),
        ("pid_started", 1.5),
        ("started", None),
        ("vendors", {}),
        ("last_cycle", []),
        ("sources", None),
        ("journal", "x"),
    ],
)
def test_a_member_of_the_wrong_type_is_refused_with_its_name(run_dir: str, path: str, value: object) -> None:
    saved(run_dir).write_bytes(changed(path, value))
    with pytest.raises(StoreError, match=f"its member '{path}' is not a"):
        files.read(run_dir)


@pytest.mark.parametrize("key", sorted(document().keys() - {"schema", "last_success", "instance"}))
def test_a_status_without_one_of_its_members_is_refused(run_dir: str, key: str) -> None:
    whole = document()
    del whole[key]
    saved(run_dir).write_text(json.dumps(whole))
    with pytest.raises(StoreError, match=f"its member '{key}' is not"):
        files.read(run_dir)


def test_an_unknown_member_is_accepted(run_dir: str) -> None:
    saved(run_dir).write_text(json.dumps({**document(), "more": {"a": [1]}}))
    assert files.read(run_dir)["more"] == {"a": [1]}


def test_a_running_process_is_not_reported_as_gone(run_dir: str) -> None:
    saved(run_dir)
    assert reason_not_running(run_dir, files.read(run_dir)) == ""


def test_an_ended_process_is_reported_as_gone(run_dir: str) -> None:
    pid = end_process(saved(run_dir))
    assert (
        reason_not_running(run_dir, files.read(run_dir)) == f"process {pid}, which wrote the status, is gone"
    )


def test_another_process_with_the_same_process_id_is_distinguished(run_dir: str) -> None:
    saved(run_dir)
    found = files.read(run_dir)
    assert "another process now" in reason_not_running(
        run_dir, {**found, "pid_started": found["pid_started"] + 1}
    )


def test_a_process_id_of_another_pid_namespace_is_ignored(run_dir: str) -> None:
    saved(run_dir)
    found = {**files.read(run_dir), "pid": 1 << 22, "pid_namespace": "pid:[1]"}
    assert reason_not_running(run_dir, found) == ""


def test_the_lock_shows_a_running_daemon_in_every_pid_namespace(run_dir: str) -> None:
    saved(run_dir)
    found = {**files.read(run_dir), "pid_namespace": "pid:[1]"}
    with open_or_create(run_dir) as place, exclusive(place, timeout_s=0.2):
        assert reason_not_running(run_dir, found) == ""
    assert "no process holds" in reason_not_running(run_dir, found)


def test_a_stopped_daemon_leaves_no_status(run_dir: str) -> None:
    path = saved(run_dir)
    daemon = rundir.RunDirectory(run_dir, BufferedLogger())
    daemon.remove_status()
    assert path.exists()  # another process may have the lock
    daemon.take()
    daemon.remove_status()
    daemon.remove_status()
    assert not path.exists()
    daemon.leave()


def test_times_are_rounded_to_milliseconds_and_never_to_60_seconds() -> None:
    assert timestamp(59.9996) == "1970-01-01T00:01:00.000Z"
