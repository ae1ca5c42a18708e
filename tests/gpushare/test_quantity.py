from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.gpushare.quantity import MOST, whole


@pytest.mark.parametrize(
    ("text", "number"),
    [("3", 3), ("16k", 16000), ("1Ki", 1024), ("2e3", 2000), ("0.5k", 500), ("3000m", 3), ("-4", -4),
     ("1.5Ki", 1536)],
)  # fmt: skip
def test_quantities_are_read_as_kubernetes_writes_them(text: str, number: int) -> None:
    assert whole(text) == number


@pytest.mark.parametrize(
    "value", ["", "1.5", "500m", "1E99", "9e18", "0x10", "1KI", "three", "\u0663", None, True, 1.5, [],
              "1" * 99, " 1", "1e-3"]
)  # fmt: skip
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"quantity|whole number|2\^53"):
        whole(value)


@given(st.integers(-MOST, MOST))
def test_a_number_is_itself(number: int) -> None:
    assert whole(str(number)) == whole(number) == number


@given(st.text(max_size=30))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert abs(whole(text)) <= MOST
