"""The names of CDI, and the order that people expect."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.model.names import (
    NameSet,
    is_device_name,
    is_kind,
    is_vendor_or_class,
    natural_key,
    spec_file_name,
)

# container-device-interface, pkg/parser, as regular expressions (facts/cdi.md 1.3); two letters at least.
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
def test_a_kind_is_a_vendor_and_a_class(kind: str) -> None:
    assert is_kind(kind)


@pytest.mark.parametrize(
    "kind",
    [
        *("", "/", "nvidia.com", "nvidia.com/", "/gpu", "v/gpu", "nvidia.com/g", "nvidia.com/gpu/x"),
        *(f"{'v' * 254}/gpu", f"vendor/{'c' * 64}", "nvidia.com /gpu", "1v/gpu"),
    ],
)
def test_what_no_library_loads_is_no_kind(kind: str) -> None:
    assert not is_kind(kind)


def test_the_file_of_a_kind_is_named_after_it() -> None:
    assert spec_file_name("nvidia.com/gpu") == "nvidia.com-gpu.json"


def test_numbers_count_as_numbers_and_come_before_words() -> None:
    given = ["GPU-b", "gpu10", "gpu2", "10", "2", "0:10", "0:9", "", "01", "1", "all"]
    expected = ["", "0:9", "0:10", "01", "1", "2", "10", "GPU-b", "all", "gpu2", "gpu10"]
    assert sorted(given, key=natural_key) == expected


@given(st.lists(st.integers(0, 10**6)))
def test_numbered_nodes_come_in_the_order_of_their_numbers(numbers: list[int]) -> None:
    paths = [f"/dev/nvidia{number}" for number in numbers]
    assert sorted(paths, key=natural_key) == [f"/dev/nvidia{number}" for number in sorted(numbers)]


@given(st.text(), st.text())
def test_only_equal_texts_have_equal_keys(one: str, two: str) -> None:
    assert (natural_key(one) == natural_key(two)) == (one == two)


@given(st.lists(st.text("01a:", max_size=5)))
def test_any_texts_can_be_sorted_and_the_order_is_the_same_every_time(given: list[str]) -> None:
    other_way = given[::-1]
    assert sorted(given, key=natural_key) == sorted(other_way, key=natural_key)


def test_a_number_of_any_length_can_be_sorted() -> None:
    assert min(["9" * 10_000, "1", "8" * 10_000], key=natural_key) == "1"


def test_a_set_of_names_is_sorted_as_people_expect() -> None:
    names = NameSet({"10", "b", "9", "a"})
    assert names.sorted == ("9", "10", "a", "b")
    assert len(names) == 4
    assert "b" in names
    assert "B" not in names


@given(st.sets(st.text("aAbB1", min_size=1, max_size=3)), st.text("aAbB1", min_size=1, max_size=3))
def test_a_name_is_found_as_it_is_or_else_the_first_that_differs_in_case(
    given: set[str], wanted: str
) -> None:
    alike = [name for name in sorted(given, key=natural_key) if name.lower() == wanted.lower()]
    assert NameSet(given).find(wanted) == (wanted if wanted in given else next(iter(alike), ""))
