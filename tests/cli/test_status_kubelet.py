"""What 'cdigen status' says of the process that serves the kubelet, beside the daemon."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.command.fixtures import Run
from support.command.statuses import put_kubelet, served
from support.kubelet.resources import resource
from support.values.cycle_reports import STARTING

from cdigen.daemon import status as daemon_status
from cdigen.frontend import rundir
from cdigen.frontend import status as files
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.status import Served, View


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host whose daemon has just looked."""
    run_dir = tmp_path / "run/cdigen"
    rundir.prepare(str(run_dir))
    rundir.save_status(str(run_dir), daemon_status.document(STARTING, files.this_process()))
    return tmp_path


def killed(host: Path) -> int:
    """Let the status be of a process that was killed; return its number."""
    path = host / "run/cdigen-kubelet/status.json"
    found = json.loads(path.read_bytes())
    with subprocess.Popen(["true"]) as ended:
        pass
    path.write_text(json.dumps(found | {"pid": ended.pid}))
    return ended.pid


def test_a_host_without_the_process_says_nothing_of_it(cdigen: Run, host: Path) -> None:
    assert "kubelet" not in cdigen("status", "--root", host).out
    assert cdigen("status", "--root", host, "--json").json["kubelet"] is None


def test_each_resource_shows_its_registration_devices_use_and_refusals(cdigen: Run, host: Path) -> None:
    put_kubelet(host, served())

    out = cdigen("status", "--root", host).out

    assert "kubelet: registering for " in out
    rows = [line.split() for line in out.splitlines() if ".com/" in line][1:]
    assert rows == [
        ["nvidia.com/gpu", "registered", "2", "(1", "unhealthy)", "1", "1", "unknown_id"],
        ["x.com/y", "taken:", "why", "0", "0", "-"],
    ]
    assert "  the last known state counts: the daemon does not run" in out
    assert "  warning: /c: something is wrong (mend it) [r]" in out
    assert "  labels: 1 in /x/cdigen\n" in out
    found = cdigen("status", "--root", host, "--json").json["kubelet"]
    assert [row["state"] for row in found["journal"]] == ["held", "refused"]


def test_a_process_that_was_killed_serves_nobody_whatever_its_file_says(cdigen: Run, host: Path) -> None:
    put_kubelet(host, View(started_s=1.0, kubelet_dir="/k", served=(row(resource(1)),)))
    pid = killed(host)

    out = cdigen("status", "--root", host).out

    assert f"kubelet: cdigen does not serve it (process {pid}, which wrote it, is gone)" in out
    assert "new pods get no devices" in out
    assert "  it offered nvidia.com/gpu (1)\n" in out
    assert "registered" not in out
    found: dict[str, Any] = cdigen("status", "--root", host, "--json").json["kubelet"]
    assert (found["state"], found["resources"][0]["state"]) == ("ended", "registered")


def row(of: Resource) -> Served:
    return Served(resource=of, state="registered", since_s=20.0)


def test_why_nothing_is_offered_is_said(cdigen: Run, host: Path) -> None:
    put_kubelet(host, View(started_s=1.0, kubelet_dir="/k", why_idle="nothing is offered: no inventory"))

    out = cdigen("status", "--root", host).out

    assert "kubelet: idle for " in out
    assert "(nothing is offered: no inventory)" in out


@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema": 1}', '{"schema": 1, "state": {}}'])
def test_a_status_that_is_none_hides_nothing_of_the_daemon(cdigen: Run, host: Path, content: str) -> None:
    (host / "run/cdigen-kubelet").mkdir()
    (host / "run/cdigen-kubelet/status.json").write_text(content)

    done = cdigen("status", "--root", host)

    assert done.code == 0
    assert "kubelet" not in done.out


def test_where_no_daemon_runs_the_process_is_shown_all_the_same(cdigen: Run, host: Path) -> None:
    put_kubelet(host, served())
    (host / "run/cdigen/status.json").unlink()

    done = cdigen("status", "--root", host)

    assert done.failed(3, "no cdigen daemon")
    assert done.out.startswith("kubelet: registering for ")
