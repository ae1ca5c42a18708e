"""The schema compiled to functions, held against jsonschema."""

from __future__ import annotations

from typing import Any

import pytest
from cdi.cdi_documents import rich
from cdi.test_schema import NUMBERS, TEXTS, Mutation
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cdigen.cdi.schema import load_schema
from cdigen.cdi.schema_compiler import compiled

SCHEMA = load_schema("cdi.schema.json")
VALIDATOR = Draft202012Validator(SCHEMA)
IS_GOOD = compiled(SCHEMA)


@settings(max_examples=300, deadline=None)
@given(st.integers(min_value=0))
def test_it_says_of_a_drawn_document_what_jsonschema_says(seed: int) -> None:
    document = Mutation(seed).document()
    assert IS_GOOD(document) is VALIDATOR.is_valid(document)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 0, "maximum": 4095},
        {"minimum": 1},
        {"type": "boolean"},
        {"type": "string", "minLength": 1, "maxLength": 2},
        {"pattern": "^/"},
        {"not": {"pattern": "[\\u0000\\n]"}},
        {"enum": ["a", "b"]},
        {"const": "/"},
        {"anyOf": [{"type": "string"}, {"minimum": 5}]},
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
        {"contains": {"const": "a"}},
        {"propertyNames": {"pattern": "^[a-m]*$"}, "additionalProperties": {"type": "string"}},
        {"properties": {"a": {"type": "string"}}, "additionalProperties": False, "required": ["a"]},
        {"properties": {"a": {"type": "string"}}},
        {"$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"type": "object"}}, "$ref": "#/$defs/x"},
        {},
    ],
)
def test_each_keyword_means_what_it_means_to_jsonschema(schema: dict[str, Any]) -> None:
    judge, validator = compiled(schema), Draft202012Validator(schema)
    values = [*NUMBERS, *TEXTS, True, False, None, [], ["a"], ["a", 1], {}, {"a": "b"}, {"a": 1}, {"z": "b"}]
    for value in [*values, {"a": "b", "c": 1}, rich()]:
        assert judge(value) is validator.is_valid(value), value


@pytest.mark.parametrize("schema", [{"uniqueItems": True}, {"enum": [1]}, {"items": {"oneOf": []}}])
def test_what_it_does_not_know_it_refuses(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="known"):
        compiled(schema)
