"""`cdigen status` with the files of running, ended and missing daemons."""

import os
import tempfile
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.command.statuses import SOURCES, STATUS, end_process, saved
from support.values.cycle_reports import CHANGED, FAILED, FILE, KIND, MISMATCH, QUIET, STARTING

from cdigen import __version__
from cdigen.cli.services.status import text
from cdigen.daemon import status as daemon_status
from cdigen.daemon.cycle.report import DaemonStatus, next_status
from cdigen.service import status as files
from cdigen.value import replace

NOW_S = QUIET.started_s + 100


def shown(status: DaemonStatus, *, verbose: bool = False) -> str:
    return text(daemon_status.document(status, files.this_process()), NOW_S, verbose=verbose)


def test_the_json_of_status_has_the_documented_keys(cdigen: Run, tmp_path: Path) -> None:
    saved(tmp_path)
    done = cdigen("status", "--root", tmp_path, "--json")
    assert (done.code, done.err) == (0, "")
    keys = {"state", "since", "specs", "findings", "last_cycle", "sources", "pid", "version"}
    assert keys <= done.json.keys()
    assert (done.json["state"], done.json["pid"]) == ("ready", os.getpid())
    assert done.json["specs"][0]["kind"] == KIND


def test_the_text_has_state_specs_findings_sources_and_changes(cdigen: Run, tmp_path: Path) -> None:
    saved(tmp_path)
    done = cdigen("status", "--run-dir", tmp_path / "run/cdigen")
    assert (done.code, done.err) == (0, "")
    words = (
        "ready: containers can use 2 devices\nready for ",
        KIND,
        FILE,
        "warning: 0000:65:00.0: it fell off the bus (reboot)",
        "watching: files",
        "+1 device",
    )
    assert [word for word in words if word not in done.out] == []


def test_the_status_below_the_option_root_is_used(cdigen: Run, tmp_path: Path) -> None:
    saved(tmp_path / "host")
    assert cdigen("status", "--root", tmp_path / "host").code == 0
    (tmp_path / "other").mkdir()
    assert cdigen("status", "--root", tmp_path / "other").code == 3


def test_status_reports_that_no_daemon_runs_if_there_is_no_status_file(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("status", "--root", tmp_path, "--json")
    assert done.failed(3, "does not exist")
    assert done.json["error"]["kind"] == "no-daemon"


def test_the_status_of_an_ended_daemon_is_not_shown(cdigen: Run, tmp_path: Path) -> None:
    pid = end_process(saved(tmp_path))
    done = cdigen("status", "--root", tmp_path)
    assert done.failed(
        3, "not running", f"process {pid}", "is gone", "2026-01-01T00:05:00", "'cdigen run' as root"
    )
    assert done.out == ""


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"schema": 99}'])
def test_an_invalid_status_file_has_exit_code_5(cdigen: Run, tmp_path: Path, content: bytes) -> None:
    saved(tmp_path).write_bytes(content)
    assert cdigen("status", "--root", tmp_path).failed(5, "status.json", "is not a status", "restart")


UNIT, SCRIPT = "usr/lib/systemd/system/cdigen.service", "etc/init.d/cdigen"
# The service manager of the host -> the commands for the start, the log and the restart of cdigen.
WORDS = {
    "systemctl": ("'systemctl start cdigen'", "'journalctl -u cdigen'", "'systemctl restart cdigen'"),
    "rc-service": ("'rc-service cdigen start'", "/var/log/cdigen.log", "'rc-service cdigen restart'"),
    "": ("'cdigen run' as root: no service", "", "stop the daemon, and start 'cdigen run' as root"),
}


@pytest.mark.parametrize(
    ("there", "manager"),
    [
        ((UNIT,), "systemctl"),
        (("usr/local/lib/systemd/system/cdigen.service",), "systemctl"),
        ((SCRIPT,), "rc-service"),
        ((UNIT, SCRIPT), "rc-service"),
        ((UNIT, SCRIPT, "run/systemd/system/x"), "systemctl"),
        ((), ""),
    ],
)
def test_the_hint_has_the_command_of_the_service_manager(
    cdigen: Run, tmp_path: Path, there: tuple[str, ...], manager: str
) -> None:
    for name in there:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    start, log, restart = WORDS[manager]
    done = cdigen("status", "--root", tmp_path)
    assert done.failed(3, f"start it with {start}", log)
    rows = cdigen("doctor", "--root", tmp_path, "--json").json
    detail = next(row["detail"] for row in rows if row["check"] == "daemon-running")
    saved(tmp_path)
    running = " ".join(cdigen("status", "--root", tmp_path).out.split())
    assert f"restart the daemon: {restart}" in running
    for word in ("systemctl", "rc-service"):
        assert [word in text for text in (done.err, detail, running)] == [word == manager] * 3


def test_a_status_of_another_version_is_reported(cdigen: Run, tmp_path: Path) -> None:
    saved(tmp_path)
    done = cdigen("status", "--root", tmp_path)
    assert f"cdigen {__version__} is installed, but the running daemon is 1.2.3" in " ".join(done.out.split())
    rows = cdigen("status", "--root", tmp_path, "--json").json["findings"]
    assert [row["rule"] for row in rows].count("other-version-runs") == 1
    saved(tmp_path, replace(STATUS, version=__version__))
    assert "is installed" not in cdigen("status", "--root", tmp_path).out


@pytest.mark.needs_root
def test_every_user_can_read_the_status() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        saved(Path(folder)).parent.joinpath("lock").touch(0o600)
        os.seteuid(65534)
        try:
            found = daemon_status.read(f"{folder}/run/cdigen")
            assert files.reason_not_running(f"{folder}/run/cdigen", found) == ""
        finally:
            os.seteuid(0)


def test_status_shows_how_long_ago_each_event_was() -> None:
    out = shown(STATUS)
    assert "ready for 6 minutes" in out
    assert "last cycle: 1 minute ago, unchanged (timer: cycle without an event)" in out


def test_status_shows_the_reason_and_the_hint_of_a_mismatch() -> None:
    out = shown(next_status(STATUS, replace(QUIET, vendors=(MISMATCH,)), SOURCES))
    assert out.startswith("mismatch: ")
    assert "the libraries are 535.309.01 (reload the nvidia modules or reboot)" in out


def test_status_shows_the_error_of_a_failed_cycle_and_the_time_of_the_last_success() -> None:
    out = shown(next_status(STATUS, replace(FAILED, started_s=NOW_S - 3), SOURCES))
    assert "last cycle: 3 seconds ago, failed (files: /usr/lib)" in out
    assert "the cycle failed: cannot write" in out
    assert "last success: 1 minute ago" in out


def test_status_shows_the_reason_of_a_failed_event_source() -> None:
    assert "not watching: uevents (the netlink socket is closed)" in shown(STATUS)


def test_status_shows_the_effect_of_a_failed_kernel_log_source() -> None:
    out = shown(next_status(STATUS, QUIET, {"kernel-log": "there is no log"}))
    assert "not watching: kernel-log (there is no log)" in out
    assert "until then errors in the kernel log are missed" in out


def test_before_the_end_of_the_first_cycle_the_state_is_starting() -> None:
    out = shown(STARTING)
    assert out.startswith("starting: the first cycle has not ended yet\nstarting for ")


def test_only_the_last_changes_are_shown_without_verbose() -> None:
    status = STARTING
    for number in range(9):
        status = next_status(status, replace(CHANGED, number=number), SOURCES)
    assert shown(status).count("+1 device") == 5
    assert shown(status, verbose=True).count("+1 device") == 9


def test_control_characters_of_a_host_do_not_reach_the_terminal() -> None:
    vendor = replace(MISMATCH, reason="\x1b[2Jgone")
    assert "\x1b[2J" not in shown(next_status(STATUS, replace(QUIET, vendors=(vendor,)), {"f\x1b": "x\x1b"}))
