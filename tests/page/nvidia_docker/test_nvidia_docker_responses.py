"""The responses that nvidia-docker 1.0's programs read, byte by byte.

The files in expected/ are equal to the output of Go 1.19 for the same values (text/template with the
templates of nvidia-docker 1.0.1, text/tabwriter, encoding/json with the types of 1.0.1).
"""

import base64
import json
import re
import zlib
from pathlib import Path

import pytest
from support.values.nvidia_docker_devices import BUSY, others, two_p100

from cdigen.page.nvidia_docker.devices import NvidiaDockerDevice, listed
from cdigen.page.nvidia_docker.documents import encoded, info, mesos, status
from cdigen.page.nvidia_docker.texts import info_text, status_text
from cdigen.topology.matrix import devices_of
from cdigen.value import replace

EXPECTED = Path(__file__).with_name("expected")
DRIVER, CUDA = "550.163.01", "12.4"
MACHINES = {"two-p100": two_p100(), "others": others(), "none": ()}
every_machine = pytest.mark.parametrize("name", MACHINES)


@every_machine
def test_the_json_is_identical_to_the_json_of_nvidia_docker_1_0(name: str) -> None:
    devices = MACHINES[name]
    assert encoded(info(DRIVER, CUDA, devices)) == (EXPECTED / f"{name}.info.json").read_bytes()
    assert encoded(status(devices)) == (EXPECTED / f"{name}.status.json").read_bytes()


@every_machine
def test_the_texts_are_identical_to_the_texts_of_nvidia_docker_1_0(name: str) -> None:
    devices = MACHINES[name]
    assert info_text(DRIVER, CUDA, devices) == (EXPECTED / f"{name}.info.txt").read_text()
    assert status_text(devices) == (EXPECTED / f"{name}.status.txt").read_text()


def test_an_unknown_value_is_null_and_zero_is_zero() -> None:
    busy, idle = status(two_p100())["Devices"]
    assert busy["Utilization"] == {"GPU": 87, "Memory": 41, "Encoder": 0, "Decoder": 0}
    assert (idle["Temperature"], idle["Power"], idle["Processes"]) == (0, None, None)
    assert info(DRIVER, CUDA, others())["Devices"][0]["Topology"] is None


def test_units_are_the_units_of_nvidia_docker_1_0() -> None:
    document = info(DRIVER, CUDA, two_p100())["Devices"][0]
    assert document["PCI"] == {"BusID": "0000:11:00.0", "BAR1": 16_384, "Bandwidth": 16 * 985}
    assert document["Memory"]["Bandwidth"] == 2 * 715 * 4096 // 8
    assert status(two_p100())["Devices"][0]["PCI"]["Throughput"] == {"RX": 12, "TX": 0}


@pytest.mark.parametrize(
    ("compute", "family", "shared"),
    [("2.1", "Fermi", None), ("7.0", "Volta", 96), ("7.5", "Turing", 64), ("8.9", "Ada", 100),
     ("9.0", "Hopper", 228), ("12.0", "Blackwell", 100), ("13.0", None, None), (None, None, None)],
)  # fmt: skip
def test_known_architectures_have_names(compute: str | None, family: str | None, shared: int | None) -> None:
    device = replace(two_p100()[0], stats=replace(BUSY, compute_capability=compute))
    document = info(DRIVER, CUDA, (device,))["Devices"][0]
    assert (document["Family"], document["Memory"]["Shared"], document["Arch"]) == (family, shared, compute)


def test_control_characters_and_html_in_names_are_escaped() -> None:
    device = two_p100()[0]
    named = replace(device, accelerator=replace(device.accelerator, model="a\tb\n\x1b[31m</script>"))
    assert r"  Model:         a\tb\n\x1b[31m</script>" in info_text(DRIVER, CUDA, (named,)).splitlines()
    written = encoded(info(DRIVER, CUDA, (named,)))
    assert b"<" not in written
    assert json.loads(written)["Devices"][0]["Model"] == "a\tb\n\x1b[31m</script>"
    assert json.loads(encoded(info("\udc80", CUDA, ())))["Version"]["Driver"] == "?"


def test_the_mesos_options_contain_the_compressed_document_and_the_uuids() -> None:
    found = re.fullmatch(
        r"--attributes=gpus:([\w-]+) --resources=gpus:{(.*)}", mesos(DRIVER, CUDA, two_p100())
    )
    assert found is not None
    packed = found.group(1)
    unpacked = zlib.decompress(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
    assert unpacked == (EXPECTED / "two-p100.info.json").read_bytes()
    assert found.group(2) == ",".join(device.uuid for device in two_p100())


def test_a_host_without_devices_has_an_empty_device_list() -> None:
    none: tuple[NvidiaDockerDevice, ...] = listed(devices_of({}))
    assert encoded(info(DRIVER, CUDA, none)).endswith(b'"Devices":[]}\n')
