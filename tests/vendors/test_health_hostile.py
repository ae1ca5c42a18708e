"""With any text in the log, any uevent, and any content of files, each reported cause has a rule."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts.driver_files import link, put
from support.hosts.nvidia import empty_root, places
from support.values.devices import accelerator, inventory
from support.values.health_devices import health_of

from cdigen.model.health import DeviceEvent, LogRecord, Measurement, Recovery, Symptom
from cdigen.vendors import registry

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.vendors.health import VendorHealth

ADDRESS = "0000:03:00.0"
PIECES = (
    *("amdgpu ", "xe ", "i915 ", "intel_vpu ", "pcieport ", f"{ADDRESS}: ", "amdgpu: ", "[drm] ", "AER: "),
    *("GT0: ", "{12}", "GPU reset begin!", "GPU reset(1) succeeded!", "device wedged, needs recovery"),
    *("PCIe Bus Error: severity=", "Uncorrected (Fatal)", f"Initialized xe 1.1.0 for {ADDRESS} on minor 1"),
)
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(string.printable, max_size=5), max_size=8).map("".join)
WORDS = st.sampled_from(
    ("drm", "pci", "change", "bind", "WEDGED", "RESET", "ERROR", "0", "1", "none", ADDRESS)
)
SHOWN = WORDS | st.text(max_size=5)
CONTENTS = st.binary(max_size=80) | st.sampled_from(
    (b"ue: 1\nce: 0\n", b"ue: \xff\n", b"in reset\n", b"critical\n", b"TOTAL_ERR_FATAL 1\n", b"16\n")
)
FILES = (
    *("config", "power/runtime_status", "current_link_width", "aer_dev_fatal", "aer_dev_nonfatal", "status"),
    *("ras/umc_err_count", "survivability_mode", "gpu_health", "gpu_busy_percent", "mem_info_vram_total"),
    *("hwmon/hwmon0/temp1_input", "hwmon/hwmon0/energy1_input", "pp_dpm_sclk", "current_link_speed"),
)
VENDORS = ("amd", "intel")
CLASSES = ("gpu", "gaudi", "npu")
INVENTORY = inventory(
    "amd", *(accelerator(index, ADDRESS, device_class=each) for index, each in enumerate(CLASSES))
)


def check(health: VendorHealth, results: tuple[Symptom | Recovery | Measurement, ...]) -> None:
    causes = {rule.cause for rule in health.causes}
    for each in results:
        assert each.address == ADDRESS
        assert isinstance(each, Recovery) or each.cause in causes


@given(vendor=st.sampled_from(VENDORS), text=TEXTS)
def test_any_line_of_the_log_is_accepted(vendor: str, text: str) -> None:
    health = health_of(vendor)
    check(health, health.parse_log(LogRecord(sequence=1, at_s=1.0, text=text), INVENTORY))


@given(
    vendor=st.sampled_from(VENDORS),
    words=st.tuples(SHOWN, SHOWN, SHOWN),
    properties=st.lists(st.tuples(SHOWN, SHOWN), max_size=4),
)
def test_any_uevent_is_accepted(
    vendor: str, words: tuple[str, str, str], properties: list[tuple[str, str]]
) -> None:
    health = health_of(vendor)
    subsystem, action, address = words
    event = DeviceEvent(
        subsystem=subsystem, action=action, address=address, at_s=1.0, properties=tuple(properties)
    )
    results = health.parse_uevents(event, INVENTORY)
    # A uevent may report that a driver was bound to a device that is not in the inventory yet.
    check(
        health, tuple(each for each in results if not isinstance(each, Recovery) or each.address != address)
    )


@given(vendor=st.sampled_from(VENDORS), contents=st.dictionaries(st.sampled_from(FILES), CONTENTS))
def test_any_content_of_files_is_accepted(vendor: str, contents: dict[str, bytes]) -> None:
    health = health_of(vendor)
    with empty_root() as root:
        lay(root, contents)
        sample = health.check(places(root), INVENTORY)
    assert set(sample.covered) <= {ADDRESS}
    check(health, (*sample.symptoms, *sample.recoveries, *sample.measurements))


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\n", b"1\n", b"-1\n", b"9" * 100, b"\0" * 80])
def test_any_content_of_files_whose_read_queries_the_device_is_accepted(
    vendor: str, tmp_path: Path, content: bytes
) -> None:
    health = health_of(vendor)
    lay(tmp_path, dict.fromkeys(FILES, content) | {"power/runtime_status": b"active\n"})
    sample = health.probe(places(tmp_path), INVENTORY)
    check(health, (*sample.symptoms, *sample.recoveries, *sample.measurements))
    read_stats = registry.stats(vendor)
    assert read_stats is not None
    assert {each.address for each in read_stats(places(tmp_path), INVENTORY)} == {ADDRESS}


def lay(root: Path, contents: dict[str, bytes]) -> None:
    folder = root / "sys/devices/pci0000:00" / ADDRESS
    folder.mkdir(parents=True)
    link(root / "sys/bus/pci/devices" / ADDRESS, f"../../../devices/pci0000:00/{ADDRESS}")
    for name, content in contents.items():
        put(folder / name, content)
