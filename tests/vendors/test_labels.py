"""label_value and counted_labels convert texts of drivers to values and names of labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kubelet.nfd_worker import WORD

from cdigen.vendors.labels import counted_labels, is_label, label_value

GPU = "nvidia.com/gpu.product"


def test_values_equal_the_values_of_nvidias_labeller() -> None:
    assert label_value("NVIDIA H100 80GB HBM3") == "NVIDIA-H100-80GB-HBM3"
    assert label_value("NVIDIA TITAN X (Pascal)") == "NVIDIA-TITAN-X-Pascal"
    assert label_value("Tesla  V100-SXM2-16GB ") == "Tesla-V100-SXM2-16GB"


def test_long_texts_with_equal_beginnings_have_different_values() -> None:
    one, other = label_value("A" * 80 + "1"), label_value("A" * 80 + "2")
    assert len(one) == len(other) == 63
    assert one != other


def test_a_long_text_with_an_invalid_character_is_also_shortened_to_63_characters() -> None:
    # JSON can contain such a character as an escape sequence.
    assert len(label_value("A" * 80 + "\ud800")) == 63


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param(["T4", "T4"], [(GPU, "T4")], id="equal-values"),
        pytest.param(["T4", "A10", "T4"], [(f"{GPU}.A10", "1"), (f"{GPU}.T4", "2")], id="different-values"),
        pytest.param(["T4", ""], [(f"{GPU}.T4", "1")], id="last-unknown"),
        pytest.param(["", "T4"], [(f"{GPU}.T4", "1")], id="first-unknown"),
        pytest.param(["", ""], [], id="all-unknown"),
        pytest.param([], [], id="no-device"),
        # Both values become the same label name, so one label has their count.
        pytest.param(["T4 (x)", "T4 x"], [(f"{GPU}.T4-x", "2")], id="values-that-become-equal"),
        pytest.param(["???"], [], id="without-letters"),
        pytest.param(["???", "T4"], [(f"{GPU}.T4", "1")], id="one-without-letters"),
    ],
)
def test_a_value_that_all_devices_have_is_one_label_and_different_values_are_counted(
    values: list[str], found: list[tuple[str, str]]
) -> None:
    assert counted_labels(GPU, values) == found


def test_a_long_value_in_the_name_of_a_label_is_shortened() -> None:
    found = counted_labels(GPU, ["A" * 63, "T4"])
    assert [len(name.partition("/")[2]) for name, _ in found] == [63, len("gpu.product.T4")]


@given(st.text(max_size=200), st.integers(min_value=20, max_value=63))
def test_any_text_becomes_a_valid_value_or_an_empty_value(text: str, most: int) -> None:
    found = label_value(text, most=most)
    assert len(found) <= most
    assert not found or WORD.fullmatch(found)


@given(st.lists(st.text(max_size=100), max_size=6))
def test_labels_from_any_texts_of_drivers_are_valid_in_kubernetes(values: list[str]) -> None:
    found = counted_labels("nvidia.com/mig-1c.3g.40gb.sharing-strategy", values)
    assert all(is_label(one) for one in found)
    assert len(dict(found)) == len(found)
