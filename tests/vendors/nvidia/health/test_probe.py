"""What NVML and the nodes say of GPUs that are kept awake, by the real child and a stand-in library."""

import os
import stat
from pathlib import Path

import pytest
from support.hosts.driver_files import put
from support.nvml.standin import Gpu, Machine, gpu, install, uuid
from support.values import devices
from support.waiting import by_deadline

from cdigen.host.root import Root
from cdigen.model.health import Look, Symptom
from cdigen.model.inventory import Inventory
from cdigen.vendors.base import DiscoveryContext
from cdigen.vendors.nvidia.health.probe import PROBE_CAUSES, is_kept, probe

FIRST, SECOND, THIRD = (f"0000:{0x19 + number:02x}:00.0" for number in range(3))
CONTENT = "nvmlDeviceGetFieldValues 230 0"
SOUND = (
    CONTENT,
    "nvmlDeviceGetRemappedRows 0 1 0",
    "nvmlDeviceGetTotalEccErrors 1 7",
    "nvmlDeviceGetGpuFabricInfoV 0 3 0",
)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    put(tmp_path / "proc/uptime", b"86400.12 172800.00\n")
    return tmp_path


def lay(
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
) -> Look:
    addresses = (FIRST, SECOND, THIRD)[: len(gpus)]
    for address in addresses:
        if not (host / "proc/driver/nvidia/gpus" / address).exists():
            lay(host, address)
    library = install(folder, Machine(gpus=gpus, faults=faults))
    look = probe(context(host, str(library)), inventory(*addresses), deadline_s=deadline_s)
    assert look.source == "probe"
    known = {rule.cause for rule in PROBE_CAUSES}
    assert {one.cause for one in look.symptoms} | {one.cause for one in look.measurements} <= known
    return look


def told(look: Look) -> list[tuple[str, str]]:
    return [(symptom.cause, symptom.address) for symptom in look.symptoms]


def recovered(look: Look) -> list[str]:
    assert all(recovery.clearance == "recovered" for recovery in look.recoveries)
    return [recovery.address for recovery in look.recoveries]


def test_a_gpu_for_which_nothing_has_to_be_done_is_said_to_have_recovered(folder: Path, host: Path) -> None:
    look = probed(folder, host, gpu(0, figures=SOUND), gpu(1, figures=SOUND))
    assert (look.covered, look.symptoms, look.unread) == ((FIRST, SECOND), (), "")
    assert recovered(look) == [FIRST, SECOND]
    counted = [(one.cause, one.address, one.value, one.worse) for one in look.measurements]
    assert counted == [("ecc-uncorrected", address, 7, "higher") for address in (FIRST, SECOND)]


def test_a_driver_that_does_not_say_what_has_to_be_done_clears_nothing(folder: Path, host: Path) -> None:
    """A handle opens on a GPU that has just had an Xid: that NVML answers means nothing."""
    look = probed(folder, host, gpu(0))
    assert (look.covered, look.symptoms, look.recoveries, look.unread) == ((FIRST,), (), (), "")


@pytest.mark.parametrize(
    ("reset", "drain", "cause"), [(0, 0, False), (0, None, False), (1, 0, True), (0, 1, True), (1, 1, True)]
)
def test_an_older_driver_says_by_flags_whether_a_reset_is_needed(
    folder: Path, host: Path, reset: int, drain: int | None, *, cause: bool
) -> None:
    flags = [f"nvmlDeviceGetFieldValues 226 {reset}"]
    flags += [] if drain is None else [f"nvmlDeviceGetFieldValues 227 {drain}"]
    look = probed(folder, host, gpu(0, figures=tuple(flags)))
    assert told(look) == ([("recovery-action", FIRST)] if cause else [])
    assert (look.covered, recovered(look)) == ((FIRST,), [] if cause else [FIRST])


@pytest.mark.parametrize(
    ("figure", "cause", "words"),
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
def test_what_nvml_finds_wrong_is_a_symptom_and_no_recovery(
    folder: Path, host: Path, figure: str, cause: str, words: str
) -> None:
    content = () if figure.startswith("nvmlDeviceGetFieldValues") else (CONTENT,)
    look = probed(folder, host, gpu(0, figures=(figure, *content)), gpu(1, figures=SOUND))
    assert told(look) == [(cause, FIRST)]
    assert words in look.symptoms[0].detail
    assert (look.covered, recovered(look)) == ((FIRST, SECOND), [SECOND])


def test_a_fabric_that_the_host_has_had_no_time_to_make_is_not_missed(folder: Path, host: Path) -> None:
    put(host / "proc/uptime", b"61.5 100.0\n")
    look = probed(folder, host, gpu(0, figures=(CONTENT, "nvmlDeviceGetGpuFabricInfoV 0 1 0")))
    assert (told(look), recovered(look)) == ([], [FIRST])


@pytest.mark.parametrize("code", [15, 16])
@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetRemappedRows", "*"])
def test_a_gpu_that_nvml_calls_lost_is_unhealthy(folder: Path, host: Path, function: str, code: int) -> None:
    lost = gpu(0, figures=SOUND, faults=(f"{function} error {code}",))
    look = probed(folder, host, lost, gpu(1, figures=SOUND))
    assert told(look) == [("nvml-gpu-lost", FIRST)]
    assert (look.covered, recovered(look)) == ((FIRST, SECOND), [SECOND])


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetRemappedRows"])
def test_a_gpu_of_which_nvml_cannot_tell_keeps_its_causes(folder: Path, host: Path, function: str) -> None:
    unknown = gpu(0, figures=SOUND, faults=(f"{function} error 999",))
    look = probed(folder, host, unknown, gpu(1, figures=SOUND))
    assert (look.symptoms, look.covered, recovered(look)) == ((), (SECOND,), [SECOND])
    assert "NVML_ERROR_UNKNOWN" in look.unread


def test_what_was_wrong_before_nvml_failed_counts(folder: Path, host: Path) -> None:
    broken = ("nvmlDeviceGetFieldValues 230 1",)
    fault = ("nvmlDeviceGetRemappedRows error 999",)
    look = probed(folder, host, gpu(0, figures=broken, faults=fault), gpu(1, figures=SOUND))
    assert (told(look), look.covered, recovered(look)) == ([("recovery-action", FIRST)], (SECOND,), [SECOND])
    assert "NVML_ERROR_UNKNOWN" in look.unread


def test_fields_that_a_newer_driver_calls_deprecated_are_fields_that_it_has_not(
    folder: Path, host: Path
) -> None:
    """570: "Requested functionality has been deprecated"."""
    deprecated = ("nvmlDeviceGetFieldValues 226 0 26", "nvmlDeviceGetFieldValues 227 0 26")
    look = probed(folder, host, gpu(0, figures=(*deprecated, "nvmlDeviceGetRemappedRows 0 0 1")))
    assert (told(look), look.covered, look.unread) == ([("memory-remap-failed", FIRST)], (FIRST,), "")
    assert recovered(look) == []


def test_a_field_that_fails_is_not_taken_for_none(folder: Path, host: Path) -> None:
    look = probed(folder, host, gpu(0, figures=("nvmlDeviceGetFieldValues 230 0 999",)))
    assert (look.covered, look.recoveries) == ((), ())
    assert "nvmlDeviceGetFieldValues" in look.unread


@pytest.mark.parametrize("kind", ["hang", "crash", "exit 0"])
def test_a_gpu_on_which_nvml_dies_costs_the_others_only_time(folder: Path, host: Path, kind: str) -> None:
    broken = gpu(1, figures=SOUND, faults=(f"nvmlDeviceGetHandleByPciBusId_v2 {kind}",))
    look = by_deadline(
        lambda deadline_s: probed(
            folder, host, gpu(0, figures=SOUND), broken, gpu(2, figures=SOUND), deadline_s=deadline_s
        ),
        lambda look: look.covered == (FIRST, THIRD),
    )
    assert (look.covered, recovered(look)) == ((FIRST, THIRD), [FIRST, THIRD])
    assert look.unread


@pytest.mark.parametrize("fault", ["nvmlInitWithFlags error 18", "nvmlInitWithFlags crash", "load crash"])
def test_an_nvml_that_says_nothing_clears_nothing(folder: Path, host: Path, fault: str) -> None:
    look = probed(folder, host, gpu(0, figures=SOUND), gpu(1, figures=SOUND), faults=(fault,))
    assert (look.covered, look.symptoms, look.recoveries) == ((), (), ())
    assert "NVML" in look.unread


@pytest.mark.parametrize(
    "asleep",
    [
        {"status": "suspended"},
        {"status": "suspending"},
        {"memory": "Off"},
        {"bios": "??.??.??.??.??"},
        {"bios": ""},
    ],
    ids=str,
)
def test_a_gpu_that_nobody_keeps_awake_is_not_asked(folder: Path, host: Path, asleep: dict[str, str]) -> None:
    lay(host, FIRST, **asleep)
    assert not is_kept(Root(str(host)), FIRST)
    look = probed(folder, host, gpu(0, figures=SOUND, faults=("* crash",)), gpu(1, figures=SOUND))
    assert (look.covered, recovered(look), look.unread) == ((SECOND,), [SECOND], "")


def test_where_all_sleep_nvml_is_not_even_loaded(folder: Path, host: Path) -> None:
    lay(host, FIRST, status="suspended")
    look = probed(folder, host, gpu(0), faults=("load trace",))
    assert look == Look(source="probe")
    assert not (folder / "calls").exists()


def test_a_gpu_without_a_file_of_the_drivers_is_not_asked(tmp_path: Path) -> None:
    assert not is_kept(Root(str(tmp_path)), FIRST)


def test_where_nvml_is_off_the_nodes_are_tried(host: Path) -> None:
    lay(host, FIRST)
    put(host / "dev/nvidia0", b"")
    look = probe(context(host, "off"), inventory(FIRST, node="/dev/nvidia0"))
    assert look == Look(source="probe", covered=(FIRST,))


def test_where_nvml_is_gone_the_nodes_alone_are_told(host: Path) -> None:
    lay(host, FIRST)
    put(host / "dev/nvidia0", b"")
    look = probe(context(host, "auto"), inventory(FIRST, node="/dev/nvidia0"))
    assert look == Look(source="probe", covered=(FIRST,), only=("node-unusable",))


def test_of_a_gpu_whose_node_cannot_be_opened_in_time_nvml_is_not_asked(folder: Path, host: Path) -> None:
    """A path that no process can be given stands for one that hangs: ``unopenable`` names both so."""
    lay(host, FIRST)
    library = install(folder, Machine(gpus=(gpu(0, figures=SOUND, faults=("* crash",)),)))
    look = probe(context(host, str(library)), inventory(FIRST, node="/dev/nvidia0\0"))
    assert (look.covered, look.symptoms, look.recoveries) == ((), (), ())
    assert look.unread.endswith("could not be opened in time")


@pytest.mark.usefixtures("real_nodes")
def test_a_node_that_the_driver_refuses_to_open_is_a_symptom(folder: Path, host: Path) -> None:
    lay(host, FIRST)
    (host / "dev").mkdir()
    os.mknod(host / "dev/nvidia0", stat.S_IFCHR | 0o666, os.makedev(240, 77))
    library = install(folder, Machine(gpus=(gpu(0, figures=SOUND),)))
    look = probe(context(host, str(library)), inventory(FIRST, node="/dev/nvidia0"))
    detail = "the GPU's node cannot be opened: No such device or address"
    assert look.symptoms == (Symptom(cause="node-unusable", address=FIRST, detail=detail),)
    assert (look.covered, look.recoveries) == ((FIRST,), ())
