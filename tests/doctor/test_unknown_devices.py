"""The doctor's text for an unknown device: the component of its kind, or the nearest name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cdigen.doctor.near_misses import nearest
from cdigen.vendors.component_kinds import COMPONENT_KINDS, component_of

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

UUID = "GPU-3c7f6a52-1b1e-4c3a-9f6e-0d2b8f3a7c11"
KNOWN = (
    "nvidia.com/gpu=0",
    "nvidia.com/gpu=1:2",
    "nvidia.com/gpu=10",
    "nvidia.com/gpu=all",
    f"nvidia.com/gpu={UUID}",
    "nvidia.com/imex-channel=0",
)


def detail(cdigen: Run, root: Path, device: str) -> str:
    """Return the doctor's detail for DEVICE on a host with a spec of ``KNOWN``."""
    names = [name.partition("=")[2] for name in KNOWN if name.startswith("nvidia.com/gpu=")]
    edits = {"deviceNodes": [{"path": "/dev/nvidia0"}]}
    document: dict[str, Any] = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": name, "containerEdits": edits} for name in names],
    }
    folder = root / "var/run/cdi"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text(json.dumps(document))
    rows = cdigen("doctor", "--json", "--device", device, "--root", root).json
    (found,) = (str(row["detail"]) for row in rows if row["check"] == "device-unknown")
    return found


@pytest.mark.parametrize(
    ("device", "component"),
    [
        ("management.nvidia.com/gpu=all", "NVIDIA's GPU operator defines this kind"),
        ("k8s.gpu.nvidia.com/claim=0b1c-gpu-0", "NVIDIA's DRA driver defines this kind"),
        ("k8s.device-plugin.nvidia.com/gpu=GPU-1", "NVIDIA's device plugin defines this kind"),
        ("k8s.compute-domain.nvidia.com/channel=x", "for each ComputeDomain"),
        ("runtime.nvidia.com/gpu=0", "nvidia-container-runtime"),
        ("nvidia.com/pgpu=vfio0", "NVIDIA's sandbox device plugin"),
        ("nvidia.com/mig=0:1", "request nvidia.com/gpu=GPU:INSTANCE"),
        ("nvidia.com/mig-1g.5gb=0", "no CDI kind"),
        ("k8s.gpu.amd.com/gpu=common", "AMD's DRA driver"),
    ],
)
def test_the_component_of_a_kind_is_named(cdigen: Run, tmp_path: Path, device: str, component: str) -> None:
    text = detail(cdigen, tmp_path, device)
    assert component in text
    assert "nearest name" not in text


def test_every_component_kind_matches_only_its_own_row() -> None:
    for row in COMPONENT_KINDS:
        assert component_of(row.kind.replace("*", "x")) is row
    for kind in ("nvidia.com/gpu", "nvidia.com/migx", "amd.com/gpu", "example.com/pgpu"):
        assert component_of(kind) is None


def test_the_nearest_name_is_in_the_detail(cdigen: Run, tmp_path: Path) -> None:
    text = detail(cdigen, tmp_path, "nvidia.com/gpu=gpu0")
    assert text.endswith("; the nearest name is nvidia.com/gpu=0")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("nvidia.com/gpu=gpu0", "nvidia.com/gpu=0"),
        ("nvidia.com/gpu=GPU-0", "nvidia.com/gpu=0"),
        ("nvidia.com/gpu=00", "nvidia.com/gpu=0"),
        ("nvidia.com/gpu=1.2", "nvidia.com/gpu=1:2"),
        ("nvidia.com/gpu=1-2", "nvidia.com/gpu=1:2"),
        ("nvidia.com/gpu=ALL", "nvidia.com/gpu=all"),
        (f"nvidia.com/gpu={UUID.lower()}", f"nvidia.com/gpu={UUID}"),
        (f"nvidia.com/gpu={UUID[:-1]}2", f"nvidia.com/gpu={UUID}"),
        ("nvidia/gpu=0", "nvidia.com/gpu=0"),
        ("nvidia.com/gpus=all", "nvidia.com/gpu=all"),
        ("nvida.com/gpu=0", "nvidia.com/gpu=0"),
        ("NVIDIA.com/gpu=0", "nvidia.com/gpu=0"),
        ("nvidia.com/imex-channels=0", "nvidia.com/imex-channel=0"),
        # These names are not misspelled. The host has no such device.
        ("nvidia.com/gpu=1", ""),
        ("nvidia.com/gpu=8", ""),
        ("nvidia.com/gpu=12", ""),
        ("nvidia.com/gpu=0:0", ""),
        ("amd.com/gpu=0", ""),
        ("intel.com/gpu=0", ""),
        ("nvidia.com/npu=0", ""),
        ("example.com/gpu=0", ""),
    ],
)
def test_a_near_miss_is_a_misspelled_name(name: str, near: str) -> None:
    assert nearest(name, KNOWN) == near
