"""The namings of a profile apply to every vendor; a vendor that lacks them keeps its usual names."""

from pathlib import Path

import pytest
from support.command.fixtures import Done, Run
from support.hosts import amd_tree, intel_tree

pytestmark = pytest.mark.usefixtures("real_nodes")


def names(root: Path, cdigen: Run, kind: str) -> list[str]:
    return [row["name"] for row in cdigen("list", "--root", root, "--json").json if row["kind"] == kind]


def warnings(done: Done) -> list[str]:
    return [line for line in done.err.splitlines() if "naming-unavailable" in line]


@pytest.fixture
def mixed(host: Path) -> Path:
    """Return a host with devices of NVIDIA and Intel. Its profile names the devices by UUID."""
    intel_tree.lay(host, *intel_tree.laptop())
    config = host / "etc/cdigen/config.yaml"
    config.parent.mkdir(exist_ok=True)
    config.write_text("profiles: [{name: gpus, class: gpu, names: [uuid]}]\n")
    return host


def test_a_missing_naming_is_reported_with_the_available_namings(cdigen: Run, tmp_path: Path) -> None:
    amd_tree.write(tmp_path, amd_tree.mi210(1))
    done = cdigen("generate", "--root", tmp_path, "--naming", "minor")
    assert done.code == 0, done.err
    assert "0" in [device["name"] for device in done.json["devices"]]
    (line,) = warnings(done)
    assert "no device of amd.com/gpu has a name by minor" in line
    assert "available namings: index, uuid, pci, card" in line


def test_a_naming_of_one_vendor_does_not_remove_specs_of_another_vendor(cdigen: Run, mixed: Path) -> None:
    done = cdigen("generate", "--root", mixed, "--write")
    assert done.code == 0, done.err
    others = {name for name in names(mixed, cdigen, "nvidia.com/gpu") if not name.startswith("GPU-")}
    assert others == {"none", "all"}
    assert set(names(mixed, cdigen, "intel.com/gpu")) == {"0", "0000-00-02-0-0x64a0", "card0", "all"}
    assert [line.split()[5] for line in warnings(done)] == ["intel.com/gpu", "intel.com/npu"]


def test_specs_with_other_device_names_are_not_withdrawn(cdigen: Run, mixed: Path) -> None:
    for _ in range(2):
        assert cdigen("generate", "--root", mixed, "--write", "--withdraw").code == 0
    assert "0" in names(mixed, cdigen, "intel.com/npu")


def test_a_missing_naming_beside_an_available_one_is_not_reported(cdigen: Run, host: Path) -> None:
    # The DRM cards 1 and 2 belong to NVIDIA's two GPUs.
    intel_tree.lay(host, intel_tree.gpu(3, "0000:18:00.0", intel_tree.B60, "xe", pci_class=intel_tree.VGA))
    done = cdigen("generate", "--root", host, "--naming", "uuid", "--naming", "index", "--write")
    assert (done.code, warnings(done)) == (0, [])
    assert set(names(host, cdigen, "intel.com/gpu")) == {"0", "all"}


def test_an_available_naming_has_no_finding(cdigen: Run, host: Path) -> None:
    for naming in ("index", "uuid", "type-index", "pci", "minor"):
        done = cdigen("generate", "--root", host, "--naming", naming)
        assert (done.code, warnings(done)) == (0, [])


@pytest.mark.parametrize("device_class", ["npu", "gaudi", "gpu-mei"])
def test_a_profile_of_another_class_generates_no_spec_for_gpus(
    cdigen: Run, host: Path, device_class: str
) -> None:
    amd_tree.write(host, (amd_tree.AmdGpu(bdf="0000:65:00.0", render=140, card=12),))
    intel_tree.lay(host, intel_tree.gpu(3, "0000:18:00.0", intel_tree.B60, "xe", pci_class=intel_tree.VGA))
    config = host / "etc/cdigen/config.yaml"
    config.parent.mkdir()
    profiles = f"[{{name: gpus, class: gpu}}, {{name: others, class: {device_class}, names: [index]}}]"
    config.write_text(f"profiles: {profiles}\n")
    done = cdigen("generate", "--root", host, "--write")
    assert (done.code, warnings(done)) == (0, [])
    files = {path.name for path in (host / "run/cdi").iterdir()}
    assert files == {"nvidia.com-gpu.json", "amd.com-gpu.json", "intel.com-gpu.json"}
