"""What NVML says of a machine, and which GPU or call fails, comes through as it is."""

from pathlib import Path

import pytest
from support.nvml.report import asked, refused, reported
from support.nvml.standin import Machine, gpu, instances, uuid

from cdigen.vendors.nvidia.nvml.document import NvmlGpu, NvmlMig
from cdigen.vendors.nvidia.nvml.shapes import NvmlError

# ---- what is reported ----


def test_a_machine_is_reported_as_nvml_tells_it(folder: Path) -> None:
    migs = instances(5, "1g.10gb", "1c.3g.40gb")
    report = reported(folder, gpu(0), gpu(1, mig=True, instances=migs))
    plain = NvmlGpu(index=0, address="0000:19:00.0", uuid=uuid(0), mig_mode=None, migs=(), error=None)
    assert report.gpus[0] == plain
    assert report.gpus[1].mig_mode is True
    assert report.gpus[1].migs == (
        NvmlMig(
            index=0,
            uuid=uuid(5, "MIG"),
            gpu_instance=7,
            compute_instance=0,
            profile="1g.10gb",
            graphics=False,
            memory_mib=9984,
        ),
        NvmlMig(
            index=1,
            uuid=uuid(6, "MIG"),
            gpu_instance=8,
            compute_instance=0,
            profile="1c.3g.40gb",
            graphics=False,
            memory_mib=40 * 1024 - 256,
        ),
    )


def test_a_pci_domain_may_be_wider_than_sixteen_bits(folder: Path) -> None:
    addresses = ("00000000:65:00.0", "0000ABCD:0A:1F.0", "00012345:00:00.0")
    report = reported(folder, *(gpu(number, address=address) for number, address in enumerate(addresses)))
    assert [gpu.address for gpu in report.gpus] == ["0000:65:00.0", "abcd:0a:1f.0", "12345:00:00.0"]


def test_what_a_gpu_does_not_support_is_a_value(folder: Path) -> None:
    (only,) = reported(folder, gpu(0, mig=None, faults=("nvmlDeviceGetUUID error 3",))).gpus
    assert (only.uuid, only.mig_mode, only.error) == (None, None, None)


def test_a_machine_without_gpus_is_a_report_of_none(folder: Path) -> None:
    assert reported(folder).gpus == ()


def test_mig_devices_keep_their_numbers_where_others_are_missing(folder: Path) -> None:
    migs = instances(5, None, "1g.10gb", None, "2g.20gb")
    (only,) = reported(folder, gpu(0, mig=True, instances=migs)).gpus
    assert [(mig.index, mig.profile) for mig in only.migs] == [(1, "1g.10gb"), (3, "2g.20gb")]


def test_a_gpu_in_mig_mode_may_have_no_devices(folder: Path) -> None:
    (only,) = reported(folder, gpu(0, mig=True)).gpus
    assert (only.mig_mode, only.migs) == (True, ())


def test_a_gpu_with_mig_turned_off_says_so(folder: Path) -> None:
    (only,) = reported(folder, gpu(0, mig=False)).gpus
    assert (only.mig_mode, only.migs) == (False, ())


def test_graphics_is_told_by_the_profile(folder: Path) -> None:
    migs = instances(5, "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me")
    (only,) = reported(folder, gpu(0, mig=True, instances=migs)).gpus
    assert [(mig.profile, mig.graphics) for mig in only.migs] == [
        ("1g.24gb+gfx", True),
        ("1g.24gb+me.all", False),
        ("1g.24gb-me", False),
    ]


# Total memory: as nvidia-smi shows it. Profiles: NVIDIA MIG User Guide, "Supported MIG Profiles".
@pytest.mark.parametrize(
    ("memory_mib", "profiles"),
    [
        (40960, ("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb", "1c.3g.20gb")),
        (81559, ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "7g.80gb")),
    ],
    ids=["A100 40 GB", "H100 80 GB"],
)
def test_a_profile_that_the_name_does_not_tell_comes_from_the_sizes(
    folder: Path, memory_mib: int, profiles: tuple[str, ...]
) -> None:
    migs = instances(5, *profiles)
    (only,) = reported(
        folder, gpu(0, memory=memory_mib << 20, mig=True, instances=migs, plain_names=True)
    ).gpus
    assert tuple(mig.profile for mig in only.migs) == profiles


def test_a_profile_that_nothing_tells_is_empty(folder: Path) -> None:
    faults = ("nvmlDeviceGetAttributes_v2 error 3",)
    machine = gpu(0, mig=True, instances=instances(5, "1g.10gb"), plain_names=True, faults=faults)
    (only,) = reported(folder, machine).gpus
    assert [(mig.profile, mig.graphics) for mig in only.migs] == [("", False)]


@pytest.mark.parametrize("code", [3, 999])
def test_a_mig_device_whose_size_fails_has_its_names_all_the_same(folder: Path, code: int) -> None:
    faults = (f"nvmlDeviceGetAttributes_v2 error {code}",)
    (only,) = reported(folder, gpu(0, mig=True, instances=instances(5, "1g.10gb"), faults=faults)).gpus
    assert [(mig.profile, mig.memory_mib) for mig in only.migs] == [("1g.10gb", None)]


def test_nvml_is_started_once(folder: Path) -> None:
    reported(folder, gpu(0), gpu(1), faults=("* trace",))
    calls = (folder / "calls").read_text().split()
    assert calls.count("nvmlInitWithFlags") == 1


# ---- one GPU's failure ----


def test_a_lost_gpu_costs_the_others_nothing(folder: Path) -> None:
    lost = gpu(1, faults=("* error 15",))
    answer = asked(folder, Machine(gpus=(gpu(0), lost, gpu(2))))
    assert answer.report is not None
    assert [gpu.uuid for gpu in answer.report.gpus] == [uuid(0), None, uuid(2)]
    error = NvmlError(call="nvmlDeviceGetHandleByIndex", name="NVML_ERROR_GPU_IS_LOST", code=15)
    assert answer.report.gpus[1].error == error
    (finding,) = answer.findings
    assert (finding.severity, finding.rule, finding.path) == ("warning", "nvml-gpu-failed", "GPU 1")
    assert "NVML_ERROR_GPU_IS_LOST (15): the GPU has fallen off the bus" in finding.message
    assert "reboot" in finding.hint


def test_a_gpu_that_is_lost_on_the_way_keeps_what_it_has_told(folder: Path) -> None:
    answer = asked(folder, Machine(gpus=(gpu(0, faults=("nvmlDeviceGetMigMode error 15",)), gpu(1))))
    assert answer.report is not None
    first, second = answer.report.gpus
    assert (first.address, first.uuid, first.mig_mode) == ("0000:19:00.0", uuid(0), None)
    assert first.error is not None
    assert second.error is None
    assert [finding.path for finding in answer.findings] == ["0000:19:00.0"]


def test_a_name_that_is_no_text_is_that_gpus_error(folder: Path) -> None:
    nameless = gpu(0, name="H100 \udcff", mig=True, instances=instances(5, "1g.10gb"))
    answer = asked(folder, Machine(gpus=(nameless, gpu(1))))
    assert answer.report is not None
    assert [gpu.error is None for gpu in answer.report.gpus] == [False, True]


def test_a_failing_mig_device_costs_no_other_gpu_its_own(folder: Path) -> None:
    broken = gpu(
        0, mig=True, instances=instances(5, "1g.10gb"), faults=("nvmlDeviceGetComputeInstanceId error 999",)
    )
    sound = gpu(1, mig=True, instances=instances(9, "1g.10gb"))
    answer = asked(folder, Machine(gpus=(broken, sound)))
    assert answer.report is not None
    first, second = answer.report.gpus
    assert (first.migs, first.error and first.error.call) == ((), "nvmlDeviceGetComputeInstanceId")
    assert (len(second.migs), second.error) == (1, None)


# ---- NVML's own refusal ----


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (4, "NVML_ERROR_NO_PERMISSION (4): this process may not use", "run as root"),
        (9, "NVML_ERROR_DRIVER_NOT_LOADED (9): the NVIDIA kernel module is not loaded", "modprobe nvidia"),
        (18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH (18): the library and the loaded kernel module", "reboot"),
        (999, "NVML_ERROR_UNKNOWN (999): the driver gives no reason", "dmesg"),
        (77, "NVML_ERROR_77 (77)", ""),
    ],
)
def test_a_refusal_is_told_by_name_with_its_remedy(folder: Path, code: int, message: str, hint: str) -> None:
    finding = refused(folder, f"nvmlInitWithFlags error {code}")
    assert finding.rule == "nvml-failed"
    assert f"nvmlInitWithFlags gives {message}" in finding.message
    assert hint in finding.hint


def test_a_count_that_fails_is_a_refusal_too(folder: Path) -> None:
    assert (
        "nvmlDeviceGetCount gives NVML_ERROR_UNKNOWN"
        in refused(folder, "nvmlDeviceGetCount_v2 error 999").message
    )
