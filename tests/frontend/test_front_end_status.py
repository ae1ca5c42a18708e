"""`cdigen status` on the status of each front end beside the daemon: `cdigen nri` and `cdigen kubelet`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from support.command.statuses import MISSED, WRONG, board, end_process, put_kubelet, put_nri, saved, served
from support.values.cycle_reports import STARTING

from cdigen.kubelet.status import View
from cdigen.nri.decision.audit import AuditResult
from cdigen.nri.decision.compat import abilities

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command.fixtures import Run


@dataclass(frozen=True, kw_only=True)
class FrontEnd:
    """A front end: its name in the text, the file of its status, and a host with it."""

    word: str
    status: str
    put: Callable[[Path], None]
    # How the text begins while it runs and after it was killed, and what that means for pods.
    runs: str
    killed: str
    means: str
    # What is still shown of its work after it was killed.
    work: str


FRONT_ENDS = {
    "nri": FrontEnd(
        word="NRI",
        status="run/cdigen-nri/status.json",
        put=lambda host: put_nri(host, board()),
        runs="NRI plugin: registered with containerd 2.1.9 for ",
        killed="NRI plugin: not running",
        means="containers start without the devices that they ask for",
        work="it was there with containerd 2.1.9, 12 containers given devices, 3 refused",
    ),
    "kubelet": FrontEnd(
        word="kubelet",
        status="run/cdigen-kubelet/status.json",
        put=lambda host: put_kubelet(host, served()),
        runs="kubelet: registering for ",
        killed="kubelet: cdigen does not serve it",
        means="new pods get no devices",
        work="  it offered nvidia.com/gpu (2), x.com/y (0)\n",
    ),
}
every_front_end = pytest.mark.parametrize("name", FRONT_ENDS)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return a host whose daemon starts."""
    saved(tmp_path, STARTING)
    return tmp_path


@every_front_end
def test_a_host_without_the_process_shows_nothing_of_it(cdigen: Run, host: Path, name: str) -> None:
    assert FRONT_ENDS[name].word not in cdigen("status", "--root", host).out
    assert cdigen("status", "--root", host, "--json").json[name] is None


@every_front_end
def test_the_status_of_a_killed_process_is_shown_as_ended(cdigen: Run, host: Path, name: str) -> None:
    front_end = FRONT_ENDS[name]
    front_end.put(host)
    before = cdigen("status", "--root", host, "--json").json[name]
    pid = end_process(host / front_end.status)
    out = cdigen("status", "--root", host).out
    assert f"{front_end.killed} (process {pid}, which wrote it, is gone)" in out
    assert front_end.means in out
    assert front_end.work in out
    assert "regist" not in out
    after = cdigen("status", "--root", host, "--json").json[name]
    changed = {key for key in after if after[key] != before[key]}
    assert (after["state"], changed) == ("ended", {"state", "reason", "pid"})


@every_front_end
@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema": 1}', '{"schema": 1, "state": {}}'])
def test_an_invalid_status_hides_nothing_of_the_daemon(
    cdigen: Run, host: Path, name: str, content: str
) -> None:
    file = host / FRONT_ENDS[name].status
    file.parent.mkdir()
    file.write_text(content)
    done = cdigen("status", "--root", host)
    assert done.code == 0
    assert FRONT_ENDS[name].word not in done.out


@every_front_end
def test_the_process_is_shown_also_if_no_daemon_runs(cdigen: Run, host: Path, name: str) -> None:
    FRONT_ENDS[name].put(host)
    (host / "run/cdigen/status.json").unlink()
    done = cdigen("status", "--root", host)
    assert done.failed(3, "no cdigen daemon")
    assert done.out.startswith(FRONT_ENDS[name].runs)
    assert cdigen("status", "--root", host, "--json").json["error"]["kind"] == "no-daemon"


@pytest.mark.parametrize(
    ("put", "text"),
    [
        (lambda host: saved(host, STARTING), " of pod cdigen/cdigen-x7k2p, "),
        (FRONT_ENDS["kubelet"].put, ", by pod cdigen/cdigen-x7k2p\n"),
    ],
    ids=["daemon", "kubelet"],
)
def test_the_pod_of_the_process_is_shown(
    cdigen: Run, host: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], object], text: str
) -> None:
    monkeypatch.setenv("CDIGEN_POD_NAME", "cdigen-x7k2p")
    monkeypatch.setenv("CDIGEN_POD_NAMESPACE", "cdigen")
    put(host)
    assert text in cdigen("status", "--root", host).out


# `cdigen nri` alone.


def test_the_plugin_shows_with_its_runtime_and_what_it_did(cdigen: Run, host: Path) -> None:
    put_nri(host, board())
    out = cdigen("status", "--root", host).out
    assert "NRI plugin: registered with containerd 2.1.9 for " in out
    assert "12 containers given devices, 3 refused" in out
    assert "refused 3 times: unknown_device" in out
    assert cdigen("status", "--root", host, "--json").json["nri"]["counts"]["inject"] == 12


def test_containers_that_asked_in_vain_are_counted(cdigen: Run, host: Path) -> None:
    status = board()
    status.set_audit(AuditResult(missed=(MISSED,), foreign=(), is_complete=True))
    put_nri(host, status)
    assert "1 running containers asked and have not got devices" in cdigen("status", "--root", host).out


def test_what_is_wrong_with_its_configuration_is_shown(cdigen: Run, host: Path) -> None:
    status = board()
    status.problems = (WRONG,)
    put_nri(host, status)
    assert "  warning: /c: something is wrong (mend it) [r]" in cdigen("status", "--root", host).out


def test_a_runtime_that_drops_devices_is_named_with_the_remedy(cdigen: Run, host: Path) -> None:
    status = board()
    status.abilities = abilities("containerd", "1.7.24~ds1")
    put_nri(host, status)
    out = cdigen("status", "--root", host).out
    assert "injects no CDI devices of plugins; containerd injects CDI devices since 1.7.30 and 2.1.0" in out


# `cdigen kubelet` alone.


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


def test_the_reason_why_nothing_is_offered_is_shown(cdigen: Run, host: Path) -> None:
    put_kubelet(host, View(started_s=1.0, kubelet_dir="/k", why_idle="nothing is offered: no inventory"))
    out = cdigen("status", "--root", host).out
    assert "kubelet: idle for " in out
    assert "(nothing is offered: no inventory)" in out
