"""The probe of GPUs whose driver state is kept: by NVML (real child, stand-in library) and by nodes."""

import os
import stat
from pathlib import Path

import pytest
from support.hosts.driver_files import put
from support.nvml.standin import Gpu, Machine, gpu, install, uuid
from support.values import devices
from support.waiting import by_deadline

from cdigen.host.root import Root
from cdigen.model.health import HealthSample, Symptom
from cdigen.model.inventory import Inventory
from cdigen.vendors.context import DiscoveryContext
from cdigen.vendors.nvidia.health.probe import PROBE_CAUSES, is_kept, probe

FIRST, SECOND, THIRD = (f"0000:{0x19 + number:02x}:00.0" for number in range(3))
NO_ACTION = "nvmlDeviceGetFieldValues 230 0"
HEALTHY = (
    NO_ACTION,
    "nvmlDeviceGetRemappedRows 0 1 0",
    "nvmlDeviceGetTotalEccErrors 1 7",
    "nvmlDeviceGetGpuFabricInfoV 0 3 0",
)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    put(tmp_path / "proc/uptime", b"86400.12 172800.00\n")
    return tmp_path


def write_gpu(
    host: Path, address: str, *, status: str = "active", memory: str = "Active", bios: str = "96.00.5e.00.01"
) -> None:
    put(host / "sys/bus/pci/devices" / address / "power/runtime_status", f"{status}\n".encode())
    gpu_folder = host / "proc/driver/nvidia/gpus" / address
    put(gpu_folder / "power", f"Runtime D3 status:          ?\nVideo Memory:\t\t{memory}\n".encode())
    put(gpu_folder / "information", f"GPU UUID: \t GPU-1\nVideo BIOS: \t {bios}\n".encode())


def inventory(*addresses: str, node: str = "") -> Inventory:
    nodes = (devices.host_node(node),) if node else ()
    gpus = (
        devices.accelerator(index, address, uuid=uuid(index), minor=index, nodes=nodes)
        for index, address in enumerate(addresses)
    )
    return devices.inventory("nvidia", *gpus)


def context(host: Path, nvml: str) -> DiscoveryContext:
    root = Root(str(host))
    return DiscoveryContext(host=root, driver=root, dev=root, nvml=nvml)


def probed(
    folder: Path, host: Path, *gpus: Gpu, faults: tuple[str, ...] = (), deadline_s: float = 20.0
) -> HealthSample:
    addresses = (FIRST, SECOND, THIRD)[: len(gpus)]
    for address in addresses:
        if not (host / "proc/driver/nvidia/gpus" / address).exists():
            write_gpu(host, address)
    library = install(folder, Machine(gpus=gpus, faults=faults))
    sample = probe(context(host, str(library)), inventory(*addresses), deadline_s=deadline_s)
    assert sample.source == "probe"
    known = {rule.cause for rule in PROBE_CAUSES}
    assert {one.cause for one in sample.symptoms} | {one.cause for one in sample.measurements} <= known
    return sample


def causes_of(sample: HealthSample) -> list[tuple[str, str]]:
    return [(symptom.cause, symptom.address) for symptom in sample.symptoms]


def recovered_gpus(sample: HealthSample) -> list[str]:
    assert all(recovery.clearance == "recovered" for recovery in sample.recoveries)
    return [recovery.address for recovery in sample.recoveries]


def test_a_gpu_that_requires_no_action_has_recovered(folder: Path, host: Path) -> None:
    sample = probed(folder, host, gpu(0, results=HEALTHY), gpu(1, results=HEALTHY))
    assert (sample.covered, sample.symptoms, sample.unread) == ((FIRST, SECOND), (), "")
    assert recovered_gpus(sample) == [FIRST, SECOND]
    counted = [(one.cause, one.address, one.value, one.worse) for one in sample.measurements]
    assert counted == [("ecc-uncorrected", address, 7, "higher") for address in (FIRST, SECOND)]


def test_a_driver_without_a_recovery_action_clears_no_cause(folder: Path, host: Path) -> None:
    """NVML also returns values of a GPU that has just had an Xid. A response is no proof of health."""
    sample = probed(folder, host, gpu(0))
    assert (sample.covered, sample.symptoms, sample.recoveries, sample.unread) == ((FIRST,), (), (), "")


@pytest.mark.parametrize(
    ("reset", "drain", "cause"), [(0, 0, False), (0, None, False), (1, 0, True), (0, 1, True), (1, 1, True)]
)
def test_an_older_driver_reports_by_flags_whether_a_reset_is_needed(
    folder: Path, host: Path, reset: int, drain: int | None, *, cause: bool
) -> None:
    flags = [f"nvmlDeviceGetFieldValues 226 {reset}"]
    flags += [] if drain is None else [f"nvmlDeviceGetFieldValues 227 {drain}"]
    sample = probed(folder, host, gpu(0, results=tuple(flags)))
    assert causes_of(sample) == ([("recovery-action", FIRST)] if cause else [])
    assert (sample.covered, recovered_gpus(sample)) == ((FIRST,), [] if cause else [FIRST])


@pytest.mark.parametrize(
    ("result", "cause", "words"),
    [
        ("nvmlDeviceGetFieldValues 230 1", "recovery-action", "GPU reset"),
        ("nvmlDeviceGetFieldValues 230 2", "recovery-action", "node reboot"),
        ("nvmlDeviceGetFieldValues 230 99", "recovery-action", "recovery action 99"),
        ("nvmlDeviceGetRemappedRows 0 0 1", "memory-remap-failed", "could not be remapped"),
        ("nvmlDeviceGetGpuFabricInfoV 0 1 0", "fabric-not-ready", "not started"),
        ("nvmlDeviceGetGpuFabricInfoV 0 2 0", "fabric-not-ready", "in progress"),
        ("nvmlDeviceGetGpuFabricInfoV 0 3 999", "fabric-not-ready", "error 999"),
    ],
)
def test_a_problem_that_nvml_reports_is_a_symptom_and_no_recovery(
    folder: Path, host: Path, result: str, cause: str, words: str
) -> None:
    no_action = () if result.startswith("nvmlDeviceGetFieldValues") else (NO_ACTION,)
    sample = probed(folder, host, gpu(0, results=(result, *no_action)), gpu(1, results=HEALTHY))
    assert causes_of(sample) == [(cause, FIRST)]
    assert words in sample.symptoms[0].detail
    assert (sample.covered, recovered_gpus(sample)) == ((FIRST, SECOND), [SECOND])


def test_a_fabric_that_is_still_starting_is_no_symptom(folder: Path, host: Path) -> None:
    put(host / "proc/uptime", b"61.5 100.0\n")
    sample = probed(folder, host, gpu(0, results=(NO_ACTION, "nvmlDeviceGetGpuFabricInfoV 0 1 0")))
    assert (causes_of(sample), recovered_gpus(sample)) == ([], [FIRST])


@pytest.mark.parametrize("code", [15, 16])
@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetRemappedRows", "*"])
def test_a_gpu_that_nvml_reports_as_lost_is_unhealthy(
    folder: Path, host: Path, function: str, code: int
) -> None:
    lost = gpu(0, results=HEALTHY, faults=(f"{function} error {code}",))
    sample = probed(folder, host, lost, gpu(1, results=HEALTHY))
    assert causes_of(sample) == [("nvml-gpu-lost", FIRST)]
    assert (sample.covered, recovered_gpus(sample)) == ((FIRST, SECOND), [SECOND])


def test_a_gpu_without_a_handle_is_unhealthy(folder: Path, host: Path) -> None:
    unknown = gpu(0, results=HEALTHY, faults=("nvmlDeviceGetHandleByPciBusId_v2 error 999",))
    sample = probed(folder, host, unknown, gpu(1, results=HEALTHY))
    assert causes_of(sample) == [("nvml-gpu-lost", FIRST)]
    assert (sample.covered, recovered_gpus(sample)) == ((FIRST, SECOND), [SECOND])


@pytest.mark.parametrize(
    "fault", ["nvmlDeviceGetHandleByPciBusId_v2 error 4", "nvmlDeviceGetRemappedRows error 999"]
)
def test_a_gpu_for_which_nvml_fails_keeps_its_causes(folder: Path, host: Path, fault: str) -> None:
    unknown = gpu(0, results=HEALTHY, faults=(fault,))
    sample = probed(folder, host, unknown, gpu(1, results=HEALTHY))
    assert (sample.symptoms, sample.covered, recovered_gpus(sample)) == ((), (SECOND,), [SECOND])
    assert "NVML_ERROR_" in sample.unread


def test_a_symptom_before_a_failure_of_nvml_is_reported(folder: Path, host: Path) -> None:
    broken = ("nvmlDeviceGetFieldValues 230 1",)
    fault = ("nvmlDeviceGetRemappedRows error 999",)
    sample = probed(folder, host, gpu(0, results=broken, faults=fault), gpu(1, results=HEALTHY))
    assert (causes_of(sample), sample.covered, recovered_gpus(sample)) == (
        [("recovery-action", FIRST)],
        (SECOND,),
        [SECOND],
    )
    assert "NVML_ERROR_UNKNOWN" in sample.unread


def test_deprecated_fields_count_as_missing_fields(folder: Path, host: Path) -> None:
    """Driver 570 returns "Requested functionality has been deprecated" (26)."""
    deprecated = ("nvmlDeviceGetFieldValues 226 0 26", "nvmlDeviceGetFieldValues 227 0 26")
    sample = probed(folder, host, gpu(0, results=(*deprecated, "nvmlDeviceGetRemappedRows 0 0 1")))
    assert (causes_of(sample), sample.covered, sample.unread) == (
        [("memory-remap-failed", FIRST)],
        (FIRST,),
        "",
    )
    assert recovered_gpus(sample) == []


def test_a_failed_field_does_not_count_as_a_missing_field(folder: Path, host: Path) -> None:
    sample = probed(folder, host, gpu(0, results=("nvmlDeviceGetFieldValues 230 0 999",)))
    assert (sample.covered, sample.recoveries) == ((), ())
    assert "nvmlDeviceGetFieldValues" in sample.unread


@pytest.mark.parametrize("kind", ["hang", "crash", "exit 0"])
def test_a_gpu_that_ends_the_nvml_process_only_delays_other_gpus(folder: Path, host: Path, kind: str) -> None:
    broken = gpu(1, results=HEALTHY, faults=(f"nvmlDeviceGetHandleByPciBusId_v2 {kind}",))
    sample = by_deadline(
        lambda deadline_s: probed(
            folder, host, gpu(0, results=HEALTHY), broken, gpu(2, results=HEALTHY), deadline_s=deadline_s
        ),
        lambda sample: sample.covered == (FIRST, THIRD),
    )
    assert (sample.covered, recovered_gpus(sample)) == ((FIRST, THIRD), [FIRST, THIRD])
    assert sample.unread


@pytest.mark.parametrize("fault", ["nvmlInitWithFlags error 18", "nvmlInitWithFlags crash", "load crash"])
def test_a_failure_of_nvml_itself_clears_no_cause(folder: Path, host: Path, fault: str) -> None:
    sample = probed(folder, host, gpu(0, results=HEALTHY), gpu(1, results=HEALTHY), faults=(fault,))
    assert (sample.covered, sample.symptoms, sample.recoveries) == ((), (), ())
    assert "NVML" in sample.unread


@pytest.mark.parametrize(
    "suspended",
    [
        {"status": "suspended"},
        {"status": "suspending"},
        {"memory": "Off"},
        {"bios": "??.??.??.??.??"},
        {"bios": ""},
    ],
    ids=str,
)
def test_a_gpu_whose_driver_state_is_not_kept_is_not_queried(
    folder: Path, host: Path, suspended: dict[str, str]
) -> None:
    write_gpu(host, FIRST, **suspended)
    assert not is_kept(Root(str(host)), FIRST)
    sample = probed(folder, host, gpu(0, results=HEALTHY, faults=("* crash",)), gpu(1, results=HEALTHY))
    assert (sample.covered, recovered_gpus(sample), sample.unread) == ((SECOND,), [SECOND], "")


def test_nvml_is_not_loaded_if_all_gpus_are_suspended(folder: Path, host: Path) -> None:
    write_gpu(host, FIRST, status="suspended")
    sample = probed(folder, host, gpu(0), faults=("load trace",))
    assert sample == HealthSample(source="probe")
    assert not (folder / "calls").exists()


def test_a_gpu_without_a_file_of_the_driver_is_not_queried(tmp_path: Path) -> None:
    assert not is_kept(Root(str(tmp_path)), FIRST)


def test_the_nodes_are_opened_if_nvml_is_off(host: Path) -> None:
    write_gpu(host, FIRST)
    put(host / "dev/nvidia0", b"")
    sample = probe(context(host, "off"), inventory(FIRST, node="/dev/nvidia0"))
    assert sample == HealthSample(source="probe", covered=(FIRST,))


def test_only_the_nodes_are_reported_if_nvml_is_missing(host: Path) -> None:
    write_gpu(host, FIRST)
    put(host / "dev/nvidia0", b"")
    sample = probe(context(host, "auto"), inventory(FIRST, node="/dev/nvidia0"))
    assert sample == HealthSample(source="probe", covered=(FIRST,), only=("node-unusable",))


def test_nvml_is_not_queried_for_a_gpu_whose_node_hangs(folder: Path, host: Path) -> None:
    """A path with a null byte replaces a node that hangs: ``unopenable`` reports both in the same list."""
    write_gpu(host, FIRST)
    library = install(folder, Machine(gpus=(gpu(0, results=HEALTHY, faults=("* crash",)),)))
    sample = probe(context(host, str(library)), inventory(FIRST, node="/dev/nvidia0\0"))
    assert (sample.covered, sample.symptoms, sample.recoveries) == ((), (), ())
    assert sample.unread.endswith("could not be opened before the deadline")


@pytest.mark.usefixtures("real_nodes")
def test_a_node_that_the_driver_refuses_to_open_is_a_symptom(folder: Path, host: Path) -> None:
    write_gpu(host, FIRST)
    (host / "dev").mkdir()
    os.mknod(host / "dev/nvidia0", stat.S_IFCHR | 0o666, os.makedev(240, 77))
    library = install(folder, Machine(gpus=(gpu(0, results=HEALTHY),)))
    sample = probe(context(host, str(library)), inventory(FIRST, node="/dev/nvidia0"))
    detail = "the GPU's node cannot be opened: No such device or address"
    assert sample.symptoms == (Symptom(cause="node-unusable", address=FIRST, detail=detail),)
    assert (sample.covered, sample.recoveries) == ((FIRST,), ())
