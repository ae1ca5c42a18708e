"""What holds for whatever the hook is given: arguments, JSON."""

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
def test_arguments_are_a_request_or_refused_with_one_line(words: list[str]) -> None:
    try:
        request = parse(words)
    except ArgumentError as error:
        assert str(error).isprintable()  # noqa: PT017 - both ways are right
    else:
        assert sum(1 + len(values) for _, values in request.steps) <= len(words)


@FUZZ
@given(VALUES)
def test_json_is_read_as_json_reads_it(value: object) -> None:
    text = json.dumps(value)
    assert _decoded(text) == json.loads(text)


@FUZZ
@given(st.text(st.sampled_from('{}[]":,019.eE-+tfnu\\ \ufeff'), max_size=12))
def test_what_json_refuses_is_refused(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011 - of any kind
            _decoded(text)
    else:
        assert _decoded(text) == expected
