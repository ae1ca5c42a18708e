"""PCI addresses and PCI devices as /sys names them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts.driver_files import link, put
from support.hosts.nvidia_kernel import Gpu, example_gpus, write_pci_device

from cdigen.host.root import Root
from cdigen.host.sysfs import bound, pci_address, pci_devices, pci_key

NVIDIA = 0x10DE
DISPLAY = (0x0300, 0x0302)
DEVICES = "sys/bus/pci/devices"


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("0000:1b:00.0", (0, 0x1B, 0, 0)),
        ("ffff:ff:1f.7", (0xFFFF, 0xFF, 0x1F, 7)),
        ("10000:01:00.0", (0x10000, 1, 0, 0)),
        ("00010000:01:00.0", (0x10000, 1, 0, 0)),
    ],
)
def test_an_address_is_parsed_into_four_numbers(address: str, key: tuple[int, int, int, int]) -> None:
    assert pci_key(address) == key


NO_ADDRESSES = (
    *("", "0", "0000:1b:00", "000:1b:00.0", "000000000:1b:00.0", "0000:1b:00.", "0000:1b:00.00"),
    *("0000:1g:00.0", "0000:1b:00.0\n", " 0000:1b:00.0", "0000-1b-00.0", "0000:1B:00.0", "+000:1b:00.0"),
    "\u0660000:1b:00.0",
)


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_an_invalid_address_has_no_key(text: str) -> None:
    assert pci_key(text) is None


def test_an_address_with_eight_capital_digits_gets_the_spelling_of_sysfs() -> None:
    assert pci_address("00000000:1B:00.0") == "0000:1b:00.0"
    assert pci_address("00010000:E1:00.0") == "10000:e1:00.0"
    assert pci_address("no address") is None


@given(st.tuples(*(st.integers(0, most) for most in (0xFFFFFFFF, 0xFF, 0xFF, 0xF))))
def test_a_formatted_address_is_parsed_to_the_same_key(key: tuple[int, int, int, int]) -> None:
    text = "{:04x}:{:02x}:{:02x}.{:x}".format(*key)
    assert pci_key(text) == key
    assert pci_address(text) == text


@given(st.text())
def test_no_text_raises_an_exception(text: str) -> None:
    assert (pci_key(text.lower()) is None) == (pci_address(text) is None)


@pytest.fixture
def gpu(tmp_path: Path) -> Gpu:
    """Write a GPU into /sys below `tmp_path`, and return the GPU."""
    (gpu,) = example_gpus(1)
    write_pci_device(tmp_path / "sys", gpu)
    return gpu


def devices(root: Path) -> tuple[tuple[str, str], ...]:
    return pci_devices(Root(str(root)), vendor=NVIDIA, classes=DISPLAY)


def test_a_device_is_listed_with_its_driver(tmp_path: Path, gpu: Gpu) -> None:
    assert devices(tmp_path) == ((gpu.bdf, "nvidia"),)


def test_a_device_without_a_driver_has_an_empty_driver_name(tmp_path: Path, gpu: Gpu) -> None:
    (tmp_path / DEVICES / gpu.bdf / "driver").unlink()
    assert devices(tmp_path) == ((gpu.bdf, ""),)


def test_devices_are_sorted_by_address(tmp_path: Path) -> None:
    for address in ("10000:01:00.0", "ffff:01:00.0", "0000:0a:00.0"):
        put(tmp_path / DEVICES / address / "vendor", b"0x10de\n")
        put(tmp_path / DEVICES / address / "class", b"0x030000\n")
    assert [address for address, _ in devices(tmp_path)] == ["0000:0a:00.0", "ffff:01:00.0", "10000:01:00.0"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("vendor", b"0x1002\n"),
        ("class", b"0x040300\n"),
        ("vendor", b""),
        ("class", b"rubbish"),
        ("vendor", b"\xff"),
    ],
)
def test_a_device_of_another_vendor_or_class_is_omitted(
    tmp_path: Path, gpu: Gpu, file: str, content: bytes
) -> None:
    put(tmp_path / DEVICES / gpu.bdf / file, content)
    assert devices(tmp_path) == ()


@pytest.mark.parametrize("file", ["vendor", "class"])
def test_a_device_that_disappears_is_omitted(tmp_path: Path, gpu: Gpu, file: str) -> None:
    (tmp_path / DEVICES / gpu.bdf / file).unlink()
    assert devices(tmp_path) == ()


def test_a_host_without_sys_has_no_devices(tmp_path: Path) -> None:
    assert devices(tmp_path) == ()


def test_an_entry_that_is_not_an_address_is_ignored(tmp_path: Path, gpu: Gpu) -> None:
    link(tmp_path / DEVICES / "alias", gpu.bdf)
    assert devices(tmp_path) == ((gpu.bdf, "nvidia"),)


def test_bound_lists_only_the_pci_functions_of_a_driver_by_address(tmp_path: Path) -> None:
    for name in ("10000:01:00.0", "0000:c5:00.0", "bind", "module", "new_id", "uevent", "unbind"):
        put(tmp_path / "sys/bus/pci/drivers/xe" / name)
    assert bound(Root(str(tmp_path)), "xe") == ["0000:c5:00.0", "10000:01:00.0"]
    assert bound(Root(str(tmp_path)), "i915") == []
