from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.gpushare.quantity import MAX_QUANTITY, parse_quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [("3", 3), ("16k", 16000), ("1Ki", 1024), ("2e3", 2000), ("0.5k", 500), ("3000m", 3), ("-4", -4),
     ("1.5Ki", 1536)],
)  # fmt: skip
def test_quantities_of_kubernetes_are_parsed(text: str, number: int) -> None:
    assert parse_quantity(text) == number


@pytest.mark.parametrize(
    "value", ["", "1.5", "500m", "1E99", "9e18", "0x10", "1KI", "three", "\u0663", None, True, 1.5, [],
              "1" * 99, " 1", "1e-3"]
)  # fmt: skip
def test_a_value_that_is_no_whole_number_is_an_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"quantity|whole number|2\^53"):
        parse_quantity(value)


@given(st.integers(-MAX_QUANTITY, MAX_QUANTITY))
def test_a_number_is_parsed_as_itself(number: int) -> None:
    assert parse_quantity(str(number)) == parse_quantity(number) == number


@given(st.text(max_size=30))
def test_any_text_is_a_number_or_an_error(text: str) -> None:
    with suppress(ValueError):
        assert abs(parse_quantity(text)) <= MAX_QUANTITY
