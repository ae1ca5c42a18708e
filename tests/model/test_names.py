"""The names of CDI, and their natural order."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.model.names import (
    NameSet,
    full_pci_address,
    is_device_name,
    is_kind,
    is_vendor_or_class,
    natural_key,
    spec_file_name,
)

# The rules of pkg/parser in container-device-interface. A vendor or a class has at least two characters.
VENDOR_OR_CLASS = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]")
DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
NEAR_NAMES = st.text("aZ0_.-:/ é\n", max_size=6) | st.text(max_size=6)


@given(NEAR_NAMES)
def test_vendors_and_classes_follow_the_parsers_rule(name: str) -> None:
    assert is_vendor_or_class(name) == bool(VENDOR_OR_CLASS.fullmatch(name))


@given(NEAR_NAMES)
def test_device_names_follow_the_parsers_rule(name: str) -> None:
    assert is_device_name(name) == bool(DEVICE.fullmatch(name))


@pytest.mark.parametrize("kind", ["nvidia.com/gpu", "vendor/class", "a.b-c_d/e.f", f"{'v' * 253}/{'c' * 63}"])
def test_a_valid_vendor_and_class_are_a_kind(kind: str) -> None:
    assert is_kind(kind)


@pytest.mark.parametrize(
    "kind",
    [
        *("", "/", "nvidia.com", "nvidia.com/", "/gpu", "v/gpu", "nvidia.com/g", "nvidia.com/gpu/x"),
        *(f"{'v' * 254}/gpu", f"vendor/{'c' * 64}", "nvidia.com /gpu", "1v/gpu"),
    ],
)
def test_a_kind_that_no_cdi_library_loads_is_invalid(kind: str) -> None:
    assert not is_kind(kind)


def test_a_spec_file_is_named_after_its_kind() -> None:
    assert spec_file_name("nvidia.com/gpu") == "nvidia.com-gpu.json"


def test_numbers_are_sorted_by_value_and_before_words() -> None:
    given = ["GPU-b", "gpu10", "gpu2", "10", "2", "0:10", "0:9", "", "01", "1", "all"]
    expected = ["", "0:9", "0:10", "01", "1", "2", "10", "GPU-b", "all", "gpu2", "gpu10"]
    assert sorted(given, key=natural_key) == expected


@given(st.lists(st.integers(0, 10**6)))
def test_numbered_nodes_are_sorted_by_number(numbers: list[int]) -> None:
    paths = [f"/dev/nvidia{number}" for number in numbers]
    assert sorted(paths, key=natural_key) == [f"/dev/nvidia{number}" for number in sorted(numbers)]


@given(st.text(), st.text())
def test_only_equal_texts_have_equal_keys(one: str, two: str) -> None:
    assert (natural_key(one) == natural_key(two)) == (one == two)


@given(st.lists(st.text("01a:", max_size=5)))
def test_the_sorted_order_does_not_depend_on_the_input_order(texts: list[str]) -> None:
    reverse = texts[::-1]
    assert sorted(texts, key=natural_key) == sorted(reverse, key=natural_key)


def test_a_number_of_any_length_can_be_sorted() -> None:
    assert min(["9" * 10_000, "1", "8" * 10_000], key=natural_key) == "1"


def test_a_name_set_sorts_numbers_by_value() -> None:
    names = NameSet({"10", "b", "9", "a"})
    assert names.sorted == ("9", "10", "a", "b")
    assert len(names) == 4
    assert "b" in names
    assert "B" not in names


@given(st.sets(st.text("aAbB1", min_size=1, max_size=3)), st.text("aAbB1", min_size=1, max_size=3))
def test_find_returns_the_exact_name_or_the_first_name_in_another_letter_case(
    texts: set[str], wanted: str
) -> None:
    alike = [name for name in sorted(texts, key=natural_key) if name.lower() == wanted.lower()]
    assert NameSet(texts).find(wanted) == (wanted if wanted in texts else next(iter(alike), ""))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("65:00.0", "0000:65:00.0"),
        ("0000:65:00.0", "0000:65:00.0"),
        ("00000000:C1:0A.1", "0000:c1:0a.1"),
        ("10000:e1:0.0", "10000:e1:00.0"),
        ("65:00", ""),
        ("65:00.8", ""),
        ("GPU-65:00.0", ""),
        ("", ""),
    ],
)
def test_a_pci_address_is_completed_as_in_sysfs(text: str, address: str) -> None:
    assert full_pci_address(text) == address
