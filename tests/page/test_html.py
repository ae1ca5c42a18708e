"""HTML elements, and the escaping of the texts in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.daemon.page import read

from cdigen.page.html import MAX_TEXT, Html, element, joined, plain


def test_text_is_escaped_in_elements_and_attributes() -> None:
    made = element("p", "<b>&\"'", title="\"><script>'&")
    found = read(made)
    assert found.tags == [("p", {"title": "\"><script>'&"})]
    assert found.text == "<b>&\"'"


def test_elements_can_be_nested_and_texts_built_from_elements_are_escaped() -> None:
    inner = element("code", "a")
    assert element("p", inner) == "<p><code>a</code></p>"
    assert element("p", f"{inner}!") == "<p>&lt;code&gt;a&lt;/code&gt;!</p>"
    assert joined([inner, "<"], ", ") == "<code>a</code>, &lt;"


def test_attributes_without_a_value_are_left_out() -> None:
    assert element("td", "1", class_=None, data_label="Health") == '<td data-label="Health">1</td>'
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


@pytest.mark.parametrize("tag", ["script", "img", "iframe", "form", "p onclick=x"])
def test_an_element_that_is_active_such_as_script_is_refused(tag: str) -> None:
    with pytest.raises(ValueError, match="not an element"):
        element(tag)


@pytest.mark.parametrize("name", ["onclick", "style", "src", "srcset", "x y"])
def test_an_attribute_that_is_active_such_as_onclick_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not an attribute"):
        element("p", **{name: "1"})


@pytest.mark.parametrize(
    "target", ["javascript:alert(1)", "https://example.org/", " /x", 4, "//example.org/"]
)
def test_a_link_to_another_site_is_refused(target: str | int) -> None:
    with pytest.raises(ValueError, match="a link to another site"):
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
def test_unprintable_characters_are_shown_by_their_codes(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_a_long_text_is_cut_and_its_length_is_shown() -> None:
    assert plain("x" * 10_000) == "x" * MAX_TEXT + "… (10,000 characters)"
    assert plain("x" * MAX_TEXT) == "x" * MAX_TEXT


@given(st.text(max_size=50), st.text(max_size=50))
def test_any_text_is_escaped(one: str, other: str) -> None:
    made = element("p", one, element("code", other), title=one)
    found = read(made)
    assert [tag for tag, _ in found.tags] == ["p", "code"]
    if one.isprintable() and other.isprintable():
        assert found.text == one + other
        assert found.tags[0][1] == {"title": one}


@given(st.text(max_size=50).map(Html))
def test_a_text_of_the_class_html_is_not_escaped_again(made: Html) -> None:
    assert plain(made) is made
