"""The NPUs of AMD's CPUs have a separate CDI kind, on hosts with and without GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.host import Host, daemon
from support.hosts import amd_tree, discovery, intel_tree
from support.hosts.amd import discover, places, refusal, rules
from support.hosts.discovery import node_paths

from cdigen.model.profile import DEFAULT
from cdigen.value import replace
from cdigen.vendors.amd.vendor import VENDOR

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

    from cdigen.model.profile import Profile

pytestmark = pytest.mark.usefixtures("real_nodes")

KIND = "amd.com/npu"


def offered(root: Path, *profiles: Profile) -> dict[str, dict[str, list[str]]]:
    """Return the offered devices: kind -> device -> paths of its nodes."""
    made = discovery.documents(places(root).host, discover(root), *profiles)
    return {kind: node_paths(document) for kind, document in made.items()}


def test_an_npu_on_a_host_without_gpus_is_offered_by_index_and_address(tmp_path: Path) -> None:
    amd_tree.write_npu(tmp_path)
    node = ["/dev/accel/accel0"]
    assert offered(tmp_path) == {KIND: {"0": node, "0000:c5:00.1": node, "all": node}}
    inventory = discover(tmp_path)
    assert (inventory.driver.version, inventory.findings) == ("6.14.0-15-generic", ())
    assert inventory.accelerators[0].model == "Ryzen AI NPU (Strix, Krackan)"


def test_an_npu_on_a_host_with_a_gpu_has_a_separate_kind(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, (amd_tree.radeon(),))
    amd_tree.write_npu(tmp_path)
    found = offered(tmp_path)
    assert found.keys() == {"amd.com/gpu", KIND}
    assert found["amd.com/gpu"]["all"] == ["/dev/dri/card1", "/dev/dri/renderD128"]
    assert found[KIND]["0"] == ["/dev/accel/accel0"]


def test_an_unusable_gpu_does_not_affect_the_npu(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, amd_tree.mi210(1))
    amd_tree.write_npu(tmp_path)
    (tmp_path / "dev/kfd").unlink()
    assert offered(tmp_path).keys() == {KIND}
    assert ("error", "control-node-missing") in rules(discover(tmp_path))


def test_an_npu_without_its_node_is_an_error_and_the_node_can_be_created(tmp_path: Path) -> None:
    amd_tree.write_npu(tmp_path, nodes=False)
    error = refusal(tmp_path)
    assert (error.kind, "/dev/accel/accel0 does not exist" in error.message) == ("no-nodes", True)
    (missing,) = VENDOR.missing_nodes(places(tmp_path))
    assert (missing.path, missing.major, missing.minor, missing.gid) == (
        *("/dev/accel/accel0", 261, 0),
        amd_tree.RENDER_GID,
    )


def test_a_profile_of_the_class_npu_determines_the_names_of_npus(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, (amd_tree.radeon(),))
    amd_tree.write_npu(tmp_path)
    npus = replace(DEFAULT, name="npus", device_class="npu", names=("card",))
    found = offered(tmp_path, DEFAULT, npus)
    assert found[KIND].keys() == {"accel0", "all"}
    assert "0" in found["amd.com/gpu"]


def test_amdxdna_without_a_device_is_the_error_driver_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "sys/module/amdxdna").mkdir(parents=True)
    assert refusal(tmp_path).kind == "driver-not-loaded"


def test_npus_of_two_vendors_have_separate_kinds(cdigen: Run, tmp_path: Path) -> None:
    amd_tree.write_npu(tmp_path, number=1)
    intel_tree.lay(tmp_path, intel_tree.npu(0))
    done = cdigen("generate", "--root", tmp_path, "--write")
    assert (done.code, "amd.com/npu" in done.err, "intel.com/npu" in done.err) == (0, True, True)
    assert "claimed" not in done.err


def test_the_daemon_writes_a_spec_for_a_new_npu(tmp_path: Path) -> None:
    host = Host(tmp_path / "host").prepare()
    host.configure()
    intel_tree.lay(host.root, *intel_tree.laptop()[:1])
    with daemon(host) as running:
        running.rests()
        amd_tree.write_npu(host.root)
        running.sees(lambda: host.devices("amd.com-npu.json") == {"0", "0000:c5:00.1", "all"})
