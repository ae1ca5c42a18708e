"""MIG instances from the kernel's files, with the names from NVML if NVML can be queried."""

from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from support.hosts import driver_files
from support.hosts.mig import access_text, cap_node, cap_paths, minor_of, write_instance, write_minors
from support.hosts.nvidia import boot, places
from support.hosts.nvidia_kernel import Gpu, write
from support.nvml import standin

from cdigen.cdi.build import build
from cdigen.model.errors import HostError
from cdigen.model.inventory import Accelerator, Inventory
from cdigen.model.profile import DEFAULT, NAMINGS, Profile
from cdigen.value import replace
from cdigen.vendors.nvidia.vendor import VENDOR

pytestmark = pytest.mark.usefixtures("real_nodes")


def host(root: Path, *instances: tuple[int, int], gpus: int = 2, nodes: bool = True) -> tuple[Gpu, ...]:
    """Write a booted host with INSTANCES, pairs of a GPU's index and a GPU instance's id; return the GPUs."""
    driver_files.debian_13(root)
    booted = boot(root, gpus)
    write_minors(root, gpus)
    for gpu, gi in instances:
        write_instance(root, gpu, gi, nodes=nodes)
    return booted


def discover(root: Path, library: Path | None = None) -> Inventory:
    return VENDOR.discover(replace(places(root), nvml=str(library) if library else "off"))


def document(inventory: Inventory, profile: Profile = DEFAULT) -> dict[str, Any]:
    return build(VENDOR.edits(inventory, (profile,))[0])


def nodes_of(spec: dict[str, Any], name: str) -> set[str]:
    edits = next(device["containerEdits"] for device in spec["devices"] if device["name"] == name)
    return {node["path"] for node in edits["deviceNodes"]}


def names(spec: dict[str, Any]) -> list[str]:
    return [device["name"] for device in spec["devices"]]


def rules(inventory: Inventory) -> set[str]:
    return {finding.rule for finding in inventory.findings}


def nvml_machine(booted: tuple[Gpu, ...], *migs: tuple[standin.Instance | None, ...]) -> standin.Machine:
    """Return the machine for the NVML stand-in, with the GPUs BOOTED and the MIG instances of each GPU."""
    return standin.Machine(
        gpus=tuple(
            standin.Gpu(
                address=gpu.bdf, uuid=gpu.uuid, minor=gpu.minor, mig=mig is not None, instances=mig or ()
            )
            for gpu, mig in zip(booted, [*migs, *([None] * (len(booted) - len(migs)))], strict=True)
        )
    )


def instance(gi: int, number: int, profile: str = "1g.10gb") -> standin.Instance:
    return standin.Instance(
        gpu_instance=gi, compute_instance=0, uuid=standin.uuid(number, "MIG"), profile=profile
    )


def test_a_gpu_with_mig_instances_is_offered_only_as_its_instances(tmp_path: Path) -> None:
    host(tmp_path, (0, 7), (0, 8))
    spec = document(discover(tmp_path))
    assert names(spec)[:3] == ["0:gi7-ci0", "0:gi8-ci0", "1"]
    assert "0" not in names(spec)


def test_a_mig_instance_has_its_gpus_node_and_two_capability_nodes(tmp_path: Path) -> None:
    host(tmp_path, (0, 7), (0, 8))
    spec = document(discover(tmp_path))
    assert nodes_of(spec, "0:gi8-ci0") == {"/dev/nvidia0", *cap_paths(0, 8)}


def test_the_device_all_has_every_mig_instance_and_every_whole_gpu(tmp_path: Path) -> None:
    host(tmp_path, (0, 7), (0, 8))
    spec = document(discover(tmp_path))
    each = [nodes_of(spec, name) for name in names(spec) if name not in {"none", "all"}]
    assert nodes_of(spec, "all") == set().union(*each)


def test_a_whole_gpu_in_mig_mode_is_offered_if_the_profile_has_whole_gpus(tmp_path: Path) -> None:
    host(tmp_path, (0, 7))
    profile = Profile(name="whole", device_class="gpu", whole_gpus=True)
    assert "0" in names(document(discover(tmp_path), profile))


def test_without_nvml_instances_are_named_by_their_ids_and_have_no_uuid(tmp_path: Path) -> None:
    host(tmp_path, (0, 11), (0, 9))
    inventory = discover(tmp_path)
    assert [mig.instance for mig in inventory.accelerators[0].partitions] == ["gi9/ci0", "gi11/ci0"]
    assert names(document(inventory))[:2] == ["0:gi9-ci0", "0:gi11-ci0"]
    (finding,) = [finding for finding in inventory.findings if finding.rule == "mig-not-named"]
    assert finding.severity == "info"
    assert "NVML was not queried" in finding.message
    assert not any(name.startswith("MIG-") for name in names(document(inventory)))


def test_mig_instances_have_the_numbers_uuids_and_profiles_of_nvml(tmp_path: Path, folder: Path) -> None:
    booted = host(tmp_path, (0, 9), (0, 11))
    machine = nvml_machine(booted, (instance(11, 1, "3g.40gb"), None, instance(9, 2)))
    inventory = discover(tmp_path, standin.install(folder, machine))
    spec = document(inventory)
    assert nodes_of(spec, "0:0") == {"/dev/nvidia0", *cap_paths(0, 11)}
    assert (
        nodes_of(spec, "0:2") == nodes_of(spec, standin.uuid(2, "MIG")) == {"/dev/nvidia0", *cap_paths(0, 9)}
    )
    assert inventory.accelerators[0].partitions[0].profile == "3g.40gb"


def test_an_instance_with_graphics_engines_gets_the_graphics_nodes(tmp_path: Path, folder: Path) -> None:
    booted = host(tmp_path, (0, 9))
    machine = nvml_machine(booted, (instance(9, 1, "1g.24gb+gfx"),))
    spec = document(discover(tmp_path, standin.install(folder, machine)))
    assert {"/dev/dri/card1", "/dev/dri/renderD129"} <= nodes_of(spec, "0:0")


def test_a_gpu_in_mig_mode_without_instances_has_no_device_and_a_finding(
    tmp_path: Path, folder: Path
) -> None:
    booted = host(tmp_path)
    (tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig").mkdir(parents=True)
    inventory = discover(tmp_path, standin.install(folder, nvml_machine(booted, ())))
    assert "mig-empty" in rules(inventory)
    assert names(document(inventory)) == ["1", booted[1].uuid, "none", "all"]


def test_a_host_whose_only_gpu_has_no_mig_instances_is_an_error(tmp_path: Path, folder: Path) -> None:
    booted = host(tmp_path, gpus=1)
    (tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig").mkdir(parents=True)
    (tmp_path / "dev/nvidia-caps").mkdir(exist_ok=True)
    with pytest.raises(HostError, match="is in MIG mode and has no MIG instances") as caught:
        discover(tmp_path, standin.install(folder, nvml_machine(booted, ())))
    assert caught.value.kind == "no-mig-instances"


def test_the_kind_for_administration_exists_without_mig_instances(tmp_path: Path, folder: Path) -> None:
    booted = host(tmp_path, gpus=1)
    (tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig").mkdir(parents=True)
    library = standin.install(folder, nvml_machine(booted, ()))
    options = {"nvidia": {"management": True}}
    inventory = VENDOR.discover(replace(places(tmp_path), nvml=str(library), options=options))
    kinds = {draft.kind for draft in VENDOR.edits(inventory, (DEFAULT,)) if draft.devices}
    assert "management.nvidia.com/gpu" in kinds
    assert "nvidia.com/gpu" not in kinds


def test_a_mig_instance_without_a_node_is_left_out_and_other_instances_are_offered(tmp_path: Path) -> None:
    host(tmp_path, (0, 7), (0, 8))
    (tmp_path / cap_node(minor_of(0, 7, 0)).path.lstrip("/")).unlink()
    inventory = discover(tmp_path)
    assert [mig.usable for mig in inventory.accelerators[0].partitions] == [False, True]
    assert "0:gi7-ci0" not in names(document(inventory))
    assert "0:gi8-ci0" in names(document(inventory))
    assert "mig-instance-unusable" in rules(inventory)


def test_a_capability_node_with_another_minor_is_not_used(tmp_path: Path) -> None:
    host(tmp_path, (0, 7))
    path = tmp_path / cap_node(minor_of(0, 7, 0)).path.lstrip("/")
    path.unlink()
    path.symlink_to("nvidia-cap1")
    inventory = discover(tmp_path)
    assert inventory.accelerators[0].partitions[0].usable is False


def test_without_mig_minors_the_access_files_determine_the_nodes(tmp_path: Path) -> None:
    host(tmp_path, (0, 7))
    (tmp_path / "proc/driver/nvidia-caps/mig-minors").unlink()
    assert nodes_of(document(discover(tmp_path)), "0:gi7-ci0") == {"/dev/nvidia0", *cap_paths(0, 7)}


def test_without_access_files_mig_minors_determines_the_nodes(tmp_path: Path) -> None:
    host(tmp_path, (0, 7))
    folder = tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi7"
    (folder / "access").unlink()
    (folder / "ci0/access").unlink()
    assert nodes_of(document(discover(tmp_path)), "0:gi7-ci0") == {"/dev/nvidia0", *cap_paths(0, 7)}


def test_a_mig_instance_with_different_minors_in_two_kernel_files_is_left_out(tmp_path: Path) -> None:
    host(tmp_path, (0, 7), (0, 8))
    write(tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi7/access", access_text(5))
    inventory = discover(tmp_path)
    assert [mig.usable for mig in inventory.accelerators[0].partitions] == [False, True]


@pytest.mark.parametrize("text", ["", "\0\1", "config\n", "gpu0/gi7/access x\n", "gpu0/gi7/access -1\n"])
def test_invalid_lines_in_mig_minors_are_skipped(tmp_path: Path, text: str) -> None:
    host(tmp_path, (0, 7))
    write(tmp_path / "proc/driver/nvidia-caps/mig-minors", text)
    assert "0:gi7-ci0" in names(document(discover(tmp_path)))


def test_mig_instances_that_only_the_kernel_or_only_nvml_lists_are_left_out(
    tmp_path: Path, folder: Path
) -> None:
    booted = host(tmp_path, (0, 7), (0, 8))
    machine = nvml_machine(booted, (instance(8, 1), instance(9, 2)))
    inventory = discover(tmp_path, standin.install(folder, machine))
    assert [mig.instance for mig in inventory.accelerators[0].partitions] == ["gi8/ci0"]
    assert "mig-contradiction" in rules(inventory)


@pytest.mark.parametrize("fault", ["* error 9", "* crash", "* exit 0", "load crash"])
def test_a_failure_of_nvml_affects_only_the_names_of_mig_instances(
    tmp_path: Path, folder: Path, fault: str
) -> None:
    booted = host(tmp_path, (0, 7))
    machine = changed(nvml_machine(booted, (instance(7, 1),)), faults=(fault,))
    inventory = discover(tmp_path, standin.install(folder, machine))
    assert {"0:gi7-ci0", "1"} <= set(names(document(inventory)))
    assert "0:0" not in names(document(inventory))
    (failure,) = [finding for finding in inventory.findings if finding.rule.startswith("nvml-")]
    (finding,) = [finding for finding in inventory.findings if finding.rule == "mig-not-named"]
    assert finding.severity == "error"
    # The finding contains the failure, and does not report that NVML was not queried.
    assert failure.message in finding.message
    assert "not queried" not in finding.message


def test_nvml_is_not_queried_if_no_value_is_missing(tmp_path: Path, folder: Path) -> None:
    driver_files.debian_13(tmp_path)
    booted = boot(tmp_path, 2)
    machine = changed(nvml_machine(booted), faults=("load crash",))
    assert discover(tmp_path, standin.install(folder, machine)).findings == ()


def test_a_uuid_that_the_kernel_does_not_report_yet_is_read_from_nvml(tmp_path: Path, folder: Path) -> None:
    driver_files.debian_13(tmp_path)
    booted = boot(tmp_path, 1)
    path = tmp_path / f"proc/driver/nvidia/gpus/{booted[0].bdf}/information"
    path.write_text(path.read_text().replace(booted[0].uuid, "GPU-????????-????-????-????-????????????"))
    inventory = discover(tmp_path, standin.install(folder, nvml_machine(booted)))
    assert inventory.accelerators[0].uuid == booted[0].uuid


def test_missing_nodes_have_the_numbers_and_modes_of_the_kernel(tmp_path: Path) -> None:
    host(tmp_path, (0, 7), nodes=False)
    (tmp_path / "dev/nvidia1").unlink()
    missing = {node.path: node for node in VENDOR.missing_nodes(places(tmp_path))}
    assert {"/dev/nvidia1", cap_node(minor_of(0, 7)).path} <= missing.keys()
    assert (missing["/dev/nvidia1"].major, missing["/dev/nvidia1"].minor) == (195, 1)
    cap = missing[cap_node(minor_of(0, 7)).path]
    assert (cap.major, cap.minor, cap.mode) == (511, minor_of(0, 7), 0o444)


def test_nodes_are_not_created_if_the_module_forbids_it(tmp_path: Path) -> None:
    host(tmp_path, (0, 7), nodes=False)
    path = tmp_path / "proc/driver/nvidia/params"
    path.write_text(path.read_text().replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0"))
    assert VENDOR.missing_nodes(places(tmp_path)) == ()


def test_with_all_namings_no_two_devices_have_the_same_name(tmp_path: Path, folder: Path) -> None:
    booted = host(tmp_path, (0, 7), (0, 8), (1, 7), gpus=12)
    machine = nvml_machine(booted, (instance(7, 1), instance(8, 2)), (instance(7, 3),))
    inventory = discover(tmp_path, standin.install(folder, machine))
    spec = document(inventory, Profile(name="all", device_class="gpu", names=NAMINGS, whole_gpus=True))
    assert len(names(spec)) == len(set(names(spec)))
    assert {"0:1", "mig0:1", "gpu11", "minor11", booted[11].bdf, standin.uuid(3, "MIG")} <= set(names(spec))


def test_an_unusable_gpu_does_not_change_the_index_of_other_gpus(tmp_path: Path) -> None:
    host(tmp_path, gpus=3)
    (tmp_path / "dev/nvidia1").unlink()
    indices: list[Accelerator] = [gpu for gpu in discover(tmp_path).accelerators if gpu.usable]
    assert [gpu.index for gpu in indices] == [0, 2]
