"""Words of drivers as names and values of labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kubelet.nfd_worker import WORD

from cdigen.kubelet.labels.words import fitting, is_label, spread

GPU = "nvidia.com/gpu.product"


def test_values_are_those_of_nvidias_labeller() -> None:
    assert fitting("NVIDIA H100 80GB HBM3") == "NVIDIA-H100-80GB-HBM3"
    assert fitting("NVIDIA TITAN X (Pascal)") == "NVIDIA-TITAN-X-Pascal"
    assert fitting("Tesla  V100-SXM2-16GB ") == "Tesla-V100-SXM2-16GB"


def test_long_words_that_begin_alike_stay_two() -> None:
    one, other = fitting("A" * 80 + "1"), fitting("A" * 80 + "2")
    assert len(one) == len(other) == 63
    assert one != other


def test_what_is_no_text_has_a_digest_as_well() -> None:
    # As JSON can have it, by an escape.
    assert len(fitting("A" * 80 + "\ud800")) == 63


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param(["T4", "T4"], [(GPU, "T4")], id="one-of-all-is-the-labels"),
        pytest.param(["T4", "A10", "T4"], [(f"{GPU}.A10", "1"), (f"{GPU}.T4", "2")], id="several-counted"),
        pytest.param(["T4", ""], [(f"{GPU}.T4", "1")], id="last-not-known"),
        pytest.param(["", "T4"], [(f"{GPU}.T4", "1")], id="first-not-known"),
        pytest.param(["", ""], [], id="none-known"),
        pytest.param([], [], id="no-device"),
        # One label alone can have the name: the count is of both.
        pytest.param(["T4 (x)", "T4 x"], [(f"{GPU}.T4-x", "2")], id="two-models-that-clean-to-one"),
        pytest.param(["???"], [], id="without-letters"),
        pytest.param(["???", "T4"], [(f"{GPU}.T4", "1")], id="one-without-letters"),
    ],
)
def test_a_value_of_all_is_the_labels_and_others_are_counted(
    values: list[str], found: list[tuple[str, str]]
) -> None:
    assert spread(GPU, values) == found


def test_a_long_value_leaves_room_for_the_name_that_it_is_a_part_of() -> None:
    found = spread(GPU, ["A" * 63, "T4"])
    assert [len(name.partition("/")[2]) for name, _ in found] == [63, len("gpu.product.T4")]


@given(st.text(max_size=200), st.integers(min_value=20, max_value=63))
def test_any_text_becomes_a_word_or_nothing(text: str, most: int) -> None:
    found = fitting(text, most=most)
    assert len(found) <= most
    assert not found or WORD.fullmatch(found)


@given(st.lists(st.text(max_size=100), max_size=6))
def test_whatever_drivers_say_kubernetes_takes(values: list[str]) -> None:
    found = spread("nvidia.com/mig-1c.3g.40gb.sharing-strategy", values)
    assert all(is_label(one) for one in found)
    assert len(dict(found)) == len(found)
