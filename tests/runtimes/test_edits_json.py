"""Keys put into JSON and taken out again: the text is cut where they are and nowhere else."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdigen.model.errors import ConfigError
from cdigen.runtimes.edits.jsontext import put, take_back
from cdigen.runtimes.edits.tomltext import DesiredKey

FEATURE = DesiredKey(path=("features", "cdi"), value=True)
DIRS = DesiredKey(path=("cdi-spec-dirs",), value=("/etc/cdi", "/var/run/cdi"))
FILE = "/etc/docker/daemon.json"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{\n    "bridge": "none"\n}\n',
            (
                '{\n    "bridge": "none",\n    "features": {"cdi": true},\n'
                '    "cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"]\n}\n'
            ),
        ),
        (
            '{\n\t"features": {\n\t\t"x": false\n\t}\n}',
            (
                '{\n\t"features": {\n\t\t"x": false,\n\t\t"cdi": true\n\t},\n'
                '\t"cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"]\n}'
            ),
        ),
        ('{"a":1}', '{"a":1,"features":{"cdi":true},"cdi-spec-dirs":["/etc/cdi","/var/run/cdi"]}'),
        (
            '{"a": 1, "features": {}}',
            '{"a": 1, "features": {"cdi": true}, "cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"]}',
        ),
        (
            '{\r\n  "features" : { "cdi" : false , "y":true },\r\n\r\n  "b": [1,2]\r\n}',
            (
                '{\r\n  "features" : { "cdi" : true , "y":true },\r\n\r\n  "b": [1,2],\r\n'
                '  "cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"]\r\n}'
            ),
        ),
        ("", '{\n  "features": {"cdi": true},\n  "cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"]\n}\n'),
    ],
)
def test_the_form_of_the_file_is_kept(before: str, after: str) -> None:
    assert put(before.encode(), (FEATURE, DIRS), FILE)[0].decode() == after


def test_a_byte_order_mark_stays_where_it_is() -> None:
    after, keys = put(b'\xef\xbb\xbf{"a": 1}', (FEATURE,), FILE)
    assert after == b'\xef\xbb\xbf{"a": 1, "features": {"cdi": true}}'
    assert take_back(after, keys, FILE)[0] == b'\xef\xbb\xbf{"a": 1}'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": 1\n,}', "line 2"),
        (b'{\n "a": 1,\n "a": 2}', "'a' twice (at line 3)"),
        (b'{"f": {"b": 1, "b": 1}}', "'b' twice"),
        (b"[1]", "no JSON object"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": 1}\n{}', "line 2"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b'{"features": true}', "'features' is no object"),
        (b'{"a":' * 100_000, "no JSON"),
    ],
)
def test_a_broken_file_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        put(content, (FEATURE,), FILE)
    assert FILE in raised.value.message
    assert words in raised.value.message


def test_taking_back_leaves_what_others_wrote_meanwhile() -> None:
    after, keys = put(b'{\n  "bridge": "none"\n}\n', (FEATURE, DIRS), FILE)
    changed = after.replace(b'"none"', b'"docker0"').replace(b'{"cdi": true}', b'{"cdi": true, "y": 1}')
    assert take_back(changed, keys, FILE) == (b'{\n  "bridge": "docker0",\n  "features": {"y": 1}\n}\n', ())


def test_a_key_that_others_have_changed_stays() -> None:
    after, keys = put(b'{"a": 1}', (FEATURE, DIRS), FILE)
    back, kept = take_back(after.replace(b"true", b"false"), keys, FILE)
    assert [key.path for key in kept] == [FEATURE.path]
    assert json.loads(back) == {"a": 1, "features": {"cdi": False}}


documents = st.dictionaries(
    st.sampled_from(["features", "cdi-spec-dirs", "a", 'q"uote', "é\n", ""]),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
        lambda below: st.one_of(
            st.lists(below, max_size=3),
            st.dictionaries(st.sampled_from(["cdi", "x", "{", "y,"]), below, max_size=3),
        ),
        max_leaves=8,
    ),
    max_size=5,
)
forms = st.sampled_from([
    {"indent": 2}, {"indent": 4}, {"indent": "\t"}, {}, {"separators": (",", ":")}, {"indent": 0},
    {"separators": (" , ", " : "), "ensure_ascii": False},
])  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(documents, forms, st.sampled_from(["", "\n", "\r\n  "]))
def test_whatever_a_file_says_it_says_afterwards_and_our_keys(
    document: dict[str, Any], form: dict[str, Any], end: str
) -> None:
    text = (json.dumps(document, **form) + end).encode()
    try:
        after, keys = put(text, (FEATURE, DIRS), FILE)
    except ConfigError:
        assert "features" in document
        assert not isinstance(document["features"], dict)
        return
    features = document.get("features", {})
    ours = {"features": {**features, "cdi": True}, "cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"]}
    assert json.loads(after) == {**document, **ours}
    assert list(json.loads(after))[: len(document)] == list(document)
    assert put(after, (FEATURE, DIRS), FILE) == (after, ())
    back, kept = take_back(after, keys, FILE)
    assert kept == ()
    assert back == text or (not document and json.loads(back) == {})


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_edited_or_refused(content: bytes) -> None:
    try:
        after, _ = put(content, (FEATURE,), FILE)
    except ConfigError:
        return
    assert json.loads(after.decode("utf-8-sig"))["features"] == {"cdi": True}
