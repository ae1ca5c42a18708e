"""The kernel module's files in /proc. Invalid texts are rejected without an exception."""

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.hosts.nvidia_kernel import example_gpus, information_text

from cdigen.vendors.nvidia.kernel_module import is_uuid, is_version, parse_lines, parse_version

PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025\n"
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build  (dvs@host)  Sep 24\n"
    "GCC version:  gcc version 14.2.0 (Debian 14.2.0-19) \n"
)
INFORMATION = information_text(example_gpus(1)[0], "550.163.01")


@pytest.mark.parametrize(
    ("text", "version", "flavour", "machine"),
    [
        (PROPRIETARY, "550.163.01", "proprietary", "x86_64"),
        (OPEN, "580.95.05", "open", "aarch64"),
        ("GCC version: 1\n" + PROPRIETARY, "550.163.01", "proprietary", "x86_64"),
        ("NVRM version: 470.256.02\n", "470.256.02", "proprietary", os.uname().machine),
    ],
    ids=["proprietary", "open", "second line", "no machine"],
)
def test_the_version_flavour_and_machine_are_read_from_the_version_file(
    text: str, version: str, flavour: str, machine: str
) -> None:
    driver = parse_version(text)
    assert driver is not None
    assert (driver.version, driver.flavour, driver.architecture) == (version, flavour, machine)


@pytest.mark.parametrize(
    "text", ["", "550.163.01", "NVRM version", "NVRM version:", "NVRM: 550.163.01", "x: y\n"]
)
def test_a_text_without_a_version_returns_none(text: str) -> None:
    assert parse_version(text) is None


@pytest.mark.parametrize("word", ["470.256.02", "550.163.01", "580.65", "999.88.77"])
def test_a_text_in_the_format_of_a_driver_version_is_accepted(word: str) -> None:
    assert is_version(word)


@pytest.mark.parametrize(
    "word", ["", "550", "4.0.0", "1.1.18", "14.2.0", "550.", "550.1.2.3", "550.x", "550.٣", "550.12345"]
)
def test_a_number_in_another_format_is_not_a_driver_version(word: str) -> None:
    assert not is_version(word)


def test_the_information_file_is_read_as_keys_and_values() -> None:
    values = parse_lines(INFORMATION)
    assert values["GPU UUID"] == example_gpus(1)[0].uuid
    assert values["Device Minor"] == "0"
    assert values["GPU Excluded"] == "No"
    assert values["Model"] == "NVIDIA H100 80GB HBM3"


def test_the_first_value_of_a_repeated_key_is_used() -> None:
    assert parse_lines("Device Minor: 1\nDevice Minor: 2\n") == {"Device Minor": "1"}


def test_lines_without_a_key_or_with_control_characters_are_skipped() -> None:
    assert parse_lines("no key\nA\x1b: 1\nB: \x1b[31m\nC: 3\n") == {"C": "3"}


@pytest.mark.parametrize(
    "text", ["GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f0000", "GPU-00000000-0000-0000-0000-000000000000"]
)
def test_a_text_in_the_format_of_a_uuid_is_accepted(text: str) -> None:
    assert is_uuid(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GPU-",
        "GPU-????????-????-????-????-????????????",
        "MIG-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f0000",
        "5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f0000",
        "GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f000",
        "GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f0000-",
        "GPU-5A1C7E42-8F0E-4D3B-9C52-7B6D1E0F0000",
    ],
)
def test_a_text_in_another_format_is_not_a_uuid(text: str) -> None:
    assert not is_uuid(text)


# Texts that are similar to real texts, with the words, lines and separators of real texts in any order.
WORDS = st.sampled_from(
    [*PROPRIETARY.split(), *OPEN.split(), *INFORMATION.split(), ":", "\n", "\t", "\0", "550."]
)
NEAR = st.lists(WORDS | st.text(max_size=4), max_size=20).map(" ".join)
CUT = st.builds(
    lambda text, start, end: text[start:end],
    st.sampled_from([PROPRIETARY, OPEN, INFORMATION]),
    st.integers(0, 60),
    st.integers(0, 300),
)


@given(st.text() | NEAR | CUT)
@example("NVRM version:\x00550.163.01")
def test_no_text_raises_an_exception_or_returns_an_invalid_version(text: str) -> None:
    driver = parse_version(text)
    assert driver is None or is_version(driver.version)


@given(st.text() | NEAR | CUT)
def test_no_text_of_an_information_file_raises_an_exception_or_returns_unprintable_text(text: str) -> None:
    for key, value in parse_lines(text).items():
        assert key == key.strip()
        assert value == value.strip()
        assert (key + value).isprintable()


@given(st.text() | st.from_regex(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"))
def test_a_uuid_has_only_ascii_characters(text: str) -> None:
    if is_uuid(text):
        assert text.isascii()
        assert len(text) == 40
