"""Valid and invalid queries of HTTP requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.page.routes import InvalidQueryError, members


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {}),
        ("dev=0+1&vol=nvidia_driver", {"dev": "0 1", "vol": "nvidia_driver"}),
        ("dev=0%201", {"dev": "0 1"}),
        ("dev=0&dev=1", {"dev": "0"}),
        ("dev=&form=cdi", {"dev": "", "form": "cdi"}),
        ("dev=%ff", {"dev": "\ufffd"}),
    ],
)
def test_valid_queries_are_parsed(query: str, expected: dict[str, str]) -> None:
    assert members(query) == expected


@pytest.mark.parametrize("query", ["dev=%", "dev=%zz", "dev=%4", "%g0=1"])
def test_bad_percent_codes_are_refused(query: str) -> None:
    with pytest.raises(InvalidQueryError, match=r"^invalid URL escape"):
        members(query)


def test_a_refusal_is_one_short_line_of_plain_text() -> None:
    with pytest.raises(InvalidQueryError) as refused:
        members("dev=%\x1b[31m\r\nSet-Cookie: a=b" + "x" * 10_000)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200


@given(st.text())
def test_any_query_is_parsed_or_refused(query: str) -> None:
    try:
        found = members(query)
    except InvalidQueryError:
        return
    assert all(isinstance(text, str) for text in found.values())
