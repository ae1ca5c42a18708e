"""The doctor compares the numbers of GPUs with those of NVML, also on hosts without MIG."""

from pathlib import Path

from support.hosts.driver_files import put
from support.nvml.standin import Gpu, Machine, gpu, install
from support.values import devices

from cdigen.host.root import Root
from cdigen.model.findings import Finding
from cdigen.model.inventory import Inventory
from cdigen.value import replace
from cdigen.vendors.context import DiscoveryContext
from cdigen.vendors.nvidia.devices.numbers import RULE
from cdigen.vendors.nvidia.vendor import VENDOR


def inventory(*gpus: Gpu) -> Inventory:
    found = (devices.accelerator(index, each.address[4:].lower()) for index, each in enumerate(gpus))
    return devices.inventory("nvidia", *found)


def reported(folder: Path, root: Path, found: Inventory, *in_nvml: Gpu) -> list[Finding]:
    """Return the diagnostic findings on the numbers of FOUND, with the GPUs IN_NVML in NVML's order."""
    host = Root(str(root))
    library = install(folder, Machine(gpus=in_nvml))
    context = DiscoveryContext(host=host, driver=host, dev=host, nvml=str(library))
    return [finding for finding in VENDOR.diagnostics(context, found) if finding.rule == RULE]


def test_numbers_that_differ_are_a_diagnostic_finding_without_mig(folder: Path, tmp_path: Path) -> None:
    first, second = gpu(0), gpu(1)
    (finding,) = reported(folder, tmp_path, inventory(first, second), second, first)
    assert finding.severity == "warning"
    assert f"{first.address[4:]} is GPU 0 in cdigen and 1 in NVML" in finding.message
    assert f"{second.address[4:].lower()} is GPU 1 in cdigen and 0 in NVML" in finding.message


def test_equal_numbers_are_no_finding(folder: Path, tmp_path: Path) -> None:
    assert reported(folder, tmp_path, inventory(gpu(0), gpu(1)), gpu(0), gpu(1)) == []


def test_numbers_that_the_discovery_has_reported_are_not_reported_again(folder: Path, tmp_path: Path) -> None:
    first, second = gpu(0), gpu(1)
    (finding,) = reported(folder, tmp_path, inventory(first, second), second, first)
    known = replace(inventory(first, second), findings=(finding,))
    assert reported(folder, tmp_path, known, second, first) == []


def test_nvml_is_not_queried_while_a_gpu_is_suspended(folder: Path, tmp_path: Path) -> None:
    first, second = gpu(0), gpu(1)
    address = second.address[4:].lower()
    put(tmp_path / f"sys/bus/pci/devices/{address}/power/runtime_status", b"suspended\n")
    assert reported(folder, tmp_path, inventory(first, second), second, first) == []
