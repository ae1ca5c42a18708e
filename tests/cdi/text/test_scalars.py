"""Numbers at the limits of 64 bits, with and without a sign."""

import pytest

from cdigen.cdi.text.scalars import is_of_64_bits, resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18446744073709551615", 2**64 - 1),
        ("0xffffffffffffffff", 2**64 - 1),
        ("+9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_an_integer_of_at_most_64_bits_is_an_integer(text: str, value: int) -> None:
    found = resolve(text)
    assert (found, type(found)) == (value, int)


@pytest.mark.parametrize(
    "text", ["18446744073709551616", "0x10000000000000000", "+9223372036854775808", "-9223372036854775809"]
)
def test_an_integer_of_more_than_64_bits_is_not_an_integer(text: str) -> None:
    assert type(resolve(text)) is not int


@pytest.mark.parametrize(
    ("number", "is_held"),
    [
        ("18446744073709551615", True),
        ("18446744073709551616", False),
        ("-9223372036854775808", True),
        ("-9223372036854775809", False),
        ("1" * 5000, False),
        ("1.5", True),
        ("1e999", False),
    ],
)
def test_numbers_in_json_are_checked_for_64_bits(number: str, *, is_held: bool) -> None:
    assert is_of_64_bits(number) is is_held
