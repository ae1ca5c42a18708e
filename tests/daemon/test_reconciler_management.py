"""The daemon writes the spec of management.nvidia.com/gpu if no other program writes such a spec."""

import json

import pytest
from support.daemon.cycles import CycleRunner
from support.daemon.host import KIND, NAME, Host

MANAGEMENT = "management.nvidia.com/gpu"
OWN_FILE = "management.nvidia.com-gpu.json"
FOREIGN_FILE = "management.nvidia.com-gpu.yaml"
pytestmark = pytest.mark.usefixtures("real_nodes")

DEVICE = {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
FOREIGN = json.dumps({"cdiVersion": "0.5.0", "kind": MANAGEMENT, "devices": [DEVICE]})


@pytest.fixture
def host(host: Host) -> Host:
    host.configure("nri: {management_namespaces: [gpu-operator]}\n")
    return host


def results(cycles: CycleRunner) -> dict[str, str]:
    report = cycles.run_cycle(after_s=1).report
    assert report.error == ""
    return {spec.kind: spec.result for spec in report.specs}


@pytest.mark.parametrize("folder", ["run/cdi", "etc/cdi"])
def test_the_management_spec_is_not_written_while_a_foreign_spec_has_its_kind(
    host: Host, folder: str
) -> None:
    cycles = CycleRunner(host)
    assert results(cycles) == {KIND: "written", MANAGEMENT: "written"}
    foreign_spec = host.put(f"{folder}/{FOREIGN_FILE}", FOREIGN)
    assert results(cycles) == {KIND: "unchanged", MANAGEMENT: "withdrawn"}
    assert host.document(OWN_FILE) is None
    assert results(cycles) == {KIND: "unchanged", MANAGEMENT: "absent"}
    foreign_spec.unlink()
    assert results(cycles) == {KIND: "unchanged", MANAGEMENT: "written"}
    assert foreign_spec.exists() is False
    assert host.document(NAME) is not None


def test_the_status_names_the_foreign_spec(host: Host) -> None:
    host.put(f"run/cdi/{FOREIGN_FILE}", FOREIGN)
    report = CycleRunner(host).run_cycle().report
    (spec,) = (spec for spec in report.specs if spec.kind == MANAGEMENT)
    assert FOREIGN_FILE in spec.reason
    assert [finding.rule for finding in report.findings if finding.rule.startswith("foreign")] == [
        "foreign-spec-kept"
    ]


def test_the_report_has_the_removed_devices_when_a_foreign_spec_replaces_the_spec(
    host: Host, cycles: CycleRunner
) -> None:
    host.put(f"run/cdi/{FOREIGN_FILE}", FOREIGN)
    report = cycles.run_cycle(after_s=1).report
    (spec,) = (spec for spec in report.specs if spec.kind == MANAGEMENT)
    assert spec.changes is not None
    assert (spec.changes.added, spec.changes.removed, spec.changes.kept) == ((), ("all",), ())


def test_the_management_spec_is_withdrawn_if_the_driver_is_unloaded(host: Host, cycles: CycleRunner) -> None:
    host.unload()
    assert results(cycles) == {KIND: "withdrawn", MANAGEMENT: "withdrawn"}


def test_the_management_spec_is_withdrawn_if_the_setting_is_removed(host: Host, cycles: CycleRunner) -> None:
    host.configure()
    assert results(cycles) == {KIND: "unchanged", MANAGEMENT: "withdrawn"}
