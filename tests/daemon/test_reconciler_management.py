"""management.nvidia.com/gpu: the daemon writes it while no other program does."""

import json

import pytest
from support.daemon.cycles import Looker
from support.daemon.host import KIND, NAME, Host

MANAGEMENT = "management.nvidia.com/gpu"
OURS = "management.nvidia.com-gpu.json"
THEIRS = "management.nvidia.com-gpu.yaml"
pytestmark = pytest.mark.usefixtures("real_nodes")

DEVICE = {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
FOREIGN = json.dumps({"cdiVersion": "0.5.0", "kind": MANAGEMENT, "devices": [DEVICE]})


@pytest.fixture
def host(host: Host) -> Host:
    host.configure("nri: {management_namespaces: [gpu-operator]}\n")
    return host


def results(looker: Looker) -> dict[str, str]:
    report = looker.look(after_s=1).report
    assert report.error == ""
    return {spec.kind: spec.result for spec in report.specs}


@pytest.mark.parametrize("folder", ["run/cdi", "etc/cdi"])
def test_it_stands_back_while_anothers_spec_is_there(host: Host, folder: str) -> None:
    looker = Looker(host)
    assert results(looker) == {KIND: "written", MANAGEMENT: "written"}
    theirs = host.put(f"{folder}/{THEIRS}", FOREIGN)
    assert results(looker) == {KIND: "unchanged", MANAGEMENT: "withdrawn"}
    assert host.document(OURS) is None
    assert results(looker) == {KIND: "unchanged", MANAGEMENT: "absent"}
    theirs.unlink()
    assert results(looker) == {KIND: "unchanged", MANAGEMENT: "written"}
    assert theirs.exists() is False
    assert host.document(NAME) is not None


def test_the_status_says_whose_spec_serves_it(host: Host) -> None:
    host.put(f"run/cdi/{THEIRS}", FOREIGN)
    report = Looker(host).look().report
    (spec,) = (spec for spec in report.specs if spec.kind == MANAGEMENT)
    assert THEIRS in spec.reason
    assert [finding.rule for finding in report.findings if finding.rule.startswith("left")] == [
        "left-to-foreign"
    ]


def test_the_report_says_what_went_when_it_stood_back(host: Host, looker: Looker) -> None:
    host.put(f"run/cdi/{THEIRS}", FOREIGN)
    report = looker.look(after_s=1).report
    (spec,) = (spec for spec in report.specs if spec.kind == MANAGEMENT)
    assert spec.changes is not None
    assert (spec.changes.added, spec.changes.removed, spec.changes.kept) == ((), ("all",), ())


def test_it_is_withdrawn_with_the_driver(host: Host, looker: Looker) -> None:
    host.unload()
    assert results(looker) == {KIND: "withdrawn", MANAGEMENT: "withdrawn"}


def test_it_is_withdrawn_with_the_setting(host: Host, looker: Looker) -> None:
    host.configure()
    assert results(looker) == {KIND: "unchanged", MANAGEMENT: "withdrawn"}
