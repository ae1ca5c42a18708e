"""What sysfs and the kernel's log tell of PCI devices."""

import os
from pathlib import Path

import pytest
from support.hosts.driver_files import link, put
from support.values.devices import accelerator, inventory
from support.values.health_devices import named

from cdigen.host.root import Root
from cdigen.model.health import LogRecord, Look, Recovery, Symptom
from cdigen.vendors.kernel.pci_health import PCI_CAUSES, heard, look_at, sleeps

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


def look(root: Path, *addresses: str) -> Look:
    return look_at(Root(str(root)), addresses or (GPU,))


def hear(text: str) -> tuple[Symptom | Recovery, ...]:
    """Return the meaning of a line on a host with two devices below one switch."""
    devices = (
        accelerator(index, address, pci_path=("pci0000:40", SWITCH, port))
        for index, (address, port) in enumerate(((GPU, PORT), (OTHER, "0000:64:01.0")))
    )
    return heard(LogRecord(sequence=7, at_s=12.5, text=text), inventory("nvidia", *devices))


def test_a_device_that_answers_has_its_counters_and_lanes_measured(tmp_path: Path) -> None:
    lay(tmp_path, fatal=2, non_fatal=18446744073709551615)
    seen = look(tmp_path)
    assert (seen.source, seen.covered, seen.symptoms) == ("files", (GPU,), ())
    assert [(each.cause, each.value, each.worse) for each in seen.measurements] == [
        ("pci-fatal-error", 2, "higher"),
        ("pci-nonfatal-error", 18446744073709551615, "higher"),
        ("pci-link-narrow", 16, "lower"),
    ]


def test_fatal_errors_that_the_port_above_counted_are_the_devices(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/pci0000:40" / PORT / GPU
    put(folder / "config", HEADER)
    put(folder.parent / "aer_dev_fatal", FATAL.format(3).encode())
    put(folder.parent / "aer_dev_nonfatal", NON_FATAL.format(3).encode())
    link(tmp_path / "sys/bus/pci/devices" / GPU, f"../../../devices/pci0000:40/{PORT}/{GPU}")
    measured = look(tmp_path).measurements
    assert [(each.cause, each.what, each.value) for each in measured] == [
        ("pci-fatal-error", "fatal PCIe errors of its port", 3)
    ]


def test_a_device_whose_config_space_reads_as_ones_is_off_the_bus_and_nothing_else_is_asked(
    tmp_path: Path,
) -> None:
    lay(tmp_path, config=b"\xff" * 256, width="63")
    seen = look(tmp_path)
    assert named(seen.symptoms) == [(GPU, "pci-off-bus")]
    assert seen.measurements == ()


def test_a_virtual_function_that_answers_ones_for_its_maker_alone_is_not_off_the_bus(tmp_path: Path) -> None:
    lay(tmp_path, config=b"\xff" * 4 + HEADER[4:])
    assert look(tmp_path).symptoms == ()


def test_a_config_space_that_is_cut_short_says_nothing(tmp_path: Path) -> None:
    lay(tmp_path, config=b"\xff" * 10)
    assert look(tmp_path).symptoms == ()


@pytest.mark.parametrize("status", ["suspended", "suspending"])
def test_a_device_that_sleeps_is_not_read(tmp_path: Path, status: str) -> None:
    lay(tmp_path, config=b"\xff" * 64, status=status)
    assert look(tmp_path) == Look(source="files")
    assert sleeps(Root(str(tmp_path)), GPU)


def test_a_device_without_power_management_is_read(tmp_path: Path) -> None:
    lay(tmp_path, status="unsupported")
    assert look(tmp_path).covered == (GPU,)
    lay(tmp_path, OTHER)
    (tmp_path / "sys/devices/pci0000:40" / OTHER / "power/runtime_status").unlink()
    assert look(tmp_path, OTHER).covered == (OTHER,)


def test_a_device_that_the_kernel_removed_is_told(tmp_path: Path) -> None:
    lay(tmp_path, OTHER)
    seen = look(tmp_path, GPU, OTHER)
    assert named(seen.symptoms) == [(GPU, "pci-gone")]
    assert seen.covered == (GPU, OTHER)


def test_without_a_pci_bus_and_for_other_addresses_nothing_is_said(tmp_path: Path) -> None:
    assert look(tmp_path) == Look(source="files")
    lay(tmp_path)
    assert look(tmp_path, "", "amdgpu_xcp_3", "../../etc") == Look(source="files")


def test_a_device_whose_config_space_cannot_be_read_is_not_covered(tmp_path: Path) -> None:
    folder = lay(tmp_path)
    (folder / "config").unlink()
    os.mkfifo(folder / "config")
    lay(tmp_path, OTHER)
    assert look(tmp_path, GPU, OTHER).covered == (OTHER,)


@pytest.mark.parametrize("width", ["63", "0", "", "x16", "Unknown", "-1", "²"])
def test_lanes_that_cannot_be_are_not_measured(tmp_path: Path, width: str) -> None:
    lay(tmp_path, width=width)
    assert "pci-link-narrow" not in [each.cause for each in look(tmp_path).measurements]


def test_the_devices_of_this_machine_are_covered_or_asleep() -> None:
    host = Root("/")
    addresses = host.names("/sys/bus/pci/devices")
    seen = look_at(host, addresses)
    assert {address for address in addresses if not sleeps(host, address)} == set(seen.covered)
    assert seen.symptoms == ()


# drivers/pci/pcie/aer.c and err.c, from Linux 4.19 to 6.12; the kernel adds "(Receiver ID)" or others.
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
        (f"I say: nvidia {GPU}: PCIe Bus Error: severity=Uncorrected (Fatal), type=x", []),
        ("", []),
    ],
)  # fmt: skip
def test_lines_of_pcies_error_handling_are_for_the_devices_that_they_concern(
    text: str, expected: list[tuple[str, str]]
) -> None:
    found = hear(text)
    assert named(found) == expected
    assert all((each.detail, each.at_s) == (text, 12.5) for each in found)


def test_every_cause_that_is_told_has_its_rule(tmp_path: Path) -> None:
    lay(tmp_path, fatal=1)
    told = {each.cause for each in look(tmp_path).measurements} | {"pci-gone", "pci-off-bus"}
    assert told | {"pci-recovery-failed"} == {rule.cause for rule in PCI_CAUSES}
