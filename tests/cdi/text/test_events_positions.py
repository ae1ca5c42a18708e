"""Line and column of a finding, in JSON and in YAML."""

from __future__ import annotations

import json
from time import process_time
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cdigen.cdi.rules.fields import member_path
from cdigen.cdi.text.events import positions, read_yaml
from cdigen.cdi.validation import validate_content

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON = """{
 "cdiVersion": "0.5.0",
 "kind": "vendor.com/gpu", "a b": [1],
 "devices": [
  {"name": "x y", "containerEdits": {"env": ["A",
   "B"]}}]}
"""
YAML = """# a comment
cdiVersion: 0.5.0
kind: vendor.com/gpu
"a b": [1]
devices:
- name: x y
  containerEdits:
    env:
    - A
    - B
"""


@pytest.mark.parametrize(
    ("text", "is_yaml", "expected"),
    [
        (
            JSON,
            False,
            {'$["a b"]': (3, 28), "$.devices[0].name": (5, 4), "env[0]": (5, 46), "env[1]": (6, 4)},
        ),
        (YAML, True, {'$["a b"]': (4, 1), "$.devices[0].name": (6, 3), "env[0]": (9, 7), "env[1]": (10, 7)}),
    ],
)
def test_a_finding_of_the_rules_has_the_line_and_column_of_its_member(
    text: str,
    is_yaml: bool,  # noqa: FBT001
    expected: dict[str, tuple[int, int]],
) -> None:
    found = {found.path: found.place for found in validate_content(text.encode(), yaml=is_yaml).findings}
    assert found == {
        path.replace("env", "$.devices[0].containerEdits.env", 1) if path.startswith("env") else path: place
        for path, place in expected.items()
    }


def test_a_missing_field_has_the_position_of_its_object() -> None:
    (found,) = validate_content(
        b'\xef\xbb\xbf\n {"cdiVersion": "0.5.0", "kind": "a.b/cc"}', yaml=False
    ).findings[1:]
    assert (found.rule, found.place) == ("missing-field", (2, 2))


def test_a_repeated_key_has_the_position_of_the_first_key() -> None:
    for is_yaml in (False, True):
        assert positions('{"a": 1,\n"a": 2, "b": 3}', ["$.a", "$.b"], is_yaml=is_yaml) == {
            "$.a": (1, 2),
            "$.b": (2, 9),
        }


@pytest.mark.parametrize(("text", "is_yaml"), [("{} x", False), ("{}\n]", True), ("a: 1\n...\n\x40", True)])
def test_text_after_the_document_does_not_prevent_positions(text: str, is_yaml: bool) -> None:  # noqa: FBT001
    assert positions(text, ["$"], is_yaml=is_yaml) == {"$": (1, 1)}


def test_a_path_that_is_not_in_the_text_has_no_position() -> None:
    assert positions('{"a": [1]}', ["$.b", "$.a[1]", "$.a.b", "$.a[0].c"], is_yaml=False) == {}
    assert positions("a: [1]", ["$.b", "$.a[1]", "$.a.b", "$.a[0].c"], is_yaml=True) == {}


def test_invalid_numbers_do_not_prevent_positions() -> None:
    text = '{"n": ' + "9" * 5000 + ', "a": NaN,\n "b": 1e999, "c": 1}'
    assert positions(text, ["$.c"], is_yaml=False) == {"$.c": (2, 14)}


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab \n\"\\é:,{}[]'#-", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab .\"[]'é\n", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


def members(value: object, path: str = "$") -> Iterator[tuple[str, str | None]]:
    """Yield the path and the key of each member below VALUE; the key of a list item is None."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield member_path(path, key), key
            yield from members(item, member_path(path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield f"{path}[{index}]", None
            yield from members(item, f"{path}[{index}]")


@given(DOCUMENTS, st.sampled_from([None, 1]))
def test_every_member_in_json_has_the_position_of_its_key(document: object, indent: int | None) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    wanted = dict(members(document))
    found = positions(text, wanted, is_yaml=False)
    assert found.keys() == wanted.keys()
    lines = text.split("\n")
    for path, (line, column) in found.items():
        if (key := wanted[path]) is not None:
            assert lines[line - 1][column - 1 :].startswith(json.dumps(key, ensure_ascii=False))


@given(DOCUMENTS, st.booleans())
def test_every_member_in_yaml_has_a_position(document: object, flow: bool) -> None:  # noqa: FBT001
    text = yaml.safe_dump(document, default_flow_style=flow, allow_unicode=True)
    wanted = dict(members(document))
    assert positions(text, wanted, is_yaml=True).keys() == wanted.keys()


@pytest.mark.wall_clock
def test_a_thousand_positions_in_a_large_file_take_less_than_2_s() -> None:
    text = json.dumps({"devices": [{"name": str(n), "x": "y" * 50} for n in range(100_000)]}, indent=1)
    start = process_time()
    found = positions(text, [f"$.devices[{n}].x" for n in range(99_000, 100_000)], is_yaml=False)
    assert len(found) == 1000
    assert process_time() - start < 2


def test_an_alias_in_a_list_has_its_own_position() -> None:
    assert positions("a: &x 1\nb: [2, *x]\n", ["$.a", "$.b[1]"], is_yaml=True) == {
        "$.a": (1, 1),
        "$.b[1]": (2, 8),
    }


@pytest.mark.wall_clock
def test_a_long_key_is_not_copied_for_each_list_below_it() -> None:
    text = f"? {'k' * (2 << 20)}\n: [{'[],' * 30_000}]\n"
    begun_s = process_time()
    assert not read_yaml(text).findings
    # One copy for each list would be 60 GB.
    assert process_time() - begun_s < 4
