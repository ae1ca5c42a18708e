"""The health of PCI devices in sysfs and the kernel's log."""

import os
from pathlib import Path

import pytest
from support.hosts.driver_files import link, put
from support.hosts.nvidia import places
from support.values.devices import accelerator, inventory
from support.values.health_devices import named

from cdigen.host.root import Root
from cdigen.model.health import HealthSample, LogRecord, Recovery, Symptom
from cdigen.vendors.kernel.pci import health as pci_health
from cdigen.vendors.kernel.pci.health import PCI_CAUSES, is_suspended, parse_log

GPU, OTHER, PORT, SWITCH = "0000:65:00.0", "0000:66:00.0", "0000:64:00.0", "0000:40:01.1"
HEADER = bytes.fromhex("de10 3023 0604 1000 a100 0203".replace(" ", "")) + bytes(52)
# Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats
FATAL = "Undefined 0\nData Link Protocol {0}\nSurprise Down Error 0\nTOTAL_ERR_FATAL {0}\n"
NON_FATAL = "Undefined 0\nCompletion Timeout {0}\nTOTAL_ERR_NONFATAL {0}\n"


def lay(
    root: Path,
    address: str = GPU,
    *,
    config: bytes = HEADER,
    status: str = "active",
    width: str = "16",
    fatal: int = 0,
    non_fatal: int = 0,
) -> Path:
    folder = root / "sys/devices/pci0000:40" / address
    for name, content in (
        ("config", config),
        ("power/runtime_status", f"{status}\n".encode()),
        ("current_link_width", f"{width}\n".encode()),
        ("aer_dev_fatal", FATAL.format(fatal).encode()),
        ("aer_dev_nonfatal", NON_FATAL.format(non_fatal).encode()),
    ):
        put(folder / name, content)
    link(root / "sys/bus/pci/devices" / address, f"../../../devices/pci0000:40/{address}")
    return folder


def check(root: Path, *addresses: str) -> HealthSample:
    devices = (accelerator(index, address) for index, address in enumerate(addresses or (GPU,)))
    return pci_health.check(places(root), inventory("nvidia", *devices))


def parsed(text: str) -> tuple[Symptom | Recovery, ...]:
    """Return the results for the line TEXT on a host with two devices below one switch."""
    devices = (
        accelerator(index, address, pci_path=("pci0000:40", SWITCH, port))
        for index, (address, port) in enumerate(((GPU, PORT), (OTHER, "0000:64:01.0")))
    )
    return parse_log(LogRecord(sequence=7, at_s=12.5, text=text), inventory("nvidia", *devices))


def test_the_counters_and_lanes_of_a_device_are_measured(tmp_path: Path) -> None:
    lay(tmp_path, fatal=2, non_fatal=18446744073709551615)
    sample = check(tmp_path)
    assert (sample.source, sample.covered, sample.symptoms) == ("files", (GPU,), ())
    assert [(each.cause, each.value, each.worse) for each in sample.measurements] == [
        ("pci-fatal-error", 2, "higher"),
        ("pci-nonfatal-error", 18446744073709551615, "higher"),
        ("pci-link-narrow", 16, "lower"),
    ]


def test_fatal_errors_that_the_port_of_a_device_counts_are_measured_for_the_device(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/pci0000:40" / PORT / GPU
    put(folder / "config", HEADER)
    put(folder.parent / "aer_dev_fatal", FATAL.format(3).encode())
    put(folder.parent / "aer_dev_nonfatal", NON_FATAL.format(3).encode())
    link(tmp_path / "sys/bus/pci/devices" / GPU, f"../../../devices/pci0000:40/{PORT}/{GPU}")
    measured = check(tmp_path).measurements
    assert [(each.cause, each.what, each.value) for each in measured] == [
        ("pci-fatal-error", "fatal PCIe errors of its port", 3)
    ]


def test_a_device_whose_config_space_has_only_ones_is_reported_as_off_the_bus(
    tmp_path: Path,
) -> None:
    lay(tmp_path, config=b"\xff" * 256, width="63")
    sample = check(tmp_path)
    assert named(sample.symptoms) == [(GPU, "pci-off-bus")]
    assert sample.measurements == ()


def test_a_virtual_function_whose_vendor_field_has_only_ones_is_not_off_the_bus(tmp_path: Path) -> None:
    lay(tmp_path, config=b"\xff" * 4 + HEADER[4:])
    assert check(tmp_path).symptoms == ()


def test_an_incomplete_config_space_is_not_a_symptom(tmp_path: Path) -> None:
    lay(tmp_path, config=b"\xff" * 10)
    assert check(tmp_path).symptoms == ()


@pytest.mark.parametrize("status", ["suspended", "suspending"])
def test_a_suspended_device_is_not_read(tmp_path: Path, status: str) -> None:
    lay(tmp_path, config=b"\xff" * 64, status=status)
    assert check(tmp_path) == HealthSample(source="files")
    assert is_suspended(Root(str(tmp_path)), GPU)


def test_a_device_without_power_management_is_read(tmp_path: Path) -> None:
    lay(tmp_path, status="unsupported")
    assert check(tmp_path).covered == (GPU,)
    lay(tmp_path, OTHER)
    (tmp_path / "sys/devices/pci0000:40" / OTHER / "power/runtime_status").unlink()
    assert check(tmp_path, OTHER).covered == (OTHER,)


def test_a_device_that_the_kernel_removed_is_reported(tmp_path: Path) -> None:
    lay(tmp_path, OTHER)
    sample = check(tmp_path, GPU, OTHER)
    assert named(sample.symptoms) == [(GPU, "pci-gone")]
    assert sample.covered == (GPU, OTHER)


def test_nothing_is_reported_without_a_pci_bus_or_for_invalid_addresses(tmp_path: Path) -> None:
    assert check(tmp_path) == HealthSample(source="files")
    lay(tmp_path)
    assert check(tmp_path, "", "amdgpu_xcp_3", "../../etc") == HealthSample(source="files")


def test_a_device_whose_config_space_cannot_be_read_is_not_covered(tmp_path: Path) -> None:
    folder = lay(tmp_path)
    (folder / "config").unlink()
    os.mkfifo(folder / "config")
    lay(tmp_path, OTHER)
    assert check(tmp_path, GPU, OTHER).covered == (OTHER,)


@pytest.mark.parametrize("width", ["63", "0", "", "x16", "Unknown", "-1", "²"])
def test_invalid_numbers_of_lanes_are_not_measured(tmp_path: Path, width: str) -> None:
    lay(tmp_path, width=width)
    assert "pci-link-narrow" not in [each.cause for each in check(tmp_path).measurements]


def test_the_devices_of_this_machine_are_covered_or_suspended() -> None:
    host = Root("/")
    addresses = host.names("/sys/bus/pci/devices")
    sample = check(Path("/"), *addresses)
    assert {address for address in addresses if not is_suspended(host, address)} == set(sample.covered)
    assert sample.symptoms == ()


# The sources are drivers/pci/pcie/aer.c and err.c, from Linux 4.19 to 6.12.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"nvidia {GPU}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, id=6500",
         [(GPU, "pci-fatal-error")]),
        (f"nvidia {GPU}: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible",
         [(GPU, "pci-fatal-error")]),
        (f"xe {GPU}: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
         [(GPU, "pci-nonfatal-error")]),
        (f"pcieport {PORT}: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer",
         [(GPU, "pci-fatal-error")]),
        (f"pcieport {PORT}: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
         [(GPU, "pci-nonfatal-error")]),
        (f"pcieport {SWITCH}: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
         []),
        (f"pcieport {PORT}: DPC: containment event, status:0x1f01 source:0x0000", [(GPU, "pci-fatal-error")]),
        (f"pcieport {SWITCH}: AER: device recovery failed",
         [(GPU, "pci-recovery-failed"), (OTHER, "pci-recovery-failed")]),
        (f"pcieport {PORT}: AER: Device recovery failed", [(GPU, "pci-recovery-failed")]),
        (f"pcieport {SWITCH}: AER: Root Port link has been reset", [(GPU, "reset"), (OTHER, "reset")]),
        (f"pcieport {SWITCH}: AER: Root Port link has been reset (0)", [(GPU, "reset"), (OTHER, "reset")]),
        (f"pcieport {PORT}: AER: Downstream Port link has been reset (0)", [(GPU, "reset")]),
        (f"pcieport {SWITCH}: AER: Root Port link has been reset (-25)", []),
        (f"pcieport {SWITCH}: AER: device recovery successful", []),
        (f"pcieport {PORT}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", []),
        ("pcieport 0000:00:1c.0: AER: device recovery failed", []),
        (f"my text: nvidia {GPU}: PCIe Bus Error: severity=Uncorrected (Fatal), type=x", []),
        ("", []),
    ],
)  # fmt: skip
def test_lines_of_the_pcie_error_handling_apply_to_the_devices_below_the_port(
    text: str, expected: list[tuple[str, str]]
) -> None:
    found = parsed(text)
    assert named(found) == expected
    assert all((each.detail, each.at_s) == (text, 12.5) for each in found)


def test_every_cause_of_the_pci_bus_has_a_rule(tmp_path: Path) -> None:
    lay(tmp_path, fatal=1)
    causes = {each.cause for each in check(tmp_path).measurements} | {"pci-gone", "pci-off-bus"}
    assert causes | {"pci-recovery-failed"} == {rule.cause for rule in PCI_CAUSES}
