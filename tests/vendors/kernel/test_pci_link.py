"""The PCI function of a card that has the link to the slot, with PCI paths of real machines."""

from pathlib import Path

import pytest
from support.hosts.driver_files import link, put
from support.hosts.nvidia import places
from support.values.devices import accelerator, inventory

from cdigen.host.root import Root
from cdigen.vendors.kernel.pci import health as pci_health
from cdigen.vendors.kernel.pci.place import link_folder

AMD, INTEL, NVIDIA, BROADCOM = "0x1002", "0x8086", "0x10de", "0x1000"


def lay(root: Path, complex_: str, *functions: tuple[str, str]) -> str:
    """Write FUNCTIONS (address, vendor), each below the previous function; return the last folder's path."""
    folder = f"sys/devices/{complex_}"
    for address, vendor in functions:
        folder += f"/{address}"
        put(root / folder / "vendor", f"{vendor}\n".encode())
        put(root / folder / "config", bytes(64))
        put(root / folder / "current_link_width", b"1\n")
    link(root / "sys/bus/pci/devices" / functions[-1][0], f"../../../{folder.removeprefix('sys/')}")
    return f"/sys/bus/pci/devices/{functions[-1][0]}"


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        # A Radeon. The upstream port and the downstream port of the card's switch have AMD's vendor number.
        ((("0000:00:01.1", "0x1022"), ("0000:01:00.0", AMD), ("0000:02:00.0", AMD), ("0000:03:00.0", AMD)),
         "0000:01:00.0"),
        # An Arc below Intel's root port, which is not part of the card.
        ((("0000:00:01.0", INTEL), ("0000:01:00.0", INTEL), ("0000:02:01.0", INTEL), ("0000:03:00.0", INTEL)),
         "0000:01:00.0"),
        # An Instinct in a server, below a switch of the board.
        ((("0000:60:01.1", "0x1022"), ("0000:61:00.0", BROADCOM), ("0000:62:00.0", BROADCOM),
          ("0000:63:00.0", AMD), ("0000:64:00.0", AMD), ("0000:65:00.0", AMD)), "0000:63:00.0"),
        ((("0000:40:01.1", INTEL), ("0000:41:00.0", NVIDIA)), "0000:41:00.0"),
        # Grace. The root port also has NVIDIA's vendor number.
        ((("0009:00:00.0", NVIDIA), ("0009:01:00.0", NVIDIA)), "0009:01:00.0"),
        ((("0000:00:02.0", INTEL),), "0000:00:02.0"),
    ],
)  # fmt: skip
def test_the_link_to_the_slot_is_the_link_of_the_cards_switch(
    tmp_path: Path, functions: tuple[tuple[str, str], ...], expected: str
) -> None:
    folder = lay(tmp_path, f"pci{functions[0][0][:7]}", *functions)
    assert link_folder(Root(str(tmp_path)), folder).rpartition("/")[2] == expected


def test_the_link_folder_of_a_missing_device_is_its_own_folder(tmp_path: Path) -> None:
    assert link_folder(Root(str(tmp_path)), "/sys/bus/pci/devices/0000:03:00.0") == (
        "/sys/bus/pci/devices/0000:03:00.0"
    )


def test_the_lanes_of_a_cards_slot_are_measured(tmp_path: Path) -> None:
    folder = lay(
        tmp_path, "pci0000:00", ("0000:00:01.1", "0x1022"), ("0000:01:00.0", INTEL), ("0000:02:00.0", INTEL),
        ("0000:03:00.0", INTEL),
    )  # fmt: skip
    put(tmp_path / "sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/current_link_width", b"16\n")
    device = accelerator(0, folder.rpartition("/")[2])
    sample = pci_health.check(places(tmp_path), inventory("intel", device))
    assert [each.value for each in sample.measurements if each.cause == "pci-link-narrow"] == [16]
