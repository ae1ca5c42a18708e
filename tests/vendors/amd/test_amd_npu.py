"""The NPUs of AMD's CPUs have a separate CDI kind, on hosts with and without GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.host import Host, daemon
from support.hosts import amd_tree, discovery, intel_tree
from support.hosts.amd import discover, places, refusal, rules
from support.hosts.discovery import node_paths
from support.hosts.driver_files import link

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


@pytest.mark.parametrize(
    ("physical", "virtual", "types"),
    [
        (0x17F2, 0x17F3, (2, 1)),
        (0x17F2, 0x17F3, (None, None)),
        (0x1B0B, 0x1B0C, (None, None)),
        (0x1B1B, 0x1B1C, (2, 1)),
    ],
)
def test_a_physical_function_of_an_npu_is_not_offered_and_its_virtual_functions_are(
    tmp_path: Path, physical: int, virtual: int, types: tuple[int | None, int | None]
) -> None:
    folder = amd_tree.write_npu(tmp_path, bdf="0000:c5:00.0", device_id=physical, device_type=types[0])
    for number in (1, 2):
        link(folder / f"virtfn{number - 1}", f"../0000:c5:00.{number}")
        amd_tree.write_npu(
            tmp_path,
            number=number,
            bdf=f"0000:c5:00.{number}",
            device_id=virtual,
            device_type=types[1],
        )
    first, second = "/dev/accel/accel1", "/dev/accel/accel2"
    assert offered(tmp_path)[KIND] == {
        "0": [first],
        "0000:c5:00.1": [first],
        "1": [second],
        "0000:c5:00.2": [second],
        "all": [first, second],
    }
    (finding,) = discover(tmp_path).findings
    assert (finding.severity, finding.path, finding.hint) == ("info", "0000:c5:00.0", "")


def test_a_physical_function_alone_is_an_error_with_the_command_that_creates_virtual_functions(
    tmp_path: Path,
) -> None:
    amd_tree.write_npu(tmp_path, bdf="0000:c5:00.0", device_id=0x17F2, device_type=2)
    error = refusal(tmp_path)
    assert (error.kind, "physical function" in error.message) == ("no-usable-device", True)
    assert "'echo 1 > /sys/bus/pci/devices/0000:c5:00.0/sriov_numvfs'" in error.hint


def test_npus_on_the_auxiliary_bus_follow_the_npus_on_the_pci_bus(tmp_path: Path) -> None:
    amd_tree.write_auxiliary_npu(tmp_path, number=2)
    amd_tree.write_auxiliary_npu(tmp_path, number=10)
    nodes = {"0": ["/dev/accel/accel2"], "1": ["/dev/accel/accel10"]}
    assert offered(tmp_path) == {KIND: {**nodes, "all": ["/dev/accel/accel2", "/dev/accel/accel10"]}}
    assert [npu.model for npu in discover(tmp_path).accelerators] == ["AMD NPU", "AMD NPU"]
    amd_tree.write_npu(tmp_path)
    assert offered(tmp_path)[KIND]["0"] == ["/dev/accel/accel0"]
    assert offered(tmp_path)[KIND]["1"] == ["/dev/accel/accel2"]


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
