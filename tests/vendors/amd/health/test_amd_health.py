"""The health of AMD's GPUs: log lines of amdgpu from Linux 5.15 to 6.17, counters, KFD, and uevents."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.hosts import amd_tree
from support.hosts.amd import discover, places
from support.hosts.driver_files import put
from support.values.health_devices import device_event, named
from support.waiting import by_deadline

from cdigen.model.health import LogRecord, Measurement
from cdigen.model.inventory import Inventory
from cdigen.value import replace
from cdigen.vendors.amd.health import HEALTH, probe

pytestmark = pytest.mark.usefixtures("real_nodes")

GPU, OTHER = amd_tree.ADDRESSES[:2]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Write a host with a partitioned and a whole MI300X, with their files on the PCI bus."""
    gpus = (*amd_tree.mi300x(8, count=1), *amd_tree.mi300x(1, count=2)[1:])
    amd_tree.write(tmp_path, gpus)
    for address in (GPU, OTHER):
        put(tmp_path / "sys/devices/pci0000:00" / address / "config", bytes.fromhex("0210a174") + bytes(60))
        put(tmp_path / "sys/devices/pci0000:00" / address / "power/runtime_status", b"active\n")
    return tmp_path


def ras(host: Path, address: str, block: str, text: str) -> None:
    put(host / "sys/devices/pci0000:00" / address / f"ras/{block}_err_count", text.encode())


def computing(measurements: Sequence[Measurement]) -> dict[str, int]:
    return {each.address: each.value for each in measurements if each.cause == "amdgpu-kfd-lost"}


# amdgpu_device.c, amdgpu_ras.c, amdgpu_ras_eeprom.c, kfd_int_process_v9.c, drm_drv.c
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amdgpu 0000:05:00.0: amdgpu: GPU reset begin!", "amdgpu-resetting"),
        ("amdgpu 0000:05:00.0: GPU reset begin!", "amdgpu-resetting"),
        ("amdgpu 0000:05:00.0: amdgpu: GPU reset begin!. Source:  1", "amdgpu-resetting"),
        ("amdgpu 0000:05:00.0: amdgpu: GPU reset(2) succeeded!", "gone"),
        ("amdgpu 0000:05:00.0: amdgpu: GPU reset(2) failed", "amdgpu-reset-failed"),
        ("amdgpu 0000:05:00.0: amdgpu: GPU reset(1) failed with error -110 ", "amdgpu-reset-failed"),
        ("amdgpu 0000:05:00.0: amdgpu: GPU reset end with ret = -62", "amdgpu-reset-failed"),
        ("amdgpu 0000:05:00.0: amdgpu: GPU reset end with ret = 0", ""),
        ("amdgpu 0000:05:00.0: amdgpu: GPU reset succeeded, trying to resume", "reset"),
        ("amdgpu 0000:05:00.0: amdgpu: Guilty job already signaled, skipping HW reset", ""),
        ("amdgpu 0000:05:00.0: amdgpu: Ring comp_1.1.0 reset succeeded", ""),
        ("amdgpu 0000:05:00.0: amdgpu: device lost from bus!", "amdgpu-lost"),
        ("amdgpu 0000:05:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
         "amdgpu-uncorrectable-error"),
        ("amdgpu 0000:05:00.0: amdgpu: {7}socket: 0, die: 1, 3 new uncorrectable hardware errors detected",
         "amdgpu-uncorrectable-error"),
        ("amdgpu 0000:05:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
         "amdgpu-uncorrectable-error"),
        ("amdgpu 0000:05:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block", ""),
        ("amdgpu 0000:05:00.0: amdgpu: 9 correctable hardware errors detected in umc block", ""),
        ("amdgpu 0000:05:00.0: amdgpu: RAS poison consumption, fall back to gpu reset flow: client id 27",
         "amdgpu-poison"),
        ("amdgpu 0000:05:00.0: amdgpu: RAS poison consumption, unmap queue flow succeeded: client id 27", ""),
        ("amdgpu 0000:05:00.0: amdgpu: {4}poison is consumed by client 27, kick off gpu reset flow",
         "amdgpu-poison"),
        ("amdgpu 0000:05:00.0: amdgpu: poison is consumed by source 2, kick off gpu reset flow",
         "amdgpu-poison"),
        ("amdgpu 0000:05:00.0: amdgpu: GPU reset for GFX RAS poison consumption is issued!", "amdgpu-poison"),
        ("amdgpu 0000:05:00.0: amdgpu: RAS records:257 exceed threshold:256, GPU will not be initialized.",
         "amdgpu-bad-pages"),
        ("amdgpu 0000:05:00.0: amdgpu: Saved bad pages 256 reaches threshold value 256", "amdgpu-bad-pages"),
        ("amdgpu 0000:05:00.0: amdgpu: Saved bad pages(256) reaches threshold value(256).",
         "amdgpu-bad-pages"),
        ("amdgpu 0000:05:00.0: amdgpu: This GPU is in BAD status.", "amdgpu-bad-pages"),
        ("amdgpu 0000:05:00.0: [drm] device wedged, but recovered through reset", ""),
        ("amdgpu 0000:05:00.0: [drm] device wedged, but no recovery needed", ""),
        ("amdgpu 0000:05:00.0: [drm] device wedged, needs recovery", "drm-wedged"),
        ("[drm] Initialized amdgpu 3.57.0 20150101 for 0000:05:00.0 on minor 1", "reload"),
        ("amdgpu 0000:05:00.0: [drm] Initialized amdgpu 3.64.0 for 0000:05:00.0 on minor 1", "reload"),
        ("[drm] Initialized amdgpu 3.57.0 20150101 for amdgpu_xcp_1 on minor 2", ""),
        ("amdgpu 0000:05:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3", ""),
        ("pcieport 0000:05:00.0: amdgpu: GPU reset begin!", ""),
        ("amdgpu 0000:05:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
         "pci-fatal-error"),
        ("amdgpu: GPU reset begin!", ""),
    ],
)  # fmt: skip
def test_lines_of_amdgpu_report_the_expected_cause_or_recovery(host: Path, text: str, expected: str) -> None:
    found = HEALTH.parse_log(LogRecord(sequence=1, at_s=3.5, text=text), discover(host))
    assert named(found) == ([(GPU, expected)] if expected else [])
    assert all((each.detail, each.at_s) == (text, 3.5) for each in found)


def test_a_check_covers_the_gpus_and_measures_whether_kfd_lists_them(host: Path) -> None:
    sample = HEALTH.check(places(host), discover(host))
    assert (sample.covered, sample.symptoms) == ((GPU, OTHER), ())
    assert computing(sample.measurements) == {GPU: 1, OTHER: 1}


def test_lanes_that_an_idle_gpu_disables_are_not_measured(host: Path) -> None:
    put(host / "sys/devices/pci0000:00" / GPU / "current_link_width", b"1\n")
    measured = HEALTH.check(places(host), discover(host)).measurements
    assert "pci-link-narrow" not in [each.cause for each in measured]


def test_a_gpu_that_kfd_no_longer_lists_has_the_measurement_0(host: Path) -> None:
    inventory = discover(host)
    first = replace(inventory.accelerators[1], nodes=())
    inventory = replace(inventory, accelerators=(inventory.accelerators[0], first))
    assert computing(HEALTH.check(places(host), inventory).measurements) == {GPU: 1, OTHER: 0}


def test_a_probe_counts_the_uncorrectable_errors_of_each_block(host: Path) -> None:
    ras(host, GPU, "umc", "ue: 0\nce: 7\nde: 1\n")
    ras(host, GPU, "gfx", "ue: 3\nce: 0\n")
    ras(host, OTHER, "umc", "Query currently inaccessible\n")
    put(host / "sys/devices/pci0000:00" / OTHER / "ras/features", b"feature mask: 0x4\n")
    sample = HEALTH.probe(places(host), discover(host))
    assert (sample.source, sample.covered, sample.unread) == ("probe", (GPU, OTHER), "")
    assert {(each.address, each.what, each.value, each.worse) for each in sample.measurements} == {
        (GPU, "uncorrectable errors of umc", 0, "higher"),
        (GPU, "uncorrectable errors of gfx", 3, "higher"),
    }


def test_a_probe_does_not_resume_suspended_gpus(host: Path) -> None:
    ras(host, GPU, "umc", "ue: 0\nce: 7\n")
    put(host / "sys/devices/pci0000:00" / GPU / "power/runtime_status", b"suspended\n")
    assert HEALTH.probe(places(host), discover(host)).covered == ()


def test_a_gpu_that_hangs_during_a_probe_does_not_delay_other_gpus(
    host: Path, hanging_gpu: str, inventory: Inventory
) -> None:
    sample = by_deadline(
        lambda deadline_s: probe(places(host), inventory, deadline_s=deadline_s),
        lambda sample: sample.covered,
    )
    assert sample.covered == (OTHER,)
    assert sample.unread == f"{hanging_gpu}: its driver does not answer"


@pytest.fixture
def inventory(host: Path) -> Inventory:
    """Return the inventory of the host."""
    return discover(host)


@pytest.fixture
def hanging_gpu(host: Path, inventory: Inventory) -> str:  # noqa: ARG001 - discovery runs before the change
    """Replace a counter file of a GPU by a FIFO without a writer, so that reads hang; return the address."""
    ras(host, GPU, "umc", "")
    file = host / "sys/devices/pci0000:00" / GPU / "ras/umc_err_count"
    file.unlink()
    os.mkfifo(file)
    ras(host, OTHER, "umc", "ue: 0\nce: 0\n")
    return GPU


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (("drm", "change", GPU, ("WEDGED", "none")), ""),
        (("drm", "change", GPU, ("WEDGED", "rebind,bus-reset")), "drm-wedged"),
        (("drm", "change", GPU, ("WEDGED", "unknown")), "drm-wedged"),
        (("drm", "change", GPU, ("SYNTH_ARG_WEDGED", "rebind")), ""),
        (("drm", "change", GPU, ("HOTPLUG", "1")), ""),
        (("drm", "change", "0000:ff:00.0", ("WEDGED", "none")), ""),
        (("pci", "bind", GPU, ("DRIVER", "amdgpu")), "reload"),
        (("pci", "unbind", GPU, ("DRIVER", "amdgpu")), ""),
    ],
)
def test_uevents_report_wedged_gpus_and_bound_drivers(
    host: Path, event: tuple[str, str, str, tuple[str, str]], expected: str
) -> None:
    found = HEALTH.parse_uevents(device_event(*event), discover(host))
    assert named(found) == ([(GPU, expected)] if expected else [])


def test_a_uevent_that_root_wrote_to_sysfs_is_ignored(host: Path) -> None:
    for kind in (("pci", "bind"), ("drm", "change")):
        event = device_event(*kind, GPU, ("SYNTH_UUID", "0"), ("WEDGED", "rebind"))
        assert HEALTH.parse_uevents(event, discover(host)) == ()
