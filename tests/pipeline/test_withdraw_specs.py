"""Stale specs of cdigen, and their withdrawal."""

import json
from pathlib import Path

import pytest

from cdigen.host.root import Root
from cdigen.model.errors import HostError
from cdigen.pipeline import withdraw
from cdigen.pipeline.generate import GeneratedSpec
from cdigen.pipeline.publish import publish_spec
from cdigen.store.records.owned_specs import OwnedSpec
from cdigen.value import replace

GPU, IMEX = (
    OwnedSpec(path=f"/run/cdi/nvidia.com-{name}.json", kind=f"nvidia.com/{name}", digests=())
    for name in ("gpu", "imex-channel")
)
ABSENT = {"nvidia": HostError("the driver is not loaded")}


def stale(
    *recorded: OwnedSpec,
    failures: dict[str, HostError] | None = None,
    offered: tuple[str, ...] = (),
    wanted: tuple[str, ...] = (),
) -> list[tuple[str, str]]:
    found = withdraw.stale_specs(
        recorded, vendors=["nvidia"], failures=failures or {}, offered=offered, kinds=wanted
    )
    return [(spec.kind, spec.reason) for spec in found]


def test_a_kind_that_is_not_offered_is_stale() -> None:
    assert stale(GPU, IMEX, offered=("nvidia.com/gpu",)) == [
        ("nvidia.com/imex-channel", withdraw.NOT_OFFERED)
    ]


def test_all_kinds_of_an_absent_vendor_are_stale_with_its_failure_as_reason() -> None:
    assert stale(GPU, IMEX, failures=ABSENT) == [
        ("nvidia.com/gpu", "the driver is not loaded"),
        ("nvidia.com/imex-channel", "the driver is not loaded"),
    ]


def test_an_absent_vendor_without_recorded_specs_is_reported_with_its_gpu_kind() -> None:
    assert stale(failures=ABSENT) == [("nvidia.com/gpu", "the driver is not loaded")]


def test_kinds_that_are_not_requested_are_not_stale() -> None:
    assert stale(GPU, IMEX, failures=ABSENT, wanted=("nvidia.com/gpu",)) == [
        ("nvidia.com/gpu", "the driver is not loaded")
    ]


def test_specs_of_other_vendors_are_not_stale() -> None:
    other = OwnedSpec(path="/run/cdi/amd.com-gpu.json", kind="amd.com/gpu", digests=())
    assert stale(GPU, other) == [("nvidia.com/gpu", withdraw.NOT_OFFERED)]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Publish the spec of nvidia.com/gpu, and return its file."""
    mount = {"hostPath": "/usr/bin/tool", "containerPath": "/usr/bin/tool", "options": ["ro", "bind"]}
    document = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "0", "containerEdits": {"mounts": [mount]}}],
    }
    spec = GeneratedSpec(
        vendor="nvidia",
        kind="nvidia.com/gpu",
        driver="1",
        document=document,
        content=json.dumps(document).encode(),
        findings=(),
    )
    outcome = publish_spec(spec, (f"{tmp_path}/cdi",), f"{tmp_path}/state")
    assert (outcome.result, outcome.devices) == ("written", 1)
    return Path(outcome.file)


def test_a_spec_of_cdigen_is_removed_and_a_dry_run_reports_it(published: Path) -> None:
    spec = withdraw.StaleSpec(name=published.name, kind="nvidia.com/gpu", reason="it is gone")
    folder, state = str(published.parent), str(published.parents[1] / "state")
    assert withdraw.withdraw_spec(spec, folder, state, dry_run=True).result == "withdrawn"
    assert published.exists()
    assert withdraw.withdraw_spec(spec, folder, state).result == "withdrawn"
    assert not published.exists()
    assert withdraw.withdraw_spec(spec, folder, state).result == "absent"


def test_a_changed_spec_is_not_removed(published: Path) -> None:
    published.write_text("{}")
    spec = withdraw.StaleSpec(name=published.name, kind="nvidia.com/gpu", reason="it is gone")
    outcome = withdraw.withdraw_spec(spec, str(published.parent), str(published.parents[1] / "state"))
    assert outcome.result == "refused"
    assert outcome.error is not None
    assert "was changed since cdigen wrote it" in outcome.error.message
    assert published.exists()


def test_an_old_spec_is_broken_if_the_host_lacks_its_paths(published: Path, tmp_path: Path) -> None:
    folder = str(published.parent)
    spec = withdraw.StaleSpec(name=published.name, kind="nvidia.com/gpu", reason="it is gone")

    def rules() -> list[str]:
        found = withdraw.check_old_specs([spec], folder, Root(str(tmp_path)))
        return [finding.rule for finding in found]

    assert rules() == ["old-spec-broken"]
    tool = tmp_path / "usr/bin/tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!")
    assert rules() == ["old-spec-kept"]
    spec = replace(spec, is_recorded=False)
    assert rules() == []
