"""The doctor's checks of cdigen's NRI plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.watching import run_apart
from support.doctor.requests import doctor_context

from cdigen.doctor.checks import plugin
from cdigen.doctor.kubernetes import kubelet
from cdigen.nri import status as nri
from cdigen.nri.decision.result.compat import abilities
from cdigen.nri.shared_state import NriMetrics
from cdigen.runtimes.users import User
from cdigen.service.rundir import prepare, save_status
from cdigen.service.status import ENDED, this_process
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
    """Write the status of a running plugin, or of the process PID of another boot."""
    run_dir = str(host.root / "run/cdigen-nri")
    prepare(run_dir)
    process = replace(this_process(), pid=pid, started=1) if pid else this_process()
    save_status(run_dir, nri.document(made, process))


def live(status: dict[str, Any] | None) -> list[CheckResult]:
    """Return the results for a plugin with STATUS on this machine, without an enabled service."""
    context = doctor_context(plugin=lambda: status)
    return [result for check in plugin.CHECKS for result in check(context)]


def test_a_host_without_the_plugin_passes(host: BrokenHost) -> None:
    row = host.result("nri-plugin")
    assert (row["ok"], row["checked"]) == (True, True)
    assert "not set up" in row["detail"]


def test_a_validating_plugin_passes_and_its_limits_are_reported(host: BrokenHost) -> None:
    save(host, plugin_of("containerd", "2.3.4"))
    assert host.result("nri-plugin")["detail"] == "the NRI plugin is registered with containerd 2.3.4"
    row = host.result("nri-fail-open")
    assert row["ok"]
    assert "'cdigen configure containerd --nri-required'" in row["detail"]
    assert "rejects the next container of an existing pod once" in row["detail"]


def test_the_limits_of_a_runtime_without_validators_are_reported(host: BrokenHost) -> None:
    save(host, plugin_of("cri-o", "1.33.2"))
    detail = host.result("nri-fail-open")["detail"]
    assert "cri-o 1.33.2 has no validator of NRI plugins" in detail
    assert "existing pod once" not in detail


def test_the_command_for_cri_o_is_cdigen_configure_crio(host: BrokenHost) -> None:
    save(host, plugin_of("cri-o", "1.36.3"))
    assert "'cdigen configure crio --nri-required'" in host.result("nri-fail-open")["detail"]


ALICE = User(name="alice", uid=1000, gid=1000, gids=(), home="/", config_home="/", runtime_dir="/")


@pytest.mark.parametrize(
    ("request_for", "failed"),
    [
        ({}, {"nri-plugin", "kubelet-plugin"}),
        ({"runtimes": ("containerd",)}, {"nri-plugin"}),
        ({"runtimes": ("podman", "crio")}, {"nri-plugin"}),
        ({"runtimes": ("podman",)}, set()),
        ({"runtimes": ("docker",)}, set()),
        ({"user": ALICE}, set()),
        ({"user": ALICE, "runtimes": ("containerd",)}, {"nri-plugin"}),
    ],
)
def test_the_plugins_fail_only_for_requests_that_need_them(
    request_for: dict[str, Any], failed: set[str]
) -> None:
    broken = {"state": nri.CONNECTING, "reason": "no socket"}
    context = doctor_context(plugin=lambda: broken, kubelet=lambda: (None, "it ended"), **request_for)
    wrong = {
        result.check
        for check in (*plugin.CHECKS, *kubelet.CHECKS)
        for result in check(context)
        if not result.ok
    }
    assert wrong & {"nri-plugin", "kubelet-plugin"} == failed


def test_a_plugin_without_its_runtime_is_a_warning_with_the_reason(host: BrokenHost) -> None:
    save(host, plugin_of("containerd", "2.3.4", nri.CONNECTING, "cannot connect to /run/nri/nri.sock"))
    row = host.result("nri-plugin")
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert "not registered: cannot connect to /run/nri/nri.sock" in row["detail"]


def test_the_check_is_skipped_for_a_host_in_a_folder(host: BrokenHost) -> None:
    save(host, plugin_of("containerd", "2.3.4"), pid=2**22 - 1)
    assert not host.result("nri-plugin")["checked"]


def test_an_unreadable_status_skips_the_check(host: BrokenHost) -> None:
    (host.root / "run/cdigen-nri").symlink_to("/run/elsewhere")
    row = host.result("nri-plugin")
    assert not row["checked"]
    assert "/run/cdigen-nri: is a symlink" in row["detail"]


def test_a_killed_plugin_without_a_service_is_a_warning() -> None:
    found = nri.document(plugin_of("containerd", "2.3.4"), this_process())
    (result,) = live({**found, "state": ENDED, "reason": "process 7, which wrote it, is gone"})
    assert (result.ok, result.severity) == (False, "warning")
    assert "process 7, which wrote it, is gone" in result.detail
    assert "containers start without the devices that they request" in result.detail


def test_without_a_plugin_this_machine_passes() -> None:
    (result,) = live(None)
    assert result.ok


# A machine whose /etc contains only an enabled cdigen-nri.service.
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
def test_an_enabled_plugin_that_is_not_running_is_an_error_with_a_restart_as_remedy() -> None:
    (line,) = run_apart(ENABLED, start=("unshare", "--mount", "--propagation", "private"))
    severity, detail, remedy = line.split("|")
    assert (severity, remedy) == ("error", "systemctl restart cdigen-nri.service")
    assert "enabled but not running: containers start without the devices" in detail
