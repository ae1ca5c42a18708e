"""Cycles on a host whose driver, GPUs and MIG instances come and go."""

from __future__ import annotations

import os
import resource
import shutil
from typing import TYPE_CHECKING

import pytest
from support.daemon.cycles import Looker, looked
from support.daemon.host import NEW, OLD, Host
from support.hosts.mig import cap_node, minor_of, write_instance, write_minors
from support.hosts.nvidia_kernel import example_gpus, make_node, write_kernel_side

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")
SETTLE_S = 1.0  # what Host.configure says


def test_a_host_that_is_ready_gets_its_spec_in_the_first_cycle(host: Host) -> None:
    cycle = Looker(host).look()
    assert cycle.report.result == "changed"
    assert [spec.result for spec in cycle.report.specs] == ["written"]
    assert cycle.inventories.keys() == {"nvidia"}
    assert not cycle.needs_retry
    assert (host.devices(), host.driver()) == ({"0", "1", "all"}, OLD)


def test_a_host_without_a_gpu_is_told_from_one_without_a_driver_or_without_its_sys(tmp_path: Path) -> None:
    def is_bare(host: Host) -> bool:
        host.configure()
        return Looker(host).look().report.is_bare

    none, idle, unseen = (Host(tmp_path / name).prepare() for name in ("none", "idle", "unseen"))
    idle.load()
    idle.unload()
    for host in (none, idle):
        host.put("sys/devices/system/cpu/online", "0-3\n")
    assert [is_bare(host) for host in (none, idle, unseen)] == [True, False, False]


def test_the_report_names_the_devices_that_came(host: Host) -> None:
    (spec,) = Looker(host).look().report.specs
    assert spec.changes is not None
    assert {"0", "1", "all"} <= set(spec.changes.added)
    assert spec.served == len(host.document()["devices"])


def test_a_cycle_without_a_change_touches_no_file(host: Host, looker: Looker) -> None:
    before = files(host)
    for _ in range(3):
        report = looker.look().report
        assert (report.result, report.specs[0].result) == ("unchanged", "unchanged")
    assert files(host) == before


def test_new_content_is_held_against_the_schema_and_what_has_not_changed_is_not(host: Host) -> None:
    looker, before = Looker(host), children()
    first = looker.look().report
    assert (first.specs[0].result, children() > before) == ("written", True)
    assert not any(finding.rule.startswith("schema") for finding in first.findings)
    before = children()
    assert (looker.look().report.specs[0].result, children()) == ("unchanged", before)


def children() -> int:
    """Return a number that grows with each child process that has ended: of their page faults."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def files(host: Host) -> dict[str, tuple[int, int, int]]:
    """Return all files but the lock, in which each holder leaves its number."""
    return {path: what for path, what in host.files().items() if not path.endswith("/lock")}


def test_a_driver_that_is_not_there_is_absent_and_nothing_is_written(tmp_path: Path) -> None:
    host = Host(tmp_path)
    looker = Looker(host)
    cycle = looker.look()
    assert (cycle.report.result, cycle.report.vendors[0].state) == ("unchanged", "absent")
    assert not cycle.needs_retry
    assert list(tmp_path.iterdir()) == []


def test_a_driver_that_is_installed_is_settling_until_its_module_shows_its_gpus(tmp_path: Path) -> None:
    host = Host(tmp_path).prepare()
    looker = Looker(host)
    host.install(OLD)
    assert looker.state() == "absent"
    host.say_version(OLD)
    assert looker.state() == "settling"
    host.load()
    assert looker.state() == "ready"
    assert host.devices() == {"0", "1", "all"}


@pytest.mark.parametrize("first", ["libraries", "module"])
def test_an_upgrade_ends_in_the_new_driver_whichever_part_comes_first(
    first: str, host: Host, looker: Looker
) -> None:
    steps = [host.install, host.say_version]
    if first == "module":
        steps.reverse()
    steps[0](NEW)
    # The files that the old spec names are gone, or are not for this module: containers get one clear line.
    assert looker.state() == "settling"
    assert host.document() is None
    steps[1](NEW)
    assert looker.state() == "ready"
    assert host.driver() == NEW


def test_with_a_view_the_spec_of_the_old_driver_outlives_its_files(host: Host) -> None:
    looker = looked(host, "--layout", "view", "--hook", "none")
    before = host.spec.read_bytes()
    host.install(NEW)
    assert looker.state() == "settling"
    assert host.spec.read_bytes() == before
    assert looker.state(SETTLE_S + 1) == "mismatch"
    assert host.spec.read_bytes() == before
    host.say_version(NEW)
    assert looker.state() == "ready"
    assert host.spec.read_bytes() != before


def test_a_mismatch_is_settling_first_and_is_said_when_it_was_waited_for(host: Host, looker: Looker) -> None:
    host.say_version(NEW)
    assert looker.state() == "settling"
    assert looker.state(SETTLE_S - 0.1) == "settling"
    assert looker.state(0.2) == "mismatch"


def test_another_look_is_due_soon_only_while_the_host_is_settling(host: Host, looker: Looker) -> None:
    host.say_version(NEW)
    assert looker.look().needs_retry
    assert not looker.look(SETTLE_S + 1).needs_retry


def test_a_mismatch_tells_what_to_do(host: Host, looker: Looker) -> None:
    host.say_version(NEW)
    looker.look()
    (vendor,) = looker.look(SETTLE_S + 1).report.vendors
    assert NEW in vendor.reason
    assert OLD in vendor.reason
    assert "reboot" in vendor.hint


def test_patience_starts_anew_when_the_trouble_is_another_one(host: Host, looker: Looker) -> None:
    host.say_version(NEW)
    assert looker.state() == "settling"
    host.uninstall()
    assert looker.state(SETTLE_S - 0.1) == "settling"
    # No libraries at all is another trouble than those of another version.
    assert looker.state(SETTLE_S - 0.1) == "settling"
    assert looker.state(0.2) == "absent"


def test_patience_starts_anew_after_the_host_was_ready(host: Host, looker: Looker) -> None:
    host.say_version(NEW)
    assert looker.state() == "settling"
    host.say_version(OLD)
    assert looker.state(SETTLE_S - 0.1) == "ready"
    host.say_version(NEW)
    assert looker.state(0.2) == "settling"


def test_a_spec_for_another_driver_than_the_one_that_runs_is_withdrawn_at_once(
    host: Host, looker: Looker
) -> None:
    host.say_version(NEW)
    report = looker.look().report
    assert [(spec.result, spec.reason) for spec in report.specs] == [
        ("withdrawn", f"the kernel module is {NEW}, but the installed libraries are {OLD}")
    ]
    assert looker.state(SETTLE_S + 1) == "mismatch"
    assert host.document() is None
    host.say_version(OLD)
    assert looker.state() == "ready"
    assert host.driver() == OLD


def test_a_daemon_that_starts_anew_knows_for_which_driver_a_spec_was_made(host: Host) -> None:
    looked(host)
    host.say_version(NEW)
    Looker(host).look()
    assert host.document() is None


def test_a_mismatch_stays_one_and_keeps_a_spec_for_the_driver_that_runs(host: Host) -> None:
    looker = looked(host, "--layout", "view", "--hook", "none")
    before = host.spec.read_bytes()
    host.install(NEW)
    looker.look()
    for _ in range(3):
        report = looker.look(SETTLE_S + 1).report
        assert [(spec.result, spec.served) for spec in report.specs] == [("kept", 6)]
    assert host.spec.read_bytes() == before


def test_a_clock_that_jumps_far_ahead_only_ends_patience(host: Host, looker: Looker) -> None:
    assert looker.state(1e9) == "ready"
    host.say_version(NEW)
    assert looker.state() == "settling"
    assert looker.state(1e9) == "mismatch"
    host.say_version(OLD)
    assert looker.state() == "ready"


def test_a_clock_that_jumps_back_only_prolongs_patience(host: Host, looker: Looker) -> None:
    host.say_version(NEW)
    assert looker.state() == "settling"
    assert looker.state(-500) == "settling"
    host.say_version(OLD)
    assert looker.state() == "ready"


def test_a_driver_that_is_removed_takes_its_spec_along_at_once(host: Host, looker: Looker) -> None:
    host.uninstall()
    host.unload()
    report = looker.look().report
    assert (report.result, report.vendors[0].state) == ("changed", "absent")
    assert [spec.result for spec in report.specs] == ["withdrawn"]
    assert os.listdir(host.specs) == []


def test_a_module_that_is_unloaded_takes_the_spec_along_and_brings_it_back(
    host: Host, looker: Looker
) -> None:
    before = host.spec.read_bytes()
    host.unload()
    assert looker.state() == "absent"
    assert host.document() is None
    host.load()
    assert looker.state() == "ready"
    assert host.spec.read_bytes() == before


def test_a_spec_that_does_not_hold_any_more_stays_where_the_configuration_says_keep(host: Host) -> None:
    host.configure(stale_specs="keep")
    looker = looked(host)
    before = host.spec.read_bytes()
    host.uninstall()
    host.unload()
    report = looker.look().report
    assert (report.vendors[0].state, report.result) == ("absent", "unchanged")
    assert [spec.result for spec in report.specs] == ["kept"]
    assert host.spec.read_bytes() == before


def test_a_gpu_that_is_added_is_offered(host: Host, looker: Looker) -> None:
    host.load(gpus=3)
    assert looker.state() == "ready"
    assert host.devices() == {"0", "1", "2", "all"}


def test_a_gpu_that_is_removed_is_not_offered_any_more(host: Host, looker: Looker) -> None:
    host.remove_gpu(1)
    assert looker.state() == "ready"
    assert host.devices() == {"0", "all"}


def test_a_gpu_whose_node_is_late_is_waited_for_and_the_old_spec_serves_the_others(
    host: Host, looker: Looker
) -> None:
    host.load(gpus=3)
    (host.root / "dev/nvidia2").unlink()
    assert looker.state() == "settling"
    assert host.devices() == {"0", "1", "all"}
    make_node(host.root, example_gpus(3)[2].nodes[0])
    assert looker.state() == "ready"
    assert host.devices() == {"0", "1", "2", "all"}


def test_a_gpu_whose_node_never_comes_is_left_out_and_said(host: Host, looker: Looker) -> None:
    host.load(gpus=3)
    (host.root / "dev/nvidia0").unlink()
    # The spec on the disk names the node that is gone: better without it now than in a while.
    assert looker.state() == "settling"
    assert host.devices() == {"1", "2", "all"}
    report = looker.look(SETTLE_S + 1).report
    assert report.vendors[0].state == "degraded"
    assert [(spec.result, spec.left_out) for spec in report.specs] == [("unchanged", 1)]
    assert any(finding.rule == "gpu-node-missing" for finding in report.findings)


def test_nodes_that_come_after_the_module_are_waited_for(tmp_path: Path) -> None:
    host = Host(tmp_path).prepare()
    host.install(OLD)
    host.load(nodes=False)
    looker = Looker(host)
    assert looker.state() == "settling"
    host.make_nodes()
    assert looker.state() == "ready"


def test_a_node_whose_major_changed_while_the_old_one_is_still_there_is_waited_for(
    host: Host, looker: Looker
) -> None:
    # The kernel chooses the major of nvidia-uvm anew when that module is loaded again.
    write_kernel_side(host.root, example_gpus(2), uvm_major=499, nodes=False)
    before = host.spec.read_bytes()
    assert looker.state() == "settling"
    assert host.spec.read_bytes() == before
    write_kernel_side(host.root, example_gpus(2), uvm_major=499)
    assert looker.state() == "ready"


def test_a_host_whose_shared_node_never_comes_is_served_without_it_and_that_is_said(host: Host) -> None:
    (host.root / "dev/nvidia-uvm").unlink()
    looker = Looker(host)
    assert looker.state() == "settling"
    assert host.devices() == {"0", "1", "all"}
    report = looker.look(SETTLE_S + 1).report
    assert report.vendors[0].state == "degraded"
    assert "/dev/nvidia-uvm does not exist" in report.vendors[0].reason


def test_mig_instances_come_and_go_with_their_capability_files(host: Host, looker: Looker) -> None:
    write_minors(host.root, 2)
    write_instance(host.root, 0, 7)
    assert looker.state() == "ready"
    assert host.devices() == {"0:gi7-ci0", "1", "all"}
    write_instance(host.root, 0, 9)
    assert looker.state() == "ready"
    assert host.devices() == {"0:gi7-ci0", "0:gi9-ci0", "1", "all"}
    folder = host.root / "proc/driver/nvidia/capabilities/gpu0/mig/gi7"
    for name in ("ci0/access", "access"):
        (folder / name).unlink()
    (folder / "ci0").rmdir()
    folder.rmdir()
    assert looker.state() == "ready"
    assert host.devices() == {"0:gi9-ci0", "1", "all"}


def test_the_last_mig_instance_gone_leaves_the_whole_gpu(host: Host) -> None:
    write_minors(host.root, 2)
    write_instance(host.root, 0, 7)
    looker = looked(host)
    assert host.devices() == {"0:gi7-ci0", "1", "all"}
    shutil.rmtree(host.root / "proc/driver/nvidia/capabilities/gpu0/mig/gi7")
    assert looker.state() == "ready"
    assert host.devices() == {"0", "1", "all"}


def test_a_mig_instance_whose_nodes_are_late_is_waited_for(host: Host) -> None:
    write_minors(host.root, 2)
    looker = looked(host)
    write_instance(host.root, 0, 7, nodes=False)
    states = [looker.state()]
    for minor in (minor_of(0, 7), minor_of(0, 7, 0)):
        make_node(host.root, cap_node(minor), mode=0o444)
    states.append(looker.state())
    assert states == ["settling", "ready"]
    assert host.devices() == {"0:gi7-ci0", "1", "all"}
