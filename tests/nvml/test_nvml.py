"""The report of a query of NVML: the values that NVML returns, and the failures of single GPUs and calls."""

from pathlib import Path

import pytest
from support.nvml.report import failed_query, queried, reported
from support.nvml.standin import Machine, gpu, instances, uuid

from cdigen.vendors.nvidia.nvml.document import NvmlError, NvmlGpu, NvmlMig

# ---- reported values ----


def test_the_report_of_a_machine_has_the_values_of_nvml(folder: Path) -> None:
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


def test_an_address_with_a_pci_domain_of_more_than_16_bits_is_reported_completely(folder: Path) -> None:
    addresses = ("00000000:65:00.0", "0000ABCD:0A:1F.0", "00012345:00:00.0")
    report = reported(folder, *(gpu(number, address=address) for number, address in enumerate(addresses)))
    assert [gpu.address for gpu in report.gpus] == ["0000:65:00.0", "abcd:0a:1f.0", "12345:00:00.0"]


def test_a_value_that_a_gpu_does_not_support_is_none(folder: Path) -> None:
    (only,) = reported(folder, gpu(0, mig=None, faults=("nvmlDeviceGetUUID error 3",))).gpus
    assert (only.uuid, only.mig_mode, only.error) == (None, None, None)


def test_the_report_of_a_machine_without_gpus_is_empty(folder: Path) -> None:
    assert reported(folder).gpus == ()


def test_mig_devices_keep_their_indices_if_other_mig_devices_are_missing(folder: Path) -> None:
    migs = instances(5, None, "1g.10gb", None, "2g.20gb")
    (only,) = reported(folder, gpu(0, mig=True, instances=migs)).gpus
    assert [(mig.index, mig.profile) for mig in only.migs] == [(1, "1g.10gb"), (3, "2g.20gb")]


def test_a_gpu_in_mig_mode_may_have_no_mig_devices(folder: Path) -> None:
    (only,) = reported(folder, gpu(0, mig=True)).gpus
    assert (only.mig_mode, only.migs) == (True, ())


def test_mig_devices_whose_number_nvml_does_not_support_are_an_error_and_not_an_empty_list(
    folder: Path,
) -> None:
    broken = gpu(
        0, mig=True, instances=instances(5, "1g.10gb"), faults=("nvmlDeviceGetMaxMigDeviceCount error 3",)
    )
    answer = queried(folder, Machine(gpus=(broken,)))
    assert answer.report is not None
    (only,) = answer.report.gpus
    assert (only.mig_mode, only.migs) == (True, ())
    assert only.error == NvmlError(
        call="nvmlDeviceGetMaxMigDeviceCount", name="NVML_ERROR_NOT_SUPPORTED", code=3
    )


def test_a_mig_mode_that_is_off_is_false_in_the_report(folder: Path) -> None:
    (only,) = reported(folder, gpu(0, mig=False)).gpus
    assert (only.mig_mode, only.migs) == (False, ())


def test_the_profile_of_a_mig_device_determines_whether_it_has_graphics(folder: Path) -> None:
    migs = instances(5, "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me")
    (only,) = reported(folder, gpu(0, mig=True, instances=migs)).gpus
    assert [(mig.profile, mig.graphics) for mig in only.migs] == [
        ("1g.24gb+gfx", True),
        ("1g.24gb+me.all", False),
        ("1g.24gb-me", False),
    ]


# Total memory: as in nvidia-smi. Profiles: NVIDIA MIG User Guide, "Supported MIG Profiles".
@pytest.mark.parametrize(
    ("memory_mib", "profiles"),
    [
        (40960, ("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb", "1c.3g.20gb")),
        (81559, ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "7g.80gb")),
    ],
    ids=["A100 40 GB", "H100 80 GB"],
)
def test_a_profile_that_is_not_in_the_mig_devices_name_is_calculated_from_its_sizes(
    folder: Path, memory_mib: int, profiles: tuple[str, ...]
) -> None:
    migs = instances(5, *profiles)
    (only,) = reported(
        folder, gpu(0, memory=memory_mib << 20, mig=True, instances=migs, plain_names=True)
    ).gpus
    assert tuple(mig.profile for mig in only.migs) == profiles


def test_a_profile_is_empty_if_neither_the_name_nor_the_sizes_are_known(folder: Path) -> None:
    faults = ("nvmlDeviceGetAttributes_v2 error 3",)
    machine = gpu(0, mig=True, instances=instances(5, "1g.10gb"), plain_names=True, faults=faults)
    (only,) = reported(folder, machine).gpus
    assert [(mig.profile, mig.graphics) for mig in only.migs] == [("", False)]


@pytest.mark.parametrize("code", [3, 999])
def test_a_mig_device_whose_size_is_unknown_has_the_profile_in_its_name(folder: Path, code: int) -> None:
    faults = (f"nvmlDeviceGetAttributes_v2 error {code}",)
    (only,) = reported(folder, gpu(0, mig=True, instances=instances(5, "1g.10gb"), faults=faults)).gpus
    assert [(mig.profile, mig.memory_mib) for mig in only.migs] == [("1g.10gb", None)]


def test_nvml_is_initialized_once(folder: Path) -> None:
    reported(folder, gpu(0), gpu(1), faults=("* trace",))
    calls = (folder / "calls").read_text().split()
    assert calls.count("nvmlInitWithFlags") == 1


# ---- one GPU's failure ----


def test_a_lost_gpu_does_not_affect_other_gpus(folder: Path) -> None:
    lost = gpu(1, faults=("* error 15",))
    answer = queried(folder, Machine(gpus=(gpu(0), lost, gpu(2))))
    assert answer.report is not None
    assert [gpu.uuid for gpu in answer.report.gpus] == [uuid(0), None, uuid(2)]
    error = NvmlError(call="nvmlDeviceGetHandleByIndex", name="NVML_ERROR_GPU_IS_LOST", code=15)
    assert answer.report.gpus[1].error == error
    (finding,) = answer.findings
    assert (finding.severity, finding.rule, finding.path) == ("warning", "nvml-gpu-failed", "GPU 1")
    assert "NVML_ERROR_GPU_IS_LOST (15): the GPU has fallen off the bus" in finding.message
    assert "reboot" in finding.hint


def test_a_gpu_that_is_lost_during_the_query_keeps_the_values_that_were_read_before(folder: Path) -> None:
    answer = queried(folder, Machine(gpus=(gpu(0, faults=("nvmlDeviceGetMigMode error 15",)), gpu(1))))
    assert answer.report is not None
    first, second = answer.report.gpus
    assert (first.address, first.uuid, first.mig_mode) == ("0000:19:00.0", uuid(0), None)
    assert first.error is not None
    assert second.error is None
    assert [finding.path for finding in answer.findings] == ["0000:19:00.0"]


def test_a_name_that_is_not_utf_8_is_an_error_of_only_this_gpu(folder: Path) -> None:
    nameless = gpu(0, name="H100 \udcff", mig=True, instances=instances(5, "1g.10gb"))
    answer = queried(folder, Machine(gpus=(nameless, gpu(1))))
    assert answer.report is not None
    assert [gpu.error is None for gpu in answer.report.gpus] == [False, True]


def test_a_failing_mig_device_does_not_affect_other_gpus(folder: Path) -> None:
    broken = gpu(
        0, mig=True, instances=instances(5, "1g.10gb"), faults=("nvmlDeviceGetComputeInstanceId error 999",)
    )
    sound = gpu(1, mig=True, instances=instances(9, "1g.10gb"))
    answer = queried(folder, Machine(gpus=(broken, sound)))
    assert answer.report is not None
    first, second = answer.report.gpus
    assert (first.migs, first.error and first.error.call) == ((), "nvmlDeviceGetComputeInstanceId")
    assert (len(second.migs), second.error) == (1, None)


# ---- failures of NVML itself ----


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
def test_an_error_of_nvml_is_reported_with_its_name_and_a_hint(
    folder: Path, code: int, message: str, hint: str
) -> None:
    finding = failed_query(folder, f"nvmlInitWithFlags error {code}")
    assert finding.rule == "nvml-failed"
    assert f"nvmlInitWithFlags returned {message}" in finding.message
    assert hint in finding.hint


def test_a_failure_of_the_call_that_counts_the_gpus_is_an_error(folder: Path) -> None:
    assert (
        "nvmlDeviceGetCount returned NVML_ERROR_UNKNOWN"
        in failed_query(folder, "nvmlDeviceGetCount_v2 error 999").message
    )
