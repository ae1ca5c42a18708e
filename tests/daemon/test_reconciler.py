"""Cycles on a host while its driver, GPUs and MIG instances are added and removed."""

from __future__ import annotations

import os
import resource
import shutil
from typing import TYPE_CHECKING

import pytest
from support.daemon.cycles import CycleRunner, after_first_cycle
from support.daemon.host import NEW, OLD, Host
from support.hosts.mig import cap_node, minor_of, write_instance, write_minors
from support.hosts.nvidia_kernel import Node, example_gpus, make_node, write_kernel_side
from support.hosts.nvidia_platforms import orin, wsl2

from cdigen.daemon.cycle.report import verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")
SETTLE_S = 1.0  # the value that Host.configure writes


def test_a_host_that_is_ready_gets_its_spec_in_the_first_cycle(host: Host) -> None:
    cycle = CycleRunner(host).run_cycle()
    assert cycle.report.result == "changed"
    assert [spec.result for spec in cycle.report.specs] == ["written"]
    assert cycle.inventories.keys() == {"nvidia"}
    assert not cycle.needs_retry
    assert (host.devices(), host.driver()) == ({"0", "1", "all"}, OLD)


def test_only_a_host_without_a_gpu_is_bare(tmp_path: Path) -> None:
    def is_bare(host: Host) -> bool:
        host.configure()
        return CycleRunner(host).run_cycle().report.is_bare

    none, idle, unmounted = (Host(tmp_path / name).prepare() for name in ("none", "idle", "unmounted"))
    idle.load()
    idle.unload()
    for host in (none, idle):
        host.put("sys/devices/system/cpu/online", "0-3\n")
    assert [is_bare(host) for host in (none, idle, unmounted)] == [True, False, False]


@pytest.mark.parametrize("lay", [wsl2, orin])
def test_a_host_with_an_unknown_number_of_devices_is_ready(
    tmp_path: Path, lay: Callable[[Path], object]
) -> None:
    host = Host(tmp_path / "host").prepare()
    lay(host.root)
    host.configure()
    assert verdict(CycleRunner(host).run_cycle().report) == ("ready", "containers can use nvidia.com/gpu")


def test_the_report_names_the_new_devices(host: Host) -> None:
    (spec,) = CycleRunner(host).run_cycle().report.specs
    assert spec.changes is not None
    assert {"0", "1", "all"} <= set(spec.changes.added)
    assert spec.served == len(host.document()["devices"])


def test_a_cycle_without_a_change_writes_no_file(host: Host, cycles: CycleRunner) -> None:
    before = files(host)
    for _ in range(3):
        report = cycles.run_cycle().report
        assert (report.result, report.specs[0].result) == ("unchanged", "unchanged")
    assert files(host) == before


def test_new_content_is_validated_by_the_schema_and_unchanged_content_is_not(host: Host) -> None:
    cycles, before = CycleRunner(host), children()
    first = cycles.run_cycle().report
    assert (first.specs[0].result, children() > before) == ("written", True)
    assert not any(finding.rule.startswith("schema") for finding in first.findings)
    before = children()
    assert (cycles.run_cycle().report.specs[0].result, children()) == ("unchanged", before)


def children() -> int:
    """Return the page faults of all ended child processes. This number grows with each child process."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def files(host: Host) -> dict[str, tuple[int, int, int]]:
    """Return all files except the lock, which contains the ID of the process that holds it."""
    return {path: facts for path, facts in host.files().items() if not path.endswith("/lock")}


def test_without_a_driver_the_state_is_absent_and_nothing_is_written(tmp_path: Path) -> None:
    host = Host(tmp_path)
    cycles = CycleRunner(host)
    cycle = cycles.run_cycle()
    assert (cycle.report.result, cycle.report.vendors[0].state) == ("unchanged", "absent")
    assert not cycle.needs_retry
    assert list(tmp_path.iterdir()) == []


def test_the_state_is_settling_until_the_module_of_a_new_driver_shows_the_gpus(tmp_path: Path) -> None:
    host = Host(tmp_path).prepare()
    cycles = CycleRunner(host)
    host.install(OLD)
    assert cycles.state() == "absent"
    host.set_version(OLD)
    assert cycles.state() == "settling"
    host.load()
    assert cycles.state() == "ready"
    assert host.devices() == {"0", "1", "all"}


@pytest.mark.parametrize("first", ["libraries", "module"])
def test_an_upgrade_ends_with_a_spec_of_the_new_driver_in_any_order_of_its_steps(
    first: str, host: Host, cycles: CycleRunner
) -> None:
    steps = [host.install, host.set_version]
    if first == "module":
        steps.reverse()
    steps[0](NEW)
    # The files in the old spec are removed, or belong to another module. Without the spec, containers fail
    # with a clear message.
    assert cycles.state() == "settling"
    assert host.document() is None
    steps[1](NEW)
    assert cycles.state() == "ready"
    assert host.driver() == NEW


def test_with_a_view_the_spec_stays_after_the_removal_of_the_old_drivers_files(host: Host) -> None:
    cycles = after_first_cycle(host, "--layout", "view", "--hook", "none")
    before = host.spec.read_bytes()
    host.install(NEW)
    assert cycles.state() == "settling"
    assert host.spec.read_bytes() == before
    assert cycles.state(SETTLE_S + 1) == "mismatch"
    assert host.spec.read_bytes() == before
    host.set_version(NEW)
    assert cycles.state() == "ready"
    assert host.spec.read_bytes() != before


def test_a_mismatch_is_settling_first_and_is_reported_after_the_wait(host: Host, cycles: CycleRunner) -> None:
    host.set_version(NEW)
    assert cycles.state() == "settling"
    assert cycles.state(SETTLE_S - 0.1) == "settling"
    assert cycles.state(0.2) == "mismatch"


def test_another_cycle_is_due_soon_only_while_the_host_is_settling(host: Host, cycles: CycleRunner) -> None:
    host.set_version(NEW)
    assert cycles.run_cycle().needs_retry
    assert not cycles.run_cycle(SETTLE_S + 1).needs_retry


def test_a_mismatch_has_a_hint(host: Host, cycles: CycleRunner) -> None:
    host.set_version(NEW)
    cycles.run_cycle()
    (vendor,) = cycles.run_cycle(SETTLE_S + 1).report.vendors
    assert NEW in vendor.reason
    assert OLD in vendor.reason
    assert "reboot" in vendor.hint


def test_the_wait_starts_again_with_another_error(host: Host, cycles: CycleRunner) -> None:
    host.set_version(NEW)
    assert cycles.state() == "settling"
    host.uninstall()
    assert cycles.state(SETTLE_S - 0.1) == "settling"
    # The error for missing libraries differs from the error for libraries of another version.
    assert cycles.state(SETTLE_S - 0.1) == "settling"
    assert cycles.state(0.2) == "degraded"


def test_the_wait_starts_again_after_the_host_was_ready(host: Host, cycles: CycleRunner) -> None:
    host.set_version(NEW)
    assert cycles.state() == "settling"
    host.set_version(OLD)
    assert cycles.state(SETTLE_S - 0.1) == "ready"
    host.set_version(NEW)
    assert cycles.state(0.2) == "settling"


def test_a_spec_for_a_driver_that_does_not_run_is_withdrawn_at_once(host: Host, cycles: CycleRunner) -> None:
    host.set_version(NEW)
    report = cycles.run_cycle().report
    assert [(spec.result, spec.reason) for spec in report.specs] == [
        ("withdrawn", f"the kernel module has version {NEW}, but the installed libraries have version {OLD}")
    ]
    assert cycles.state(SETTLE_S + 1) == "mismatch"
    assert host.document() is None
    host.set_version(OLD)
    assert cycles.state() == "ready"
    assert host.driver() == OLD


def test_a_restarted_daemon_withdraws_a_spec_for_a_driver_that_does_not_run(host: Host) -> None:
    after_first_cycle(host)
    host.set_version(NEW)
    CycleRunner(host).run_cycle()
    assert host.document() is None


def test_during_a_mismatch_a_spec_for_the_running_driver_is_kept(host: Host) -> None:
    cycles = after_first_cycle(host, "--layout", "view", "--hook", "none")
    before = host.spec.read_bytes()
    host.install(NEW)
    cycles.run_cycle()
    for _ in range(3):
        report = cycles.run_cycle(SETTLE_S + 1).report
        assert [(spec.result, spec.served) for spec in report.specs] == [("kept", 6)]
    assert host.spec.read_bytes() == before


def test_a_clock_that_jumps_far_ahead_only_ends_the_wait(host: Host, cycles: CycleRunner) -> None:
    assert cycles.state(1e9) == "ready"
    host.set_version(NEW)
    assert cycles.state() == "settling"
    assert cycles.state(1e9) == "mismatch"
    host.set_version(OLD)
    assert cycles.state() == "ready"


def test_a_clock_that_jumps_back_only_prolongs_the_wait(host: Host, cycles: CycleRunner) -> None:
    host.set_version(NEW)
    assert cycles.state() == "settling"
    assert cycles.state(-500) == "settling"
    host.set_version(OLD)
    assert cycles.state() == "ready"


def test_removing_a_driver_withdraws_its_spec_at_once(host: Host, cycles: CycleRunner) -> None:
    host.uninstall()
    host.unload()
    report = cycles.run_cycle().report
    assert (report.result, report.vendors[0].state) == ("changed", "absent")
    assert [spec.result for spec in report.specs] == ["withdrawn"]
    assert os.listdir(host.specs) == []


def test_unloading_a_module_withdraws_the_spec_and_loading_writes_it_again(
    host: Host, cycles: CycleRunner
) -> None:
    before = host.spec.read_bytes()
    host.unload()
    assert cycles.state() == "absent"
    assert host.document() is None
    host.load()
    assert cycles.state() == "ready"
    assert host.spec.read_bytes() == before


def test_a_stale_spec_stays_if_the_configuration_keeps_stale_specs(host: Host) -> None:
    host.configure(stale_specs="keep")
    cycles = after_first_cycle(host)
    before = host.spec.read_bytes()
    host.uninstall()
    host.unload()
    report = cycles.run_cycle().report
    assert (report.vendors[0].state, report.result) == ("absent", "unchanged")
    assert [spec.result for spec in report.specs] == ["kept"]
    assert host.spec.read_bytes() == before


def test_an_added_gpu_is_in_the_spec(host: Host, cycles: CycleRunner) -> None:
    host.load(gpus=3)
    assert cycles.state() == "ready"
    assert host.devices() == {"0", "1", "2", "all"}


def test_a_removed_gpu_is_no_longer_in_the_spec(host: Host, cycles: CycleRunner) -> None:
    host.remove_gpu(1)
    assert cycles.state() == "ready"
    assert host.devices() == {"0", "all"}


def test_the_old_spec_stays_until_the_late_node_of_a_new_gpu_appears(host: Host, cycles: CycleRunner) -> None:
    host.load(gpus=3)
    (host.root / "dev/nvidia2").unlink()
    assert cycles.state() == "settling"
    assert host.devices() == {"0", "1", "all"}
    make_node(host.root, example_gpus(3)[2].nodes[0])
    assert cycles.state() == "ready"
    assert host.devices() == {"0", "1", "2", "all"}


def test_a_gpu_whose_node_never_appears_is_left_out_and_reported(host: Host, cycles: CycleRunner) -> None:
    host.load(gpus=3)
    (host.root / "dev/nvidia0").unlink()
    # The spec on the disk names the removed node, so the spec is written again at once.
    assert cycles.state() == "settling"
    assert host.devices() == {"1", "2", "all"}
    report = cycles.run_cycle(SETTLE_S + 1).report
    assert report.vendors[0].state == "degraded"
    assert [(spec.result, spec.left_out) for spec in report.specs] == [("unchanged", 1)]
    assert any(finding.rule == "gpu-node-missing" for finding in report.findings)


def test_the_state_is_settling_until_the_nodes_of_a_loaded_module_appear(tmp_path: Path) -> None:
    host = Host(tmp_path).prepare()
    host.install(OLD)
    host.load(nodes=False)
    cycles = CycleRunner(host)
    assert cycles.state() == "settling"
    host.make_nodes()
    assert cycles.state() == "ready"


def test_the_state_is_settling_while_a_shared_node_has_an_old_major_number(
    host: Host, cycles: CycleRunner
) -> None:
    # The kernel chooses another major for nvidia-uvm when that module is loaded again.
    write_kernel_side(host.root, example_gpus(2), uvm_major=499, nodes=False)
    before = host.spec.read_bytes()
    assert cycles.state() == "settling"
    assert host.spec.read_bytes() == before
    write_kernel_side(host.root, example_gpus(2), uvm_major=499)
    assert cycles.state() == "ready"


def test_without_a_shared_node_the_spec_is_withheld_with_the_reason(host: Host) -> None:
    (host.root / "dev/nvidia-uvm").unlink()
    cycles = CycleRunner(host)
    assert cycles.state() == "settling"
    assert not host.spec.exists()
    report = cycles.run_cycle(SETTLE_S + 1).report
    assert report.vendors[0].state == "degraded"
    assert "/dev/nvidia-uvm does not exist" in report.vendors[0].reason
    (refused,) = [spec for spec in report.specs if spec.kind == "nvidia.com/gpu"]
    assert refused.result == "refused"
    assert "no spec of nvidia.com/gpu is written" in refused.reason
    make_node(host.root, Node(path="/dev/nvidia-uvm", major=510, minor=0))
    assert cycles.state() == "ready"
    assert host.devices() == {"0", "1", "all"}


def test_a_spec_whose_shared_node_is_gone_is_withdrawn(host: Host, cycles: CycleRunner) -> None:
    assert cycles.state() == "ready"
    (host.root / "dev/nvidia-uvm").unlink()
    cycles.run_cycle()
    assert not host.spec.exists()


def test_specs_follow_the_capability_files_of_mig_instances(host: Host, cycles: CycleRunner) -> None:
    write_minors(host.root, 2)
    write_instance(host.root, 0, 7)
    assert cycles.state() == "ready"
    assert host.devices() == {"0:gi7-ci0", "1", "all"}
    write_instance(host.root, 0, 9)
    assert cycles.state() == "ready"
    assert host.devices() == {"0:gi7-ci0", "0:gi9-ci0", "1", "all"}
    folder = host.root / "proc/driver/nvidia/capabilities/gpu0/mig/gi7"
    for name in ("ci0/access", "access"):
        (folder / name).unlink()
    (folder / "ci0").rmdir()
    folder.rmdir()
    assert cycles.state() == "ready"
    assert host.devices() == {"0:gi9-ci0", "1", "all"}


def test_the_whole_gpu_is_in_the_spec_after_the_last_mig_instance_is_removed(host: Host) -> None:
    write_minors(host.root, 2)
    write_instance(host.root, 0, 7)
    cycles = after_first_cycle(host)
    assert host.devices() == {"0:gi7-ci0", "1", "all"}
    shutil.rmtree(host.root / "proc/driver/nvidia/capabilities/gpu0/mig/gi7")
    assert cycles.state() == "ready"
    assert host.devices() == {"0", "1", "all"}


def test_the_state_is_settling_until_the_nodes_of_a_mig_instance_appear(host: Host) -> None:
    write_minors(host.root, 2)
    cycles = after_first_cycle(host)
    write_instance(host.root, 0, 7, nodes=False)
    states = [cycles.state()]
    for minor in (minor_of(0, 7), minor_of(0, 7, 0)):
        make_node(host.root, cap_node(minor), mode=0o444)
    states.append(cycles.state())
    assert states == ["settling", "ready"]
    assert host.devices() == {"0:gi7-ci0", "1", "all"}
