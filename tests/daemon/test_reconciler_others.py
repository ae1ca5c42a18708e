"""Cycles in which another program, an administrator or the disk prevents the daemon from writing a spec."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from support.daemon.cycles import CycleRunner
from support.daemon.host import KIND, NAME, TWO_KINDS, Host
from support.daemon.watching import OWN_MOUNTS, run_apart

if TYPE_CHECKING:
    from cdigen.daemon.cycle.report import CycleReport

pytestmark = pytest.mark.usefixtures("real_nodes")
OTHER = "nvidia.com-other.json"


@pytest.fixture
def host(host: Host) -> Host:
    host.configure(TWO_KINDS)
    return host


@pytest.fixture
def cycles(host: Host) -> CycleRunner:
    """Return the cycles of a daemon that has written both specs."""
    cycles = CycleRunner(host)
    assert cycles.run_cycle().report.result == "changed"
    assert sorted(os.listdir(host.specs)) == [NAME, OTHER]
    return cycles


def results(report: CycleReport) -> dict[str, str]:
    return {spec.kind: spec.result for spec in report.specs}


def test_a_removed_spec_is_written_again(host: Host, cycles: CycleRunner) -> None:
    before = host.spec.read_bytes()
    host.spec.unlink()
    report = cycles.run_cycle().report
    assert results(report) == {KIND: "written", "nvidia.com/other": "unchanged"}
    assert host.spec.read_bytes() == before


def test_an_edited_spec_is_foreign_and_the_reason_is_reported(host: Host, cycles: CycleRunner) -> None:
    edited = host.document() | {"annotations": {"by": "hand"}}
    host.spec.write_text(json.dumps(edited))
    cycle = cycles.run_cycle()
    assert results(cycle.report) == {KIND: "refused", "nvidia.com/other": "unchanged"}
    assert "cdigen did not write this file" in cycle.report.error
    assert cycle.report.result == "failed"
    assert host.document() == edited


def test_other_specs_are_updated_while_one_spec_is_foreign(host: Host, cycles: CycleRunner) -> None:
    host.spec.write_text(json.dumps(host.document() | {"annotations": {"by": "hand"}}))
    host.load(gpus=3)
    assert results(cycles.run_cycle().report) == {KIND: "refused", "nvidia.com/other": "written"}
    assert host.devices(OTHER) == {"0", "1", "2", "all"}
    assert host.devices() == {"0", "1", "all"}


def test_an_edited_spec_that_is_removed_is_written_again(host: Host, cycles: CycleRunner) -> None:
    host.spec.write_text("{}")
    assert cycles.run_cycle().report.result == "failed"
    host.spec.unlink()
    report = cycles.run_cycle().report
    assert (report.result, report.error) == ("changed", "")


def test_an_edited_spec_is_not_withdrawn(host: Host, cycles: CycleRunner) -> None:
    edited = host.document() | {"annotations": {"by": "hand"}}
    host.spec.write_text(json.dumps(edited))
    host.uninstall()
    host.unload()
    report = cycles.run_cycle().report
    assert results(report) == {"nvidia.com/gpu": "refused", "nvidia.com/other": "withdrawn"}
    assert "was changed since cdigen wrote it and stays, although" in report.error
    assert host.document() == edited


def test_a_daemon_for_one_kind_does_not_change_specs_of_other_kinds(host: Host, cycles: CycleRunner) -> None:
    assert cycles
    only = CycleRunner(host, "--kind", "nvidia.com/gpu")
    assert results(only.run_cycle().report) == {"nvidia.com/gpu": "unchanged"}
    host.unload()
    assert results(only.run_cycle().report) == {"nvidia.com/gpu": "withdrawn"}
    assert host.document(OTHER) is not None


def test_a_fifo_at_the_path_of_a_spec_does_not_block_the_cycle(host: Host, cycles: CycleRunner) -> None:
    host.spec.unlink()
    os.mkfifo(host.spec)
    report = cycles.run_cycle().report
    assert results(report) == {"nvidia.com/gpu": "refused", "nvidia.com/other": "unchanged"}


def test_a_spec_directory_that_was_removed_is_made_again(host: Host, cycles: CycleRunner) -> None:
    shutil.rmtree(host.specs)
    assert set(results(cycles.run_cycle().report).values()) == {"written"}
    assert sorted(os.listdir(host.specs)) == [NAME, OTHER]


def test_a_spec_directory_that_became_a_link_is_refused_and_its_target_is_unchanged(
    host: Host, cycles: CycleRunner
) -> None:
    elsewhere = host.root / "elsewhere"
    host.specs.rename(elsewhere)
    host.specs.symlink_to(elsewhere)
    before = {name: (elsewhere / name).stat().st_ino for name in os.listdir(elsewhere)}
    host.load(gpus=3)
    cycle = cycles.run_cycle()
    assert cycle.report.result == "failed"
    assert "is a symlink" in cycle.report.error
    assert cycle.needs_retry
    assert {name: (elsewhere / name).stat().st_ino for name in os.listdir(elsewhere)} == before
    host.specs.unlink()
    assert set(results(cycles.run_cycle().report).values()) == {"written"}


def test_a_withdrawal_that_would_unmask_a_foreign_spec_is_refused_with_an_error(
    host: Host, cycles: CycleRunner
) -> None:
    foreign = host.put("etc/cdi/other.json", json.dumps(host.document()))
    host.uninstall()
    host.unload()
    before = host.spec.read_bytes()
    cycle = cycles.run_cycle()
    assert results(cycle.report) == {KIND: "kept", "nvidia.com/other": "withdrawn"}
    (finding,) = [one for one in cycle.report.findings if one.rule == "withdrawal-unmasks"]
    assert (finding.severity, finding.path) == ("error", str(host.spec))
    assert str(foreign) in finding.message
    assert str(foreign) in cycle.report.error
    assert host.spec.read_bytes() == before
    foreign.unlink()
    assert results(cycles.run_cycle().report) == {KIND: "withdrawn"}
    assert os.listdir(host.specs) == []


def test_a_foreign_spec_of_lower_priority_has_no_effect_while_the_driver_runs(
    host: Host, cycles: CycleRunner
) -> None:
    host.put("etc/cdi/other.json", json.dumps(host.document()))
    report = cycles.run_cycle().report
    assert (report.result, set(results(report).values())) == ("unchanged", {"unchanged"})


def test_a_foreign_spec_with_the_same_devices_is_reported_and_other_kinds_are_served(
    host: Host, cycles: CycleRunner
) -> None:
    (host.specs / "other.json").write_text(json.dumps(host.document()))
    report = cycles.run_cycle().report
    assert results(report) == {KIND: "refused", "nvidia.com/other": "unchanged"}
    assert "other.json" in report.error


def test_a_kind_that_is_not_configured_any_more_is_withdrawn(host: Host, cycles: CycleRunner) -> None:
    host.configure()
    assert results(cycles.run_cycle().report) == {KIND: "unchanged", "nvidia.com/other": "withdrawn"}
    assert os.listdir(host.specs) == [NAME]


def test_a_kind_that_is_not_configured_any_more_stays_if_stale_specs_are_kept(
    host: Host, cycles: CycleRunner
) -> None:
    host.configure(stale_specs="keep")
    assert results(cycles.run_cycle().report)["nvidia.com/other"] == "kept"
    assert sorted(os.listdir(host.specs)) == [NAME, OTHER]


IN_NAMESPACE = """
import sys
from pathlib import Path
from support.daemon.cycles import CycleRunner
from support.daemon.host import Host
import subprocess

root, options = Path(sys.argv[1]), sys.argv[2:]
host = Host(root)
cycles = CycleRunner(host)
first = cycles.run_cycle().report
subprocess.run(["mount", *options, str(host.specs)], check=True)
host.load(gpus=3)
failed = cycles.run_cycle()
print(first.result, failed.report.result, failed.needs_retry, host.rubbish())
print(failed.report.error)
subprocess.run(["umount", str(host.specs)], check=True)
print(cycles.run_cycle().report.result, sorted(host.devices()), host.rubbish())
"""


def in_namespace(host: Host, *options: str) -> list[str]:
    """Run cycles. During the second cycle, a mount covers the spec directory; mount(8) gets OPTIONS."""
    return run_apart(IN_NAMESPACE, str(host.root), *options, start=OWN_MOUNTS)


def test_a_read_only_spec_directory_is_an_error_until_the_next_cycle(host: Host) -> None:
    found, error, later = in_namespace(host, "--bind", "--options", "ro", str(host.specs))
    assert found == "changed failed True []"
    assert "Read-only file system" in error
    assert later == "changed ['0', '1', '2', 'all'] []"


def test_a_full_disk_is_an_error_and_leaves_no_temporary_files(host: Host) -> None:
    found, error, later = in_namespace(host, "-t", "tmpfs", "-o", "size=8k", "full")
    assert found == "changed failed True []"
    assert "No space left on device" in error
    assert later == "changed ['0', '1', '2', 'all'] []"


def test_a_spec_of_another_vendor_with_the_same_mounts_is_reported(host: Host, cycles: CycleRunner) -> None:
    before = host.spec.read_bytes()
    (mount, *_) = host.document()["containerEdits"]["mounts"]
    device = {"name": "0", "containerEdits": {"mounts": [mount | {"hostPath": "/opt/another"}]}}
    foreign = {"cdiVersion": "0.5.0", "kind": "example.com/accel", "devices": [device]}
    (host.specs / "example.json").write_text(json.dumps(foreign))
    found = [finding for finding in cycles.run_cycle().report.findings if finding.rule == "mounts-covered"]
    assert {finding.path for finding in found} == {KIND, "nvidia.com/other"}
    assert all(mount["containerPath"] in finding.message for finding in found)
    assert host.spec.read_bytes() == before
    (host.specs / "example.json").unlink()
    assert "mounts-covered" not in {finding.rule for finding in cycles.run_cycle().report.findings}
