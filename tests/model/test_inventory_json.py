"""Inventories as JSON: a round trip keeps all values, and the reader is strict."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.law_examples import examples
from support.values.inventories import inventories
from support.values.json_values import at, changed, places, without

from cdigen.model.errors import ConfigError
from cdigen.model.inventory_json import from_document, to_document

if TYPE_CHECKING:
    from support.values.json_values import Place

    from cdigen.model.inventory import Inventory

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas/inventory.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
NODE = {
    "path": "/dev/nvidia0", "host_path": "/dev/nvidia0", "role": "gpu", "capabilities": ["compute"],
    "major": 195, "minor": 0, "mode": 438, "uid": 0, "gid": 0,
}  # fmt: skip
LIBRARY = {
    "kind": "library",
    "host_path": "/usr/lib/libcuda.so.550",
    "capabilities": ["compute", "video"],
    "names": ["libcuda.so.1", "vdpau/libcuda.so"],
    "targets": ["/opt/libcuda.so"],
}
DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "vendors": {
        "nvidia": {
            "vendor": "nvidia",
            "driver": {"version": "550.163.01", "flavour": "open", "architecture": "x86_64"},
            "accelerators": [
                {
                    "index": 0,
                    "address": "0000:1b:00.0",
                    "model": "NVIDIA H100",
                    "uuid": "GPU-0",
                    "minor": 0,
                    "nodes": [NODE],
                    "usable": True,
                    "problem": "",
                    "partitioned": True,
                    "partitions": [
                        {
                            "index": 0,
                            "uuid": "MIG-0",
                            "profile": "1g.10gb",
                            "instance": "gi1/ci0",
                            "graphics": False,
                            "nodes": [NODE],
                            "usable": True,
                            "problem": "",
                        }
                    ],
                }
            ],
            "nodes": [NODE],
            "files": [LIBRARY],
            "mode": "gpu",
            "groups": [
                {"device_class": "gds", "devices": [{"name": "all", "nodes": [NODE]}], "files": [LIBRARY]}
            ],
            "searched": [
                {
                    "name": "libcuda",
                    "kind": "library",
                    "capabilities": [],
                    "weight": "required",
                    "found": ["/usr/lib/libcuda.so.550"],
                    "reason": "",
                }
            ],
            "findings": [
                {
                    "severity": "info",
                    "rule": "gpu-excluded",
                    "path": "0000:1b:00.0",
                    "message": "m",
                    "hint": "",
                }
            ],
        }
    },
}


def refusal(document: object) -> str:
    """Return the reason why DOCUMENT is rejected, or an empty text."""
    try:
        from_document(document)
    except ConfigError as error:
        return f"{error.message} ({error.hint})"
    return ""


PLACES = list(places(DOCUMENT))
FIELDS = [path for path in PLACES if path and isinstance(path[-1], str) and path[-1] != "nvidia"]
GPU = ("vendors", "nvidia", "accelerators", 0)
FILE = ("vendors", "nvidia", "files", 0)


def test_the_inventory_schema_is_a_valid_json_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_a_valid_document_is_accepted_by_reader_and_schema() -> None:
    assert refusal(DOCUMENT) == ""
    assert VALIDATOR.is_valid(DOCUMENT)


@given(inventories)
def test_an_inventory_is_equal_after_a_round_trip_through_json(drawn: Inventory) -> None:
    text = json.dumps(to_document({drawn.vendor: drawn}))
    assert from_document(json.loads(text)) == {drawn.vendor: drawn}


@given(inventories)
def test_a_written_inventory_is_valid(drawn: Inventory) -> None:
    VALIDATOR.validate(json.loads(json.dumps(to_document({drawn.vendor: drawn}))))


@pytest.mark.parametrize("path", FIELDS, ids=lambda path: ".".join(map(str, path)))
def test_a_document_without_a_required_field_is_refused(path: Place) -> None:
    assert f"{path[-1]} in the inventory is not present, but required" in refusal(without(DOCUMENT, path))
    assert not VALIDATOR.is_valid(without(DOCUMENT, path))


OBJECTS = [path for path in PLACES if isinstance(path[-1:], tuple) and path[-1:] in {(), ("driver",), (0,)}]


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: ".".join(map(str, path)) or "top")
def test_an_unknown_field_is_refused(path: Place) -> None:
    value = at(DOCUMENT, path)
    if not isinstance(value, dict):
        return
    document = changed(DOCUMENT, path, {**value, "surprise": 1})
    assert "surprise in the inventory is not a field of this schema" in refusal(document)
    assert not VALIDATOR.is_valid(document)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 1 << 33)
    | st.just(0.5)
    | st.sampled_from(
        ["", "/", "/a", "/a/../b", "a/b", "..", "a//b", "/a\nb", "library", "error", "required"]
    )
    | st.text(st.characters(exclude_categories=["Cn"]), max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "vendor"]), inner),
    max_leaves=4,
)


@examples(4)
@given(st.sampled_from(PLACES), JSON)
def test_reader_and_schema_agree_on_documents_with_one_change(path: Place, value: object) -> None:
    document = changed(DOCUMENT, path, value)
    if path == ("vendors", "nvidia", "vendor"):
        assert (refusal(document) == "") == (value == "nvidia")
        return
    assert (refusal(document) == "") == VALIDATOR.is_valid(document)
    assert refusal(document).isprintable()


@given(JSON)
def test_reader_and_schema_agree_on_any_document(document: object) -> None:
    assert (refusal(document) == "") == VALIDATOR.is_valid(document)


def test_schema_and_reader_agree_on_printable_characters() -> None:
    assigned = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character) != "Cn"
    ]
    unprintable = re.compile(SCHEMA["$defs"]["text"]["not"]["pattern"])
    by_schema = set(unprintable.findall("".join(assigned)))
    assert by_schema == {character for character in assigned if not character.isprintable()}


@pytest.mark.parametrize("version", [0, 2, "1", True, None, [1], "x" * 10_000])
def test_another_schema_version_is_refused(version: object) -> None:
    assert "this cdigen reads inventories of schema 1" in refusal(changed(DOCUMENT, ("schema",), version))


def test_an_inventory_under_another_vendors_name_is_refused() -> None:
    document = {"schema": 1, "vendors": {"amd": DOCUMENT["vendors"]["nvidia"]}}
    message = "$.vendors.amd.vendor in the inventory is not equal to its key in $.vendors"
    assert refusal(document).startswith(message)


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31m", "\ud800", "x" * 100_000])
def test_the_error_for_an_unusual_name_is_one_short_line(name: str) -> None:
    for document in ({"schema": 1, "vendors": {name: {}}}, {**DOCUMENT, name: 1}):
        assert refusal(document).isprintable()
        assert 0 < len(refusal(document)) < 400


@pytest.mark.parametrize(
    ("path", "value", "wanted"),
    [
        (("vendors",), [], "an object"),
        ((*GPU, "index"), True, "a whole number"),
        ((*GPU, "index"), 1.0, "a whole number"),
        ((*GPU, "minor"), 1 << 32, "a whole number"),
        ((*GPU, "usable"), 1, "true or false"),
        ((*GPU, "model"), "two\nlines", "free of control characters"),
        ((*GPU, "nodes"), {}, "a list"),
        ((*GPU, "nodes", 0, "path"), "dev/nvidia0", "an absolute path"),
        ((*FILE, "host_path"), "/usr/../etc/passwd", "an absolute path"),
        ((*FILE, "kind"), "shell", "one of library"),
        ((*FILE, "names", 1), "../libcuda.so", "a relative path"),
        ((*FILE, "names", 1), "/libcuda.so", "a relative path"),
        ((*FILE, "targets", 0), "lib", "an absolute path"),
    ],
)
def test_the_error_for_an_invalid_value_contains_its_path(path: Place, value: object, wanted: str) -> None:
    where = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    assert refusal(changed(DOCUMENT, path, value)).startswith(f"${where} in the inventory is not {wanted}")


@pytest.mark.parametrize("path", [(*GPU, "uuid"), (*GPU, "minor")])
def test_an_unknown_uuid_or_minor_number_is_null(path: Place) -> None:
    assert refusal(changed(DOCUMENT, path, None)) == ""
