"""`cdigen status` shows the status of `cdigen nri` and `cdigen kubelet`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from support.command.statuses import MISSED, WRONG, board, end_process, put_kubelet, put_nri, saved, served
from support.values.cycle_reports import STARTING

from cdigen.kubelet.status import KubeletPluginStatus
from cdigen.nri.decision.audit import AuditResult
from cdigen.nri.decision.result.compat import abilities

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command.fixtures import Run


@dataclass(frozen=True, kw_only=True)
class StatusCase:
    """A service: its name in the output, its status file, and a function that writes the file on a host."""

    name: str
    status: str
    put: Callable[[Path], None]
    # The beginning of the output while the service runs, the beginning after a kill, the effect on pods.
    runs: str
    killed: str
    means: str
    # The second line of the output after a kill.
    work: str


SERVICES = {
    "nri": StatusCase(
        name="NRI",
        status="run/cdigen-nri/status.json",
        put=lambda host: put_nri(host, board()),
        runs="NRI plugin: registered with containerd 2.1.9 for ",
        killed="NRI plugin: not running",
        means="containers start without the devices that they request",
        work="last run with containerd 2.1.9: 12 containers with injected devices, 3 refused",
    ),
    "kubelet": StatusCase(
        name="kubelet",
        status="run/cdigen-kubelet/status.json",
        put=lambda host: put_kubelet(host, served()),
        runs="kubelet: registering for ",
        killed="kubelet: cdigen kubelet is not running",
        means="new pods get no devices",
        work="  last advertised: nvidia.com/gpu (2), x.com/y (0)\n",
    ),
}
every_service = pytest.mark.parametrize("name", SERVICES)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return a host whose daemon is starting."""
    saved(tmp_path, STARTING)
    return tmp_path


@every_service
def test_status_does_not_show_a_service_that_the_host_does_not_have(
    cdigen: Run, host: Path, name: str
) -> None:
    assert SERVICES[name].name not in cdigen("status", "--root", host).out
    assert cdigen("status", "--root", host, "--json").json[name] is None


@every_service
def test_the_status_of_a_killed_service_is_shown_as_ended(cdigen: Run, host: Path, name: str) -> None:
    service = SERVICES[name]
    service.put(host)
    before = cdigen("status", "--root", host, "--json").json[name]
    pid = end_process(host / service.status)
    out = cdigen("status", "--root", host).out
    assert f"{service.killed} (process {pid}, which wrote the status, is gone)" in out
    assert service.means in out
    assert service.work in out
    assert "regist" not in out
    after = cdigen("status", "--root", host, "--json").json[name]
    changed = {key for key in after if after[key] != before[key]}
    assert (after["state"], changed) == ("ended", {"state", "reason", "pid"})


@every_service
@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema": 1}', '{"schema": 1, "state": {}}'])
def test_an_invalid_status_of_a_service_does_not_hide_the_daemon(
    cdigen: Run, host: Path, name: str, content: str
) -> None:
    file = host / SERVICES[name].status
    file.parent.mkdir()
    file.write_text(content)
    done = cdigen("status", "--root", host)
    assert done.code == 0
    assert SERVICES[name].name not in done.out


@every_service
def test_the_service_is_also_shown_if_no_daemon_runs(cdigen: Run, host: Path, name: str) -> None:
    SERVICES[name].put(host)
    (host / "run/cdigen/status.json").unlink()
    done = cdigen("status", "--root", host)
    assert done.failed(3, "no cdigen daemon")
    assert done.out.startswith(SERVICES[name].runs)
    assert cdigen("status", "--root", host, "--json").json["error"]["kind"] == "no-daemon"


@pytest.mark.parametrize(
    ("put", "text"),
    [
        (lambda host: saved(host, STARTING), " of pod cdigen/cdigen-x7k2p, "),
        (SERVICES["kubelet"].put, ", by pod cdigen/cdigen-x7k2p\n"),
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


# Only `cdigen nri`.


def test_the_nri_plugin_is_shown_with_its_runtime_and_its_counts(cdigen: Run, host: Path) -> None:
    put_nri(host, board())
    out = cdigen("status", "--root", host).out
    assert "NRI plugin: registered with containerd 2.1.9 for " in out
    assert "12 containers with injected devices, 3 refused" in out
    assert "refused 3 times: unknown_device" in out
    assert cdigen("status", "--root", host, "--json").json["nri"]["counts"]["inject"] == 12


def test_containers_that_lack_their_requested_devices_are_counted(cdigen: Run, host: Path) -> None:
    status = board()
    status.set_audit(AuditResult(uninjected=(MISSED,), foreign_annotations=(), is_complete=True))
    put_nri(host, status)
    assert "1 running containers requested devices and have none" in cdigen("status", "--root", host).out


def test_problems_of_the_configuration_are_shown(cdigen: Run, host: Path) -> None:
    status = board()
    status.problems = (WRONG,)
    put_nri(host, status)
    assert "  warning: /c: something is wrong (mend it) [r]" in cdigen("status", "--root", host).out


def test_a_runtime_that_ignores_cdi_devices_is_named_with_the_remedy(cdigen: Run, host: Path) -> None:
    status = board()
    status.abilities = abilities("containerd", "1.7.24~ds1")
    put_nri(host, status)
    out = cdigen("status", "--root", host).out
    assert (
        "does not inject CDI devices for plugins; containerd injects CDI devices since 1.7.30 and 2.1.0"
        in out
    )


# Only `cdigen kubelet`.


def test_each_resource_is_shown_with_its_registration_devices_use_and_refusals(
    cdigen: Run, host: Path
) -> None:
    put_kubelet(host, served())
    out = cdigen("status", "--root", host).out
    assert "kubelet: registering for " in out
    rows = [line.split() for line in out.splitlines() if ".com/" in line][1:]
    assert rows == [
        ["nvidia.com/gpu", "registered", "2", "(1", "unhealthy)", "1", "1", "unknown_id"],
        ["x.com/y", "claimed-by-other:", "why", "0", "0", "-"],
    ]
    assert "  the last known state is used: the daemon does not run" in out
    assert "  warning: /c: something is wrong (mend it) [r]" in out
    assert "  labels: 1 in /x/cdigen\n" in out
    found = cdigen("status", "--root", host, "--json").json["kubelet"]
    assert [row["state"] for row in found["journal"]] == ["held", "refused"]


def test_the_reason_why_no_resource_is_advertised_is_shown(cdigen: Run, host: Path) -> None:
    put_kubelet(
        host,
        KubeletPluginStatus(
            started_s=1.0, kubelet_dir="/k", idle_reason="no resource is advertised: no inventory"
        ),
    )
    out = cdigen("status", "--root", host).out
    assert "kubelet: idle for " in out
    assert "(no resource is advertised: no inventory)" in out
