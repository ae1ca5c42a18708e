"""MIG instances if the kernel's files and NVML disagree, or if one of these sources fails.

A GPU with instances is never offered as a whole GPU. A node belongs to only one instance.
"""

from pathlib import Path
from typing import Any

import pytest
from support.hosts import driver_files
from support.hosts.mig import access_text, cap_node, minor_of, write_instance, write_minors
from support.hosts.nvidia import boot, places
from support.hosts.nvidia_kernel import Gpu, Node, make_node, write
from support.nvml import standin

from cdigen.cdi.build import build
from cdigen.host.root import Root
from cdigen.model.findings import Finding
from cdigen.model.inventory import Accelerator
from cdigen.model.profile import DEFAULT
from cdigen.model.saved import GpuPartitionNames, PartitionName
from cdigen.value import replace
from cdigen.vendors.nvidia.devices import caps
from cdigen.vendors.nvidia.devices.gpus import NvidiaGpuReader
from cdigen.vendors.nvidia.devices.nodes import NvidiaNodeReader
from cdigen.vendors.nvidia.nvml import not_queried, reply_of
from cdigen.vendors.nvidia.nvml.document import NvmlError, NvmlGpu, NvmlMig, NvmlReport
from cdigen.vendors.nvidia.vendor import VENDOR

pytestmark = pytest.mark.usefixtures("real_nodes")

Gpus = tuple[Gpu, ...]
CAPABILITIES = "proc/driver/nvidia/capabilities"
MINORS = "proc/driver/nvidia-caps/mig-minors"
LOST = NvmlError(call="nvmlDeviceGetUUID", name="NVML_ERROR_UNKNOWN", code=999)


@pytest.fixture
def host(tmp_path: Path) -> Gpus:
    """Write a booted host with two GPUs. The first GPU has the MIG instances gi7/ci0 and gi8/ci0."""
    gpus = boot(tmp_path, 2)
    write_minors(tmp_path, 2)
    for gi in (7, 8):
        write_instance(tmp_path, 0, gi)
    return gpus


def mig(index: int, gi: int, *, ci: int = 0, uuid: str = "") -> NvmlMig:
    return NvmlMig(
        index=index,
        uuid=uuid or standin.uuid(10 * gi + index, "MIG"),
        gpu_instance=gi,
        compute_instance=ci,
        profile="1g.10gb",
        graphics=False,
    )


def gpu_reply(gpu: Gpu, *migs: NvmlMig, mode: bool | None = True, error: NvmlError | None = None) -> NvmlGpu:
    """Return NVML's entry for GPU."""
    return NvmlGpu(index=gpu.minor, address=gpu.bdf, uuid=gpu.uuid, mig_mode=mode, migs=migs, error=error)


def read(
    root: Path, *answers: NvmlGpu, memory: tuple[GpuPartitionNames, ...] = ()
) -> tuple[tuple[Accelerator, ...], tuple[Finding, ...]]:
    """Return the GPUs and findings for NVML's entries ANSWERS (or no query) and the stored names MEMORY."""
    report = NvmlReport(gpus=answers)
    reply = reply_of(report, "") if answers else not_queried()
    reader = NvidiaGpuReader(places(root), NvidiaNodeReader(places(root)), lambda: reply, lambda: memory)
    return reader.read(), reader.findings


def stored_names(gpu: Gpu, *migs: NvmlMig) -> GpuPartitionNames:
    """Return the stored names of GPU after NVML has reported MIGS."""
    return GpuPartitionNames(
        vendor="nvidia",
        driver=driver_files.V550,
        address=gpu.bdf,
        minor=gpu.minor,
        uuid=gpu.uuid,
        partitions=tuple(
            PartitionName(
                instance=f"gi{each.gpu_instance}/ci{each.compute_instance}",
                index=each.index,
                uuid=each.uuid,
                profile=each.profile,
                graphics=each.graphics,
            )
            for each in migs
        ),
    )


def served(gpu: Accelerator) -> list[str]:
    return [f"{each.label} {each.instance}" for each in gpu.partitions if each.usable]


def rules(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.rule for finding in findings]


def test_a_gpu_with_mig_instances_is_not_whole_if_nvml_reports_that_mig_is_off(
    tmp_path: Path, host: Gpus
) -> None:
    gpus, findings = read(tmp_path, gpu_reply(host[0], mode=False))
    assert (gpus[0].partitioned, gpus[0].partitions) == (True, ())
    assert gpus[1].partitioned is False
    assert sorted(rules(findings)) == ["mig-contradiction", "mig-empty"]


def test_a_gpu_with_a_gpu_instance_without_compute_instances_is_not_whole(tmp_path: Path) -> None:
    boot(tmp_path, 1)
    write(tmp_path / CAPABILITIES / "gpu0/mig/gi7/access", access_text(minor_of(0, 7)))
    ((gpu,), findings) = read(tmp_path)
    assert gpu.partitioned
    assert rules(findings) == ["mig-empty"]
    assert "has GPU instances, but no usable MIG instance" in findings[0].message


def test_a_gpu_whose_mig_mode_only_nvml_reports_is_not_whole(tmp_path: Path, host: Gpus) -> None:
    gpus, findings = read(tmp_path, gpu_reply(host[0], mig(0, 7), mig(1, 8)), gpu_reply(host[1]))
    assert [gpu.partitioned for gpu in gpus] == [True, True]
    assert sorted(rules(findings)) == ["mig-contradiction", "mig-empty"]


def test_a_gpu_that_supports_mig_and_has_no_instances_is_whole(tmp_path: Path) -> None:
    boot(tmp_path, 1)
    (tmp_path / CAPABILITIES / "gpu0/mig").mkdir(parents=True)
    ((gpu,), findings) = read(tmp_path)
    assert (gpu.partitioned, findings) == (False, ())


def test_a_gpu_without_a_usable_instance_has_the_reason(tmp_path: Path, host: Gpus) -> None:
    for gi in (7, 8):
        (tmp_path / cap_node(minor_of(0, gi)).path.lstrip("/")).unlink()
    gpus, findings = read(tmp_path, gpu_reply(host[0], mig(0, 7), mig(1, 8)))
    assert gpus[0].partitioned
    (empty,) = [finding for finding in findings if finding.rule == "mig-empty"]
    assert f"{cap_node(minor_of(0, 7)).path} does not exist" in empty.message


def test_a_mig_instance_for_which_nvml_fails_does_not_affect_other_instances(
    tmp_path: Path, host: Gpus
) -> None:
    gpus, findings = read(tmp_path, gpu_reply(host[0], mig(1, 8), error=LOST))
    assert served(gpus[0]) == ["1 gi8/ci0", "gi7-ci0 gi7/ci0"]
    assert gpus[0].partitions[0].uuid
    assert rules(findings) == ["mig-not-named"]
    assert "nvmlDeviceGetUUID returned NVML_ERROR_UNKNOWN (999)" in findings[0].message
    assert "named by their ids: gi7/ci0" in findings[0].message


def test_partial_names_of_nvml_take_precedence_over_stored_names(tmp_path: Path, host: Gpus) -> None:
    before = stored_names(host[0], mig(0, 7), mig(1, 8))
    same = gpu_reply(host[0], mig(1, 8), error=LOST)
    gpus, findings = read(tmp_path, same, memory=(before,))
    assert served(gpus[0]) == ["0 gi7/ci0", "1 gi8/ci0"]
    assert rules(findings) == ["mig-names-kept"]
    # NVML has new numbers for the instances. Number 0 is a different instance.
    other = gpu_reply(host[0], mig(0, 8), error=LOST)
    gpus, findings = read(tmp_path, other, memory=(before,))
    assert served(gpus[0]) == ["0 gi8/ci0", "gi7-ci0 gi7/ci0"]
    assert rules(findings) == ["mig-not-named"]


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"uuid": None}, True),
        ({"uuid": standin.uuid(77)}, False),
        ({"minor": 1}, False),
        ({"address": "0000:99:00.0"}, False),
    ],
)
def test_stored_names_are_used_only_for_the_same_gpu(
    tmp_path: Path, host: Gpus, changes: dict[str, Any], *, holds: bool
) -> None:
    before = replace(stored_names(host[0], mig(0, 7), mig(1, 8)), **changes)
    gpus, _ = read(tmp_path, memory=(before,))
    named = ["0 gi7/ci0", "1 gi8/ci0"] if holds else ["gi7-ci0 gi7/ci0", "gi8-ci0 gi8/ci0"]
    assert served(gpus[0]) == named


def test_a_stored_uuid_that_nvml_reports_for_another_instance_is_not_used(tmp_path: Path, host: Gpus) -> None:
    write_instance(tmp_path, 1, 7)
    before = stored_names(host[1], mig(0, 7))
    gpus, _ = read(
        tmp_path, gpu_reply(host[0], mig(0, 7), mig(1, 8)), gpu_reply(host[1], error=LOST), memory=(before,)
    )
    assert [served(gpu) for gpu in gpus] == [["0 gi7/ci0", "1 gi8/ci0"], ["gi7-ci0 gi7/ci0"]]
    # The stored names of two GPUs must also not have the same UUID.
    gpus, _ = read(tmp_path, memory=(stored_names(host[0], mig(0, 7), mig(1, 8)), before))
    assert [served(gpu) for gpu in gpus] == [["0 gi7/ci0", "1 gi8/ci0"], ["gi7-ci0 gi7/ci0"]]


@pytest.mark.parametrize(
    "changes",
    [{"error": LOST}, {"error": LOST, "mig_mode": None}, {"mig_mode": None}, {"address": None}],
    ids=["an error", "an error and no mode", "no mode", "no address"],
)
def test_instances_that_nvml_does_not_report_are_named_by_their_ids(
    tmp_path: Path, host: Gpus, changes: dict[str, Any]
) -> None:
    gpus, findings = read(tmp_path, replace(gpu_reply(host[0]), **changes))
    assert served(gpus[0]) == ["gi7-ci0 gi7/ci0", "gi8-ci0 gi8/ci0"]
    assert rules(findings) == ["mig-not-named"]
    assert findings[0].severity == "error"


@pytest.mark.parametrize(
    "second", [mig(1, 7), mig(1, 8, uuid=mig(0, 7).uuid)], ids=["the same ids", "the same UUID"]
)
def test_a_mig_instance_that_nvml_lists_twice_is_one_device(
    tmp_path: Path, host: Gpus, second: NvmlMig
) -> None:
    gpus, findings = read(tmp_path, gpu_reply(host[0], mig(0, 7), second))
    assert served(gpus[0]) == ["0 gi7/ci0"]
    assert set(rules(findings)) == {"mig-contradiction"}


def test_a_uuid_belongs_to_only_one_mig_instance_of_all_gpus(tmp_path: Path, host: Gpus) -> None:
    write_instance(tmp_path, 1, 7)
    gpus, findings = read(tmp_path, gpu_reply(host[0], mig(0, 7), mig(1, 8)), gpu_reply(host[1], mig(0, 7)))
    assert [served(gpu) for gpu in gpus] == [["0 gi7/ci0", "1 gi8/ci0"], []]
    assert "mig-contradiction" in rules(findings)


@pytest.mark.parametrize("uuid", ["0", "all", "1:0", standin.uuid(1), "MIG-GPU-1/7/0"])
def test_an_invalid_uuid_of_a_mig_instance_is_not_a_name(tmp_path: Path, host: Gpus, uuid: str) -> None:
    gpus, _ = read(tmp_path, gpu_reply(host[0], mig(0, 7, uuid=uuid), mig(1, 8)))
    assert [bool(each.uuid) for each in gpus[0].partitions] == [False, True]


def test_the_second_mig_instance_with_the_same_capability_minor_is_unusable(
    tmp_path: Path, host: Gpus
) -> None:
    (tmp_path / MINORS).unlink()
    write(tmp_path / CAPABILITIES / "gpu0/mig/gi8/access", access_text(minor_of(0, 7)))
    gpus, findings = read(tmp_path, gpu_reply(host[0], mig(0, 7), mig(1, 8)))
    assert served(gpus[0]) == ["0 gi7/ci0"]
    assert rules(findings) == ["mig-instance-unusable"]
    assert f"the minor {minor_of(0, 7)} of gi8 is also the minor of gpu0/gi7" in findings[0].message


def test_no_mig_instance_has_the_capability_for_the_administration_of_mig(tmp_path: Path, host: Gpus) -> None:
    write(tmp_path / MINORS, "config 1\nmonitor 2\n")
    write(tmp_path / CAPABILITIES / "gpu0/mig/gi8/access", access_text(1))
    make_node(tmp_path, cap_node(1))
    gpus, _ = read(tmp_path, gpu_reply(host[0], mig(0, 7), mig(1, 8)))
    assert served(gpus[0]) == ["0 gi7/ci0"]


def test_a_capability_node_with_another_major_is_not_used(tmp_path: Path, host: Gpus) -> None:
    minor = minor_of(0, 8)
    make_node(tmp_path, Node(path=cap_node(minor).path, major=510, minor=minor))
    gpus, findings = read(tmp_path, gpu_reply(host[0], mig(0, 7), mig(1, 8)))
    assert served(gpus[0]) == ["0 gi7/ci0"]
    assert f"has the numbers 510:{minor}, but the kernel's numbers are 511:{minor}" in findings[0].message


def test_instance_numbers_in_another_format_are_skipped(tmp_path: Path) -> None:
    for name in ("gi7", "gi07", "gi+8", "gi", "gix", "gi 9", "gi10"):
        (tmp_path / CAPABILITIES / "gpu0/mig" / name).mkdir(parents=True)
    assert caps.numbered(Root(str(tmp_path)), "gpu0/mig", "gi") == [7, 10]


def test_an_empty_access_file_is_reported_and_mig_minors_is_used(tmp_path: Path, host: Gpus) -> None:
    write_instance(tmp_path, 0, 7, 1)
    write(tmp_path / CAPABILITIES / "gpu0/mig/gi7/access", "")
    gpus, findings = read(tmp_path, gpu_reply(host[0], mig(0, 7), mig(1, 7, ci=1), mig(2, 8)))
    assert len(served(gpus[0])) == 3
    assert rules(findings) == ["kernel-file-unusable"]
    assert findings[0].path == f"/{CAPABILITIES}/gpu0/mig/gi7/access"


def test_an_empty_file_mig_minors_is_reported_and_the_access_files_are_used(
    tmp_path: Path, host: Gpus
) -> None:
    write(tmp_path / MINORS, "")
    gpus, findings = read(tmp_path, gpu_reply(host[0], mig(0, 7), mig(1, 8)))
    assert len(served(gpus[0])) == 2
    assert [(finding.rule, finding.path) for finding in findings] == [("kernel-file-unusable", f"/{MINORS}")]


def test_names_stay_unique_if_nvml_repeats_a_uuid(tmp_path: Path, host: Gpus, folder: Path) -> None:
    driver_files.ubuntu(tmp_path)
    same = standin.uuid(1, "MIG")
    instances = tuple(
        standin.Instance(gpu_instance=gi, compute_instance=0, uuid=same, profile="1g.10gb") for gi in (7, 8)
    )
    machine = standin.Machine(
        gpus=(
            standin.Gpu(address=host[0].bdf, uuid=host[0].uuid, minor=0, mig=True, instances=instances),
            standin.Gpu(address=host[1].bdf, uuid=host[1].uuid, minor=1),
        )
    )
    library = standin.install(folder, machine)
    inventory = VENDOR.discover(replace(places(tmp_path), nvml=str(library)))
    names = [device["name"] for device in build(VENDOR.edits(inventory, (DEFAULT,))[0])["devices"]]
    assert sorted(names) == sorted(["0:0", same, "1", host[1].uuid, "all", "none"])


def test_the_hint_for_a_locked_capability_is_the_command_that_unlocks_it(tmp_path: Path) -> None:
    boot(tmp_path, 1)
    write_minors(tmp_path, 1)
    write_instance(tmp_path, 0, 7, nodes=False)
    access = tmp_path / CAPABILITIES / "gpu0/mig/gi7/access"
    write(access, access_text(minor_of(0, 7)).replace("Modify: 1", "Modify: 0"))
    (hint,) = {finding.hint for finding in read(tmp_path)[1] if finding.rule == "mig-instance-unusable"}
    assert hint.startswith(f"echo 'DeviceFileModify: 1' >/{CAPABILITIES}/gpu0/mig/gi7/access && ")
    assert cap_node(minor_of(0, 7)).path not in {node.path for node in VENDOR.missing_nodes(places(tmp_path))}


def test_a_capability_node_without_a_mode_is_not_created(tmp_path: Path) -> None:
    boot(tmp_path, 1)
    write_minors(tmp_path, 1)
    write_instance(tmp_path, 0, 7, nodes=False)
    write(tmp_path / CAPABILITIES / "gpu0/mig/gi7/access", "")
    (hint,) = {finding.hint for finding in read(tmp_path)[1] if finding.rule == "mig-instance-unusable"}
    assert "create-nodes" not in hint
    assert "DeviceFileMode" in hint
    assert cap_node(minor_of(0, 7)).path not in {node.path for node in VENDOR.missing_nodes(places(tmp_path))}
