"""MIG where its sources disagree or fail: a GPU with instances is never a whole, no node is two's."""

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
from cdigen.model.partition_names import GpuPartitionNames, PartitionName
from cdigen.model.profile import DEFAULT
from cdigen.value import replace
from cdigen.vendors.nvidia import caps
from cdigen.vendors.nvidia.gpus import NvidiaGpuReader
from cdigen.vendors.nvidia.nodes import NvidiaNodeReader
from cdigen.vendors.nvidia.nvml import not_asked, reply_of
from cdigen.vendors.nvidia.nvml.document import NvmlGpu, NvmlMig, NvmlReport
from cdigen.vendors.nvidia.nvml.shapes import NvmlError
from cdigen.vendors.nvidia.vendor import VENDOR

pytestmark = pytest.mark.usefixtures("real_nodes")

Gpus = tuple[Gpu, ...]
CAPABILITIES = "proc/driver/nvidia/capabilities"
MINORS = "proc/driver/nvidia-caps/mig-minors"
LOST = NvmlError(call="nvmlDeviceGetUUID", name="NVML_ERROR_UNKNOWN", code=999)


@pytest.fixture
def host(tmp_path: Path) -> Gpus:
    """Boot two GPUs, of which the first has the MIG instances gi7/ci0 and gi8/ci0."""
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


def told(gpu: Gpu, *migs: NvmlMig, mode: bool | None = True, error: NvmlError | None = None) -> NvmlGpu:
    """Return what NVML says of GPU."""
    return NvmlGpu(index=gpu.minor, address=gpu.bdf, uuid=gpu.uuid, mig_mode=mode, migs=migs, error=error)


def read(
    root: Path, *answers: NvmlGpu, memory: tuple[GpuPartitionNames, ...] = ()
) -> tuple[tuple[Accelerator, ...], tuple[Finding, ...]]:
    """Read the GPUs, with NVML's ANSWERS; without any it is not asked. MEMORY is what it said before."""
    report = NvmlReport(gpus=answers)
    reply = reply_of(report, "") if answers else not_asked()
    reader = NvidiaGpuReader(places(root), NvidiaNodeReader(places(root)), lambda: reply, lambda: memory)
    return reader.read(), reader.findings


def remembered(gpu: Gpu, *migs: NvmlMig) -> GpuPartitionNames:
    """Return what is kept of GPU whose instances NVML named so."""
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


def test_a_gpu_that_has_instances_and_by_nvml_no_mig_is_no_whole_gpu(tmp_path: Path, host: Gpus) -> None:
    gpus, findings = read(tmp_path, told(host[0], mode=False))
    assert (gpus[0].partitioned, gpus[0].partitions) == (True, ())
    assert gpus[1].partitioned is False
    assert sorted(rules(findings)) == ["mig-contradiction", "mig-empty"]


def test_a_gpu_instance_without_compute_instances_is_no_whole_gpu(tmp_path: Path) -> None:
    boot(tmp_path, 1)
    write(tmp_path / CAPABILITIES / "gpu0/mig/gi7/access", access_text(minor_of(0, 7)))
    ((gpu,), findings) = read(tmp_path)
    assert gpu.partitioned
    assert rules(findings) == ["mig-empty"]
    assert "has GPU instances, but none that can be offered" in findings[0].message


def test_mig_that_only_nvml_sees_is_no_whole_gpu(tmp_path: Path, host: Gpus) -> None:
    gpus, findings = read(tmp_path, told(host[0], mig(0, 7), mig(1, 8)), told(host[1]))
    assert [gpu.partitioned for gpu in gpus] == [True, True]
    assert sorted(rules(findings)) == ["mig-contradiction", "mig-empty"]


def test_a_gpu_that_could_be_partitioned_and_is_not_is_a_whole(tmp_path: Path) -> None:
    boot(tmp_path, 1)
    (tmp_path / CAPABILITIES / "gpu0/mig").mkdir(parents=True)
    ((gpu,), findings) = read(tmp_path)
    assert (gpu.partitioned, findings) == (False, ())


def test_a_gpu_of_which_no_instance_can_be_used_says_why(tmp_path: Path, host: Gpus) -> None:
    for gi in (7, 8):
        (tmp_path / cap_node(minor_of(0, gi)).path.lstrip("/")).unlink()
    gpus, findings = read(tmp_path, told(host[0], mig(0, 7), mig(1, 8)))
    assert gpus[0].partitioned
    (empty,) = [finding for finding in findings if finding.rule == "mig-empty"]
    assert f"{cap_node(minor_of(0, 7)).path} does not exist" in empty.message


def test_an_instance_of_which_nvml_fails_to_tell_costs_no_other(tmp_path: Path, host: Gpus) -> None:
    gpus, findings = read(tmp_path, told(host[0], mig(1, 8), error=LOST))
    assert served(gpus[0]) == ["1 gi8/ci0", "gi7-ci0 gi7/ci0"]
    assert gpus[0].partitions[0].uuid
    assert rules(findings) == ["mig-not-named"]
    assert "nvmlDeviceGetUUID gives NVML_ERROR_UNKNOWN (999)" in findings[0].message
    assert "named for what they are: gi7/ci0" in findings[0].message


def test_of_an_nvml_that_tells_in_part_what_it_tells_comes_first(tmp_path: Path, host: Gpus) -> None:
    before = remembered(host[0], mig(0, 7), mig(1, 8))
    same = told(host[0], mig(1, 8), error=LOST)
    gpus, findings = read(tmp_path, same, memory=(before,))
    assert served(gpus[0]) == ["0 gi7/ci0", "1 gi8/ci0"]
    assert rules(findings) == ["mig-names-kept"]
    # It has numbered them anew: 0 is not what it was.
    other = told(host[0], mig(0, 8), error=LOST)
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
def test_names_are_kept_of_the_same_gpu_only(
    tmp_path: Path, host: Gpus, changes: dict[str, Any], *, holds: bool
) -> None:
    before = replace(remembered(host[0], mig(0, 7), mig(1, 8)), **changes)
    gpus, _ = read(tmp_path, memory=(before,))
    named = ["0 gi7/ci0", "1 gi8/ci0"] if holds else ["gi7-ci0 gi7/ci0", "gi8-ci0 gi8/ci0"]
    assert served(gpus[0]) == named


def test_a_uuid_that_nvml_gives_to_another_instance_is_no_name_that_was_kept(
    tmp_path: Path, host: Gpus
) -> None:
    write_instance(tmp_path, 1, 7)
    before = remembered(host[1], mig(0, 7))
    gpus, _ = read(tmp_path, told(host[0], mig(0, 7), mig(1, 8)), told(host[1], error=LOST), memory=(before,))
    assert [served(gpu) for gpu in gpus] == [["0 gi7/ci0", "1 gi8/ci0"], ["gi7-ci0 gi7/ci0"]]
    # What was kept of two GPUs has to be of one mind, too.
    gpus, _ = read(tmp_path, memory=(remembered(host[0], mig(0, 7), mig(1, 8)), before))
    assert [served(gpu) for gpu in gpus] == [["0 gi7/ci0", "1 gi8/ci0"], ["gi7-ci0 gi7/ci0"]]


@pytest.mark.parametrize(
    "changes",
    [{"error": LOST}, {"error": LOST, "mig_mode": None}, {"mig_mode": None}, {"address": None}],
    ids=["an error", "an error and no mode", "no mode", "no address"],
)
def test_instances_that_nvml_fails_to_tell_at_all_are_named_for_what_they_are(
    tmp_path: Path, host: Gpus, changes: dict[str, Any]
) -> None:
    gpus, findings = read(tmp_path, replace(told(host[0]), **changes))
    assert served(gpus[0]) == ["gi7-ci0 gi7/ci0", "gi8-ci0 gi8/ci0"]
    assert rules(findings) == ["mig-not-named"]
    assert findings[0].severity == "error"


@pytest.mark.parametrize(
    "second", [mig(1, 7), mig(1, 8, uuid=mig(0, 7).uuid)], ids=["the same ids", "the same UUID"]
)
def test_what_nvml_names_twice_is_one_device(tmp_path: Path, host: Gpus, second: NvmlMig) -> None:
    gpus, findings = read(tmp_path, told(host[0], mig(0, 7), second))
    assert served(gpus[0]) == ["0 gi7/ci0"]
    assert set(rules(findings)) == {"mig-contradiction"}


def test_a_uuid_stands_for_one_instance_on_all_gpus(tmp_path: Path, host: Gpus) -> None:
    write_instance(tmp_path, 1, 7)
    gpus, findings = read(tmp_path, told(host[0], mig(0, 7), mig(1, 8)), told(host[1], mig(0, 7)))
    assert [served(gpu) for gpu in gpus] == [["0 gi7/ci0", "1 gi8/ci0"], []]
    assert "mig-contradiction" in rules(findings)


@pytest.mark.parametrize("uuid", ["0", "all", "1:0", standin.uuid(1), "MIG-GPU-1/7/0"])
def test_what_is_no_uuid_of_an_instance_is_no_name(tmp_path: Path, host: Gpus, uuid: str) -> None:
    gpus, _ = read(tmp_path, told(host[0], mig(0, 7, uuid=uuid), mig(1, 8)))
    assert [bool(each.uuid) for each in gpus[0].partitions] == [False, True]


def test_two_instances_with_one_capability_minor_are_one(tmp_path: Path, host: Gpus) -> None:
    (tmp_path / MINORS).unlink()
    write(tmp_path / CAPABILITIES / "gpu0/mig/gi8/access", access_text(minor_of(0, 7)))
    gpus, findings = read(tmp_path, told(host[0], mig(0, 7), mig(1, 8)))
    assert served(gpus[0]) == ["0 gi7/ci0"]
    assert rules(findings) == ["mig-instance-unusable"]
    assert f"the minor {minor_of(0, 7)} of gi8 is that of gpu0/gi7 as well" in findings[0].message


def test_no_instance_gets_the_capability_to_administer_mig(tmp_path: Path, host: Gpus) -> None:
    write(tmp_path / MINORS, "config 1\nmonitor 2\n")
    write(tmp_path / CAPABILITIES / "gpu0/mig/gi8/access", access_text(1))
    make_node(tmp_path, cap_node(1))
    gpus, _ = read(tmp_path, told(host[0], mig(0, 7), mig(1, 8)))
    assert served(gpus[0]) == ["0 gi7/ci0"]


def test_a_capability_node_of_another_major_is_never_given(tmp_path: Path, host: Gpus) -> None:
    minor = minor_of(0, 8)
    make_node(tmp_path, Node(path=cap_node(minor).path, major=510, minor=minor))
    gpus, findings = read(tmp_path, told(host[0], mig(0, 7), mig(1, 8)))
    assert served(gpus[0]) == ["0 gi7/ci0"]
    assert f"has the numbers 510:{minor}, but the kernel's are 511:{minor}" in findings[0].message


def test_numbers_that_the_kernel_would_not_write_are_passed_over(tmp_path: Path) -> None:
    for name in ("gi7", "gi07", "gi+8", "gi", "gix", "gi 9", "gi10"):
        (tmp_path / CAPABILITIES / "gpu0/mig" / name).mkdir(parents=True)
    assert caps.numbered(Root(str(tmp_path)), "gpu0/mig", "gi") == [7, 10]


def test_an_empty_access_file_is_named_and_mig_minors_has_to_do(tmp_path: Path, host: Gpus) -> None:
    write_instance(tmp_path, 0, 7, 1)
    write(tmp_path / CAPABILITIES / "gpu0/mig/gi7/access", "")
    gpus, findings = read(tmp_path, told(host[0], mig(0, 7), mig(1, 7, ci=1), mig(2, 8)))
    assert len(served(gpus[0])) == 3
    assert rules(findings) == ["kernel-file-unusable"]
    assert findings[0].path == f"/{CAPABILITIES}/gpu0/mig/gi7/access"


def test_an_empty_mig_minors_is_named_and_the_access_files_have_to_do(tmp_path: Path, host: Gpus) -> None:
    write(tmp_path / MINORS, "")
    gpus, findings = read(tmp_path, told(host[0], mig(0, 7), mig(1, 8)))
    assert len(served(gpus[0])) == 2
    assert [(finding.rule, finding.path) for finding in findings] == [("kernel-file-unusable", f"/{MINORS}")]


def test_names_stay_unique_where_nvml_itself_repeats_a_uuid(tmp_path: Path, host: Gpus, folder: Path) -> None:
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
