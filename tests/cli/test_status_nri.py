"""What 'cdigen status' says of the NRI plugin beside the daemon."""

import json
import subprocess
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.command.statuses import MISSED, board, put_nri
from support.values.cycle_reports import STARTING

from cdigen.daemon import status as daemon_status
from cdigen.frontend import rundir
from cdigen.frontend import status as files
from cdigen.model.findings import Finding
from cdigen.nri.decision.audit import AuditResult
from cdigen.nri.decision.compat import abilities


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host whose daemon has just looked."""
    run_dir = tmp_path / "run/cdigen"
    rundir.prepare(str(run_dir))
    rundir.save_status(str(run_dir), daemon_status.document(STARTING, files.this_process()))
    return tmp_path


def test_a_host_without_a_plugin_says_nothing_of_one(cdigen: Run, host: Path) -> None:
    assert "NRI" not in cdigen("status", "--root", host).out
    assert cdigen("status", "--root", host, "--json").json["nri"] is None


def test_the_plugin_shows_with_its_runtime_and_what_it_did(cdigen: Run, host: Path) -> None:
    put_nri(host, board())
    out = cdigen("status", "--root", host).out
    assert "NRI plugin: registered with containerd 2.1.9 for " in out
    assert "12 containers given devices, 3 refused" in out
    assert "refused 3 times: unknown_device" in out
    assert cdigen("status", "--root", host, "--json").json["nri"]["counts"]["inject"] == 12


def test_a_plugin_that_was_killed_does_not_run_whatever_its_file_says(cdigen: Run, host: Path) -> None:
    put_nri(host, board())
    path = host / "run/cdigen-nri/status.json"
    found = json.loads(path.read_bytes())
    with subprocess.Popen(["true"]) as ended:
        pass
    path.write_text(json.dumps(found | {"pid": ended.pid}))
    out = cdigen("status", "--root", host).out
    assert f"NRI plugin: not running (process {ended.pid}, which wrote it, is gone)" in out
    assert "containers start without the devices that they ask for" in out
    assert "registered" not in out
    shown = cdigen("status", "--root", host, "--json").json["nri"]
    assert (shown["state"], shown["counts"]["inject"]) == ("ended", 12)


def test_containers_that_asked_in_vain_are_counted(cdigen: Run, host: Path) -> None:
    made = board()
    made.set_audit(AuditResult(missed=(MISSED,), foreign=(), is_complete=True))
    put_nri(host, made)
    assert "1 running containers asked and have not got devices" in cdigen("status", "--root", host).out


def test_what_is_wrong_with_its_configuration_is_shown(cdigen: Run, host: Path) -> None:
    made = board()
    made.problems = (
        Finding(
            severity="warning", rule="nri-allows-nobody", path="/c", message="no container may", hint="h"
        ),
    )
    put_nri(host, made)
    out = cdigen("status", "--root", host).out
    assert "  warning: /c: no container may (h) [nri-allows-nobody]" in out


def test_a_runtime_that_drops_devices_is_named_with_the_remedy(cdigen: Run, host: Path) -> None:
    made = board()
    made.abilities = abilities("containerd", "1.7.24~ds1")
    put_nri(host, made)
    out = cdigen("status", "--root", host).out
    assert "injects no CDI devices of plugins; containerd injects CDI devices since 1.7.30 and 2.1.0" in out


@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema": 1}', '{"schema": 1, "state": {}}'])
def test_a_status_that_is_none_hides_nothing_of_the_daemon(cdigen: Run, host: Path, content: str) -> None:
    (host / "run/cdigen-nri").mkdir()
    (host / "run/cdigen-nri/status.json").write_text(content)
    done = cdigen("status", "--root", host)
    assert done.code == 0
    assert "NRI" not in done.out


def test_where_no_daemon_runs_the_plugin_is_shown_all_the_same(cdigen: Run, host: Path) -> None:
    put_nri(host, board())
    (host / "run/cdigen/status.json").unlink()
    done = cdigen("status", "--root", host)
    assert done.failed(3, "no cdigen daemon")
    assert done.out.startswith("NRI plugin: registered with containerd 2.1.9 for ")
    assert cdigen("status", "--root", host, "--json").json["error"]["kind"] == "no-daemon"
