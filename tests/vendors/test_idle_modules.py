"""The conditions under which cdigen reports a loaded kernel module that has no device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.cycles import CycleRunner
from support.daemon.host import Host
from support.hosts import amd_tree, intel_tree
from support.hosts.driver_files import link, put

from cdigen.host.root import Root
from cdigen.model.errors import HostError
from cdigen.pipeline import discovery
from cdigen.vendors import registry

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")


def lay_idle(root: Path) -> None:
    """Write the files of the loaded module amdgpu, which has no device."""
    (root / "sys/bus/pci/drivers/amdgpu").mkdir(parents=True)
    link(root / "sys/module/amdgpu/drivers/pci:amdgpu", "../../../bus/pci/drivers/amdgpu")


def lay_on_bus(root: Path, driver: str = "", vendor: str = "0x1002") -> None:
    folder = root / "sys/bus/pci/devices/0000:03:00.0"
    put(folder / "vendor", f"{vendor}\n".encode())
    put(folder / "class", b"0x030000\n")
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        link(folder / "driver", f"../../drivers/{driver}")


@pytest.fixture
def laptop(laptop: Path) -> Path:
    """Return a host with Intel's devices, and with the loaded module amdgpu, which has no device."""
    lay_idle(laptop)
    return laptop


def relevant_vendors(root: Path, kinds: dict[str, str], inventories: tuple[str, ...] = ()) -> list[str]:
    """Return the reported vendors of KINDS (vendor -> kind of error). INVENTORIES are the other vendors."""
    failures = {name: HostError("it failed", hint="", kind=kind) for name, kind in kinds.items()}
    found = dict.fromkeys(inventories)
    return list(discovery.relevant_failures(found, failures, Root(str(root))))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", registry.VENDORS)
def test_a_module_without_a_device_is_not_reported_if_another_vendor_has_devices(
    tmp_path: Path, name: str
) -> None:
    assert relevant_vendors(tmp_path, {name: "no-gpu"}, ("other",)) == []


def test_a_module_without_a_device_is_reported_if_no_vendor_has_a_device(tmp_path: Path) -> None:
    kinds = {"nvidia": "driver-not-loaded", "amd": "no-gpu", "intel": "driver-not-loaded"}
    assert relevant_vendors(tmp_path, kinds) == ["amd"]


def test_a_gpu_without_its_module_is_reported_instead_of_a_module_without_a_gpu(tmp_path: Path) -> None:
    lay_on_bus(tmp_path)
    assert relevant_vendors(tmp_path, {"nvidia": "no-gpu", "amd": "driver-not-loaded"}) == ["amd"]


def test_diff_ignores_a_module_without_a_device(cdigen: Run, laptop: Path) -> None:
    assert cdigen("generate", "--root", laptop, "--write").code == 0
    done = cdigen("diff", "--root", laptop)
    assert (done.code, done.out) == (0, "")


def test_doctor_ignores_a_module_without_a_device(cdigen: Run, laptop: Path) -> None:
    rows = cdigen("doctor", "--root", laptop, "--json").json
    assert "no GPU: the module amdgpu" not in str(rows)


@pytest.mark.parametrize("driver", ["", "amdgpu"])
def test_every_command_reports_a_loaded_driver_that_is_not_bound_to_its_gpu(
    cdigen: Run, laptop: Path, driver: str
) -> None:
    lay_on_bus(laptop, driver)
    for command in (("generate", "--write"), ("inspect",), ("doctor",)):
        done = cdigen(*command, "--root", laptop)
        assert "no GPU: the module amdgpu" in done.out + done.err, command
    assert ("devices without a driver: 0000:03:00.0" in done.out) is (driver == "")
    assert cdigen("generate", "--root", laptop, "--write", "--strict").failed(3, "the module amdgpu")


def test_a_gpu_of_a_virtual_machine_is_not_reported(cdigen: Run, laptop: Path) -> None:
    lay_on_bus(laptop, "vfio-pci")
    for command in (("generate", "--write", "--strict"), ("inspect",), ("doctor",)):
        done = cdigen(*command, "--root", laptop)
        assert "0000:03:00.0" not in done.out + done.err, command


@pytest.mark.parametrize("driver", ["", "nouveau"])
def test_only_doctor_and_inspect_report_a_gpu_whose_driver_is_not_loaded(
    cdigen: Run, laptop: Path, driver: str
) -> None:
    lay_on_bus(laptop, driver, vendor="0x10de")
    text = f"0000:03:00.0 (nvidia): bound to {f'the driver {driver}' if driver else 'no driver'}"
    for command in ("inspect", "doctor"):
        done = cdigen(command, "--root", laptop)
        assert text in done.out + done.err, command
        assert "cdigen doctor --vendor nvidia" in done.out + done.err
    done = cdigen("generate", "--root", laptop, "--write", "--strict")
    assert (done.code, "nvidia" in done.err) == (0, False)


def test_a_vendor_that_the_user_selects_is_always_reported(cdigen: Run, laptop: Path) -> None:
    assert cdigen("generate", "--root", laptop, "--vendor", "amd").failed(3, "the module amdgpu is loaded")


def test_the_daemon_does_not_wait_for_a_module_without_a_device(tmp_path: Path) -> None:
    host = Host(tmp_path / "host").prepare()
    host.configure()
    intel_tree.lay(host.root, *intel_tree.laptop())
    lay_idle(host.root)
    cycle = CycleRunner(host).run_cycle()
    assert (cycle.report.result, cycle.needs_retry) == ("changed", False)


def test_the_daemon_waits_for_a_gpu_that_is_not_bound_to_its_driver_yet(tmp_path: Path) -> None:
    host = Host(tmp_path / "host").prepare()
    host.configure()
    amd_tree.write(host.root, ())
    lay_on_bus(host.root)
    runner = CycleRunner(host)
    assert runner.run_cycle().needs_retry
    assert runner.state(after_s=2.0) == "degraded"
