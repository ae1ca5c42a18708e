"""With `nri: {restrict_driver_files: true}`, the daemon also writes the specs of the capability kinds."""

import os

import pytest
from support.daemon.cycles import CycleRunner
from support.daemon.host import Host, daemon

pytestmark = pytest.mark.usefixtures("real_nodes")

WHOLE = "nvidia.com-gpu.json"
ALL = ["nvidia.com-gpu-compute.json", "nvidia.com-gpu-graphics.json", WHOLE]


@pytest.fixture
def host(host: Host) -> Host:
    host.configure("nri: {restrict_driver_files: true}\n")
    return host


def test_capability_specs_are_written_with_the_complete_spec_and_stay_unchanged(host: Host) -> None:
    cycles = CycleRunner(host)
    assert [spec.result for spec in cycles.run_cycle().report.specs] == ["written"] * 3
    assert sorted(os.listdir(host.specs)) == ALL
    report = cycles.run_cycle().report
    assert (report.result, {spec.result for spec in report.specs}) == ("unchanged", {"unchanged"})


def test_capability_specs_are_withdrawn_if_the_key_is_removed(host: Host, cycles: CycleRunner) -> None:
    before = host.spec.stat()
    host.configure()
    report = cycles.run_cycle().report
    assert {spec.kind: spec.result for spec in report.specs} == {
        "nvidia.com/gpu": "unchanged",
        "nvidia.com/gpu-compute": "withdrawn",
        "nvidia.com/gpu-graphics": "withdrawn",
    }
    assert os.listdir(host.specs) == [WHOLE]
    after = host.spec.stat()
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


def test_capability_specs_are_withdrawn_if_the_driver_is_removed(host: Host, cycles: CycleRunner) -> None:
    host.uninstall()
    host.unload()
    cycles.run_cycle()
    assert os.listdir(host.specs) == []


@pytest.mark.process
def test_a_running_daemon_applies_a_change_of_restrict_driver_files(host: Host) -> None:
    with daemon(host) as running:
        running.sees(lambda: sorted(os.listdir(host.specs)) == ALL)
        host.configure()
        running.sees(lambda: os.listdir(host.specs) == [WHOLE])
        host.configure("nri: {restrict_driver_files: true}\n")
        running.sees(lambda: sorted(os.listdir(host.specs)) == ALL)
