"""Properties of the hook with any arguments and with any text in place of its JSON input."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.law_examples import examples

from cdigen.hook.arguments import STEPS, ArgumentError, parse
from cdigen.hook.state import _decoded

FUZZ = examples(4)
WORDS = st.one_of(
    st.sampled_from(
        [*(f"--{name}" for name in STEPS), "--require", "--", "--newer", "x86_64", "/usr/lib", "a.so"]
    ),
    st.text(max_size=8),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@FUZZ
@given(st.lists(WORDS, max_size=12))
def test_any_arguments_are_parsed_or_rejected_with_an_error_of_one_line(words: list[str]) -> None:
    try:
        request = parse(words)
    except ArgumentError as error:
        assert str(error).isprintable()  # noqa: PT017 - an error is a valid result
    else:
        assert sum(1 + len(values) for _, values in request.steps) <= len(words)


@FUZZ
@given(VALUES)
def test_a_json_text_is_decoded_to_the_same_value_as_by_the_module_json(value: object) -> None:
    text = json.dumps(value)
    assert _decoded(text) == json.loads(text)


@FUZZ
@given(st.text(st.sampled_from('{}[]":,019.eE-+tfnu\\ \ufeff'), max_size=12))
def test_any_text_is_decoded_or_rejected_as_by_the_module_json(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011 - of any kind
            _decoded(text)
    else:
        assert _decoded(text) == expected
