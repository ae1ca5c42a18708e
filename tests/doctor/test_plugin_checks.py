"""What the doctor says of cdigen's NRI plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.watching import run_apart
from support.doctor.requests import doctor_context

from cdigen.doctor import plugin
from cdigen.frontend.rundir import prepare, save_status
from cdigen.frontend.status import this_process
from cdigen.nri import status as nri
from cdigen.nri.decision.compat import abilities
from cdigen.nri.shared_state import NriMetrics
from cdigen.value import replace

if TYPE_CHECKING:
    from support.doctor.broken_host import BrokenHost

    from cdigen.doctor.result import CheckResult


def plugin_of(runtime: str, version: str, state: str = nri.REGISTERED, reason: str = "") -> nri.PluginStatus:
    made = nri.PluginStatus(NriMetrics())
    made.abilities = abilities(runtime, version)
    made.set_state(state, reason)
    return made


def save(host: BrokenHost, made: nri.PluginStatus, *, pid: int = 0) -> None:
    """Write the status of a plugin that runs, or of the process PID of another boot."""
    run_dir = str(host.root / "run/cdigen-nri")
    prepare(run_dir)
    process = replace(this_process(), pid=pid, started=1) if pid else this_process()
    save_status(run_dir, nri.document(made, process))


def live(status: dict[str, Any] | None) -> list[CheckResult]:
    """Return what is said on this machine, where no plugin's service is enabled, of a plugin with STATUS."""
    context = doctor_context(plugin=lambda: status)
    return [result for check in plugin.CHECKS for result in check(context)]


def test_a_host_without_the_plugin_lacks_nothing(host: BrokenHost) -> None:
    row = host.result("nri-plugin")
    assert (row["ok"], row["checked"]) == (True, True)
    assert "not set up" in row["detail"]


def test_a_plugin_that_validates_is_well_and_what_it_cannot_close_is_named(host: BrokenHost) -> None:
    save(host, plugin_of("containerd", "2.3.4"))
    assert host.result("nri-plugin")["detail"] == "the NRI plugin is registered with containerd 2.3.4"
    row = host.result("nri-fail-open")
    assert row["ok"]
    assert "'cdigen configure containerd --nri-required'" in row["detail"]
    assert "the next container in a pod that is there is refused once" in row["detail"]


def test_of_a_runtime_without_validators_it_is_said_what_that_leaves_open(host: BrokenHost) -> None:
    save(host, plugin_of("cri-o", "1.33.2"))
    detail = host.result("nri-fail-open")["detail"]
    assert "cri-o 1.33.2 has no validator of NRI plugins" in detail
    assert "is refused once" not in detail


def test_the_command_for_crio_is_crios(host: BrokenHost) -> None:
    save(host, plugin_of("cri-o", "1.36.3"))
    assert "'cdigen configure crio --nri-required'" in host.result("nri-fail-open")["detail"]


def test_a_plugin_without_its_runtime_is_a_warning_with_the_reason(host: BrokenHost) -> None:
    save(host, plugin_of("containerd", "2.3.4", nri.CONNECTING, "cannot connect to /run/nri/nri.sock"))
    row = host.result("nri-plugin")
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert "not registered: cannot connect to /run/nri/nri.sock" in row["detail"]


def test_whether_the_plugin_of_a_folder_runs_is_not_known(host: BrokenHost) -> None:
    save(host, plugin_of("containerd", "2.3.4"), pid=2**22 - 1)
    assert not host.result("nri-plugin")["checked"]


def test_a_status_that_cannot_be_read_ends_no_diagnosis(host: BrokenHost) -> None:
    (host.root / "run/cdigen-nri").symlink_to("/run/elsewhere")
    row = host.result("nri-plugin")
    assert not row["checked"]
    assert "/run/cdigen-nri: is a symlink" in row["detail"]


def test_a_plugin_that_was_killed_is_a_warning_where_no_service_brings_it_back() -> None:
    found = nri.document(plugin_of("containerd", "2.3.4"), this_process())
    (result,) = live({**found, "state": nri.ENDED, "reason": "process 7, which wrote it, is gone"})
    assert (result.ok, result.severity) == (False, "warning")
    assert "process 7, which wrote it, is gone" in result.detail
    assert "containers start without the devices that they ask for" in result.detail


def test_without_a_plugin_this_machine_lacks_nothing() -> None:
    (result,) = live(None)
    assert result.ok


# A machine whose /etc is this test's alone.
ENABLED = """
import os, subprocess
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/etc"], check=True)
folder = "/etc/systemd/system"
os.makedirs(f"{folder}/multi-user.target.wants")
open(f"{folder}/cdigen-nri.service", "w").close()
os.symlink("../cdigen-nri.service", f"{folder}/multi-user.target.wants/cdigen-nri.service")
from doctor.test_plugin_checks import live
for result in live(None):
    print(result.severity, result.detail, *(" ".join(remedy.argv) for remedy in result.remedies), sep="|")
"""


@pytest.mark.usefixtures("own_mounts")
def test_a_plugin_that_is_enabled_and_not_there_is_an_error_and_started_again() -> None:
    (said,) = run_apart(ENABLED, start=("unshare", "--mount", "--propagation", "private"))
    severity, detail, remedy = said.split("|")
    assert (severity, remedy) == ("error", "systemctl restart cdigen-nri.service")
    assert "enabled and not running: containers start without the devices" in detail
