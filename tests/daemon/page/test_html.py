"""Elements, and what becomes of texts in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.daemon.page import read

from cdigen.daemon.page.html import MAX_TEXT, Html, element, joined, plain


def test_text_is_escaped_in_elements_and_attributes() -> None:
    made = element("p", "<b>&\"'", title="\"><script>'&")
    found = read(made)
    assert found.tags == [("p", {"title": "\"><script>'&"})]
    assert found.text == "<b>&\"'"


def test_elements_nest_and_what_str_makes_of_them_is_text_again() -> None:
    inner = element("code", "a")
    assert element("p", inner) == "<p><code>a</code></p>"
    assert element("p", f"{inner}!") == "<p>&lt;code&gt;a&lt;/code&gt;!</p>"
    assert joined([inner, "<"], ", ") == "<code>a</code>, &lt;"


def test_attributes_without_a_value_are_left_out() -> None:
    assert element("td", "1", class_=None, data_label="Health") == '<td data-label="Health">1</td>'
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


@pytest.mark.parametrize("tag", ["script", "img", "iframe", "form", "p onclick=x"])
def test_the_page_has_no_element_that_does_something(tag: str) -> None:
    with pytest.raises(ValueError, match="no element"):
        element(tag)


@pytest.mark.parametrize("name", ["onclick", "style", "src", "srcset", "x y"])
def test_the_page_has_no_attribute_that_does_something(name: str) -> None:
    with pytest.raises(ValueError, match="no attribute"):
        element("p", **{name: "1"})


@pytest.mark.parametrize(
    "target", ["javascript:alert(1)", "https://example.org/", " /x", 4, "//example.org/"]
)
def test_links_lead_nowhere_else(target: str | int) -> None:
    with pytest.raises(ValueError, match="elsewhere"):
        element("a", "x", href=target)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("\x1b[31mred\x07", r"\x1b[31mred\x07", id="escape sequences"),
        pytest.param("a\u202eb\u2066", r"a\u202eb\u2066", id="turned direction"),
        pytest.param("a\nb\r\x00\x85", r"a\nb\r\x00\x85", id="controls"),
        pytest.param("\udc80\ufdd0\U000e0001", r"\udc80\ufdd0\U000e0001", id="no characters"),
        pytest.param("GPU, 80 Gio, 日本", "GPU, 80 Gio, 日本", id="other scripts"),
    ],
)
def test_what_is_no_text_for_people_is_shown_by_its_code(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_a_long_text_is_cut_and_says_so() -> None:
    assert plain("x" * 10_000) == "x" * MAX_TEXT + "… (10,000 characters)"
    assert plain("x" * MAX_TEXT) == "x" * MAX_TEXT


@given(st.text(max_size=50), st.text(max_size=50))
def test_any_text_stays_text(one: str, other: str) -> None:
    made = element("p", one, element("code", other), title=one)
    found = read(made)
    assert [tag for tag, _ in found.tags] == ["p", "code"]
    if one.isprintable() and other.isprintable():
        assert found.text == one + other
        assert found.tags[0][1] == {"title": one}


@given(st.text(max_size=50).map(Html))
def test_html_is_left_as_it_is(made: Html) -> None:
    assert plain(made) is made
