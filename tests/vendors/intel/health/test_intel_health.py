"""The health of Intel's devices: log lines, uevents, the status of Gaudis, the health state of xe GPUs."""

from pathlib import Path

import pytest
from support.hosts import intel_tree
from support.hosts.driver_files import put
from support.hosts.intel import discover, places
from support.hosts.intel_tree import Device, one_of_each_driver
from support.values.health_devices import device_event, named

from cdigen.model.health import LogRecord
from cdigen.vendors.intel.health import HEALTH

pytestmark = pytest.mark.usefixtures("real_nodes")

DEVICES = one_of_each_driver()
XE, I915, NPU, GAUDI = (device.address for device in DEVICES)


def folder(host: Path, address: str) -> Path:
    return host / next(device.folder for device in DEVICES if device.address == address)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Write a host with an active device of each driver."""
    intel_tree.lay(tmp_path, *DEVICES)
    for device in DEVICES:
        put(tmp_path / device.folder / "config", bytes.fromhex("8680") + bytes(62))
        put(tmp_path / device.folder / "power/runtime_status", b"active\n")
    return tmp_path


def symptoms(host: Path) -> list[tuple[str, str]]:
    return named(HEALTH.check(places(host), discover(host)).symptoms)


# The sources are xe_device.c, intel_reset.c (gt_err() of Linux 6.4 and dev_err() of Linux 5.4), ivpu_pm.c and
# drm_drv.c.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"xe {XE}: [drm] *ERROR* CRITICAL: Xe has declared device {XE} as wedged.", (XE, "xe-wedged")),
        (f"xe {XE}: [drm] device wedged, needs recovery", (XE, "drm-wedged")),
        (f"xe {XE}: [drm] Initialized xe 1.1.0 for {XE} on minor 1", (XE, "reload")),
        (f"xe {XE}: [drm] Tile0: GT0: Timedout job: seqno=4294967169, lrc_seqno=4294967169", None),
        (f"xe {XE}: [drm] GT0: trying reset from guc_exec_queue_timedout_job", None),
        (f"i915 {I915}: [drm] *ERROR* GT0: Failed to reset chip", (I915, "i915-wedged")),
        (f"i915 {I915}: Failed to reset chip", (I915, "i915-wedged")),
        (f"i915 {I915}: [drm] *ERROR* Failed to initialise HW following reset (-5)", (I915, "i915-wedged")),
        (f"i915 {I915}: [drm] *ERROR* intel_gt_reset_global timed out, cancelling all in-flight rendering.",
         (I915, "i915-wedged")),
        (f"i915 {I915}: [drm] GPU HANG: ecode 12:1:85dffffb, in Xorg [1234]", None),
        (f"i915 {I915}: [drm] GT0: Resetting chip for stopped heartbeat on rcs0", None),
        (f"[drm] Initialized i915 1.6.0 20230929 for {I915} on minor 0", (I915, "reload")),
        (f"intel_vpu {NPU}: [drm] *ERROR* ivpu_pm_recovery_work(): Recovering the NPU (reset #1)",
         (NPU, "ivpu-recovering")),
        (f"intel_vpu {NPU}: [drm] *ERROR* ivpu_rpm_get(): Failed to resume NPU: -110", (NPU, "ivpu-failed")),
        (f"intel_vpu {NPU}: [drm] *ERROR* ivpu_resume(): Failed to resume the FW: -5", (NPU, "ivpu-failed")),
        (f"intel_vpu {NPU}: ivpu_resume(): Failed to resume the FW: -110. Retrying cold boot..", None),
        (f"intel_vpu {NPU}: [drm] *ERROR* ivpu_pm_recovery_work(): Recovering the VPU (reset #1)",
         (NPU, "ivpu-recovering")),
        (f"xe {XE}: Failed to resume NPU: -110", None),
        (f"xe {XE}: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
         (XE, "pci-nonfatal-error")),
        ("xe 0000:ff:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:ff:00.0 as wedged.",
         ("0000:ff:00.0", "xe-wedged")),
    ],
)  # fmt: skip
def test_lines_of_intels_drivers_report_the_expected_cause_or_recovery(
    host: Path, text: str, expected: tuple[str, str] | None
) -> None:
    found = HEALTH.parse_log(LogRecord(sequence=1, at_s=3.5, text=text), discover(host))
    assert named(found) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (("drm", "change", I915, ("ERROR", "1")), ""),
        (("drm", "change", I915, ("RESET", "1")), "i915-resetting"),
        (("drm", "change", I915, ("ERROR", "0")), "reset"),
        (("drm", "change", XE, ("WEDGED", "rebind,bus-reset")), "drm-wedged"),
        (("drm", "change", XE, ("WEDGED", "vendor-specific")), "drm-wedged"),
        (("pci", "change", NPU, ("IVPU_PM_EVENT", "IVPU_RECOVER")), "reset"),
        (("pci", "bind", XE, ("DRIVER", "xe")), "reload"),
        (("drm", "add", I915, ("RESET", "1")), ""),
        (("drm", "change", "", ("RESET", "1")), ""),
    ],
)
def test_uevents_of_intels_drivers_report_the_expected_cause_or_recovery(
    host: Path, event: tuple[str, str, str, tuple[str, str]], expected: str
) -> None:
    found = HEALTH.parse_uevents(device_event(*event), discover(host))
    assert named(found) == ([(event[2], expected)] if expected else [])


def test_healthy_devices_have_no_symptoms(host: Path) -> None:
    put(folder(host, GAUDI) / "status", b"operational\n")
    assert symptoms(host) == []


# Documentation/ABI/testing/sysfs-driver-habanalabs, of Linux 5.1 and 5.15
@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ("disabled", "gaudi-disabled"),
        ("Malfunction", "gaudi-disabled"),
        ("needs reset", "gaudi-needs-reset"),
        ("in reset", "gaudi-in-reset"),
        ("In reset", "gaudi-in-reset"),
    ],
)
def test_a_gaudis_status_determines_its_health(host: Path, status: str, cause: str) -> None:
    put(folder(host, GAUDI) / "status", f"{status}\n".encode())
    assert symptoms(host) == [(GAUDI, cause)]


@pytest.mark.parametrize("status", ["in reset after device release", "in device creation", "", "new word"])
def test_a_gaudi_with_any_other_status_is_healthy(host: Path, status: str) -> None:
    put(folder(host, GAUDI) / "status", f"{status}\n".encode())
    assert symptoms(host) == []


def test_a_gaudis_status_is_also_found_in_the_folder_of_its_node(host: Path) -> None:
    put(folder(host, GAUDI) / "accel/accel1/device/status", b"disabled\n")
    assert symptoms(host) == [(GAUDI, "gaudi-disabled")]


def test_a_gpu_with_broken_firmware_is_reported(host: Path) -> None:
    put(folder(host, XE) / "survivability_mode", b"Runtime\n")
    assert symptoms(host) == [(XE, "xe-survivability")]


def test_the_probe_reports_a_gpu_in_a_critical_state(host: Path) -> None:
    inventory = discover(host)
    assert HEALTH.probe(places(host), inventory).covered == ()
    put(folder(host, XE) / "gpu_health", b"warning\n")
    probed = HEALTH.probe(places(host), inventory)
    assert (probed.source, probed.covered, probed.symptoms) == ("probe", (XE,), ())
    put(folder(host, XE) / "gpu_health", b"critical\n")
    assert named(HEALTH.probe(places(host), inventory).symptoms) == [(XE, "xe-health-critical")]
    put(folder(host, XE) / "power/runtime_status", b"suspended\n")
    assert HEALTH.probe(places(host), inventory).covered == ()


def test_a_gpu_that_is_bound_to_vfio_is_checked(tmp_path: Path) -> None:
    device = Device(address=XE, device_id=intel_tree.B60, driver="vfio-pci", group=70)
    intel_tree.lay(tmp_path, device, intel_tree.gpu(0, I915, "0xa780", "i915"))
    put(tmp_path / device.folder / "config", b"\xff" * 64)
    inventory = discover(tmp_path, vfio=True)
    assert named(HEALTH.check(places(tmp_path), inventory).symptoms) == [(XE, "pci-off-bus")]
