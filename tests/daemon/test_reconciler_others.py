"""Cycles where somebody else, or the disk, is in the way of a spec."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from support.daemon.cycles import Looker
from support.daemon.host import KIND, NAME, TWO_KINDS, Host
from support.daemon.watching import OWN_MOUNTS, run_apart

if TYPE_CHECKING:
    from cdigen.daemon.report import CycleReport

pytestmark = pytest.mark.usefixtures("real_nodes")
OTHER = "nvidia.com-other.json"


@pytest.fixture
def host(host: Host) -> Host:
    host.configure(TWO_KINDS)
    return host


@pytest.fixture
def looker(host: Host) -> Looker:
    """Return the cycles of a daemon that has written both specs."""
    looker = Looker(host)
    assert looker.look().report.result == "changed"
    assert sorted(os.listdir(host.specs)) == [NAME, OTHER]
    return looker


def results(report: CycleReport) -> dict[str, str]:
    return {spec.kind: spec.result for spec in report.specs}


def test_a_spec_that_somebody_removed_is_written_again(host: Host, looker: Looker) -> None:
    before = host.spec.read_bytes()
    host.spec.unlink()
    report = looker.look().report
    assert results(report) == {KIND: "written", "nvidia.com/other": "unchanged"}
    assert host.spec.read_bytes() == before


def test_a_spec_that_somebody_edited_is_his_and_the_reason_is_said(host: Host, looker: Looker) -> None:
    edited = host.document() | {"annotations": {"by": "hand"}}
    host.spec.write_text(json.dumps(edited))
    cycle = looker.look()
    assert results(cycle.report) == {KIND: "refused", "nvidia.com/other": "unchanged"}
    assert "not known as ours" in cycle.report.error
    assert cycle.report.result == "failed"
    assert host.document() == edited


def test_others_are_served_while_one_spec_is_somebodys(host: Host, looker: Looker) -> None:
    host.spec.write_text(json.dumps(host.document() | {"annotations": {"by": "hand"}}))
    host.load(gpus=3)
    assert results(looker.look().report) == {KIND: "refused", "nvidia.com/other": "written"}
    assert host.devices(OTHER) == {"0", "1", "2", "all"}
    assert host.devices() == {"0", "1", "all"}


def test_an_edited_spec_that_is_taken_away_is_written_again(host: Host, looker: Looker) -> None:
    host.spec.write_text("{}")
    assert looker.look().report.result == "failed"
    host.spec.unlink()
    report = looker.look().report
    assert (report.result, report.error) == ("changed", "")


def test_an_edited_spec_is_not_withdrawn(host: Host, looker: Looker) -> None:
    edited = host.document() | {"annotations": {"by": "hand"}}
    host.spec.write_text(json.dumps(edited))
    host.uninstall()
    host.unload()
    report = looker.look().report
    assert results(report) == {"nvidia.com/gpu": "refused", "nvidia.com/other": "withdrawn"}
    assert "is not as cdigen wrote it, so it stays, although" in report.error
    assert host.document() == edited


def test_a_daemon_that_serves_one_kind_leaves_the_others_alone(host: Host, looker: Looker) -> None:
    assert looker
    only = Looker(host, "--kind", "nvidia.com/gpu")
    assert results(only.look().report) == {"nvidia.com/gpu": "unchanged"}
    host.unload()
    assert results(only.look().report) == {"nvidia.com/gpu": "withdrawn"}
    assert host.document(OTHER) is not None


def test_a_fifo_in_the_place_of_a_spec_stops_nothing(host: Host, looker: Looker) -> None:
    host.spec.unlink()
    os.mkfifo(host.spec)
    report = looker.look().report
    assert results(report) == {"nvidia.com/gpu": "refused", "nvidia.com/other": "unchanged"}


def test_a_spec_directory_that_was_removed_is_made_again(host: Host, looker: Looker) -> None:
    shutil.rmtree(host.specs)
    assert set(results(looker.look().report).values()) == {"written"}
    assert sorted(os.listdir(host.specs)) == [NAME, OTHER]


def test_a_spec_directory_that_became_a_link_is_refused_and_nothing_goes_through_it(
    host: Host, looker: Looker
) -> None:
    elsewhere = host.root / "elsewhere"
    host.specs.rename(elsewhere)
    host.specs.symlink_to(elsewhere)
    before = {name: (elsewhere / name).stat().st_ino for name in os.listdir(elsewhere)}
    host.load(gpus=3)
    cycle = looker.look()
    assert cycle.report.result == "failed"
    assert "is a symlink" in cycle.report.error
    assert cycle.needs_retry
    assert {name: (elsewhere / name).stat().st_ino for name in os.listdir(elsewhere)} == before
    host.specs.unlink()
    assert set(results(looker.look().report).values()) == {"written"}


def test_a_withdrawal_that_would_unmask_anothers_spec_is_an_error_that_names_it(
    host: Host, looker: Looker
) -> None:
    foreign = host.put("etc/cdi/somebody.json", json.dumps(host.document()))
    host.uninstall()
    host.unload()
    before = host.spec.read_bytes()
    cycle = looker.look()
    assert results(cycle.report) == {KIND: "kept", "nvidia.com/other": "withdrawn"}
    (finding,) = [one for one in cycle.report.findings if one.rule == "withdrawal-unmasks"]
    assert (finding.severity, finding.path) == ("error", str(host.spec))
    assert str(foreign) in finding.message
    assert str(foreign) in cycle.report.error
    assert host.spec.read_bytes() == before
    foreign.unlink()
    assert results(looker.look().report) == {KIND: "withdrawn"}
    assert os.listdir(host.specs) == []


def test_a_foreign_spec_below_ours_costs_nothing_while_the_driver_is_there(
    host: Host, looker: Looker
) -> None:
    host.put("etc/cdi/somebody.json", json.dumps(host.document()))
    report = looker.look().report
    assert (report.result, set(results(report).values())) == ("unchanged", {"unchanged"})


def test_a_foreign_spec_with_our_devices_beside_ours_is_refused_and_others_are_served(
    host: Host, looker: Looker
) -> None:
    (host.specs / "somebody.json").write_text(json.dumps(host.document()))
    report = looker.look().report
    assert results(report) == {KIND: "refused", "nvidia.com/other": "unchanged"}
    assert "somebody.json" in report.error


def test_a_kind_that_is_not_configured_any_more_is_withdrawn(host: Host, looker: Looker) -> None:
    host.configure()
    assert results(looker.look().report) == {KIND: "unchanged", "nvidia.com/other": "withdrawn"}
    assert os.listdir(host.specs) == [NAME]


def test_a_kind_that_is_not_configured_any_more_stays_where_the_configuration_says_keep(
    host: Host, looker: Looker
) -> None:
    host.configure(stale_specs="keep")
    assert results(looker.look().report)["nvidia.com/other"] == "kept"
    assert sorted(os.listdir(host.specs)) == [NAME, OTHER]


IN_NAMESPACE = """
import sys
from pathlib import Path
from support.daemon.cycles import Looker
from support.daemon.host import Host
import subprocess

root, options = Path(sys.argv[1]), sys.argv[2:]
host = Host(root)
looker = Looker(host)
first = looker.look().report
subprocess.run(["mount", *options, str(host.specs)], check=True)
host.load(gpus=3)
failed = looker.look()
print(first.result, failed.report.result, failed.needs_retry, host.rubbish())
print(failed.report.error)
subprocess.run(["umount", str(host.specs)], check=True)
print(looker.look().report.result, sorted(host.devices()), host.rubbish())
"""


def in_namespace(host: Host, *options: str) -> list[str]:
    """Let cycles meet something mounted over the spec directory, by mount(8) with OPTIONS."""
    return run_apart(IN_NAMESPACE, str(host.root), *options, start=OWN_MOUNTS)


def test_a_read_only_spec_directory_is_an_error_and_mended_by_the_next_look(host: Host) -> None:
    said, error, later = in_namespace(host, "--bind", "--options", "ro", str(host.specs))
    assert said == "changed failed True []"
    assert "Read-only file system" in error
    assert later == "changed ['0', '1', '2', 'all'] []"


def test_a_full_disk_is_an_error_and_leaves_no_rubbish(host: Host) -> None:
    said, error, later = in_namespace(host, "-t", "tmpfs", "-o", "size=8k", "full")
    assert said == "changed failed True []"
    assert "No space left on device" in error
    assert later == "changed ['0', '1', '2', 'all'] []"


def test_another_makers_spec_that_covers_ours_is_said_and_ours_stays(host: Host, looker: Looker) -> None:
    before = host.spec.read_bytes()
    (mount, *_) = host.document()["containerEdits"]["mounts"]
    device = {"name": "0", "containerEdits": {"mounts": [mount | {"hostPath": "/opt/another"}]}}
    foreign = {"cdiVersion": "0.5.0", "kind": "example.com/accel", "devices": [device]}
    (host.specs / "example.json").write_text(json.dumps(foreign))
    said = [finding for finding in looker.look().report.findings if finding.rule == "mounts-covered"]
    assert {finding.path for finding in said} == {KIND, "nvidia.com/other"}
    assert all(mount["containerPath"] in finding.message for finding in said)
    assert host.spec.read_bytes() == before
    (host.specs / "example.json").unlink()
    assert "mounts-covered" not in {finding.rule for finding in looker.look().report.findings}
