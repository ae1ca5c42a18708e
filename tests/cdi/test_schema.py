from __future__ import annotations

import random
from copy import deepcopy
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.law_examples import examples
from support.values.spec_documents import (
    plain,
    rich,
    to_bytes,
    verdicts,
    with_edits,
    with_hook,
    with_mount,
    with_node,
)

from cdigen.cdi.reader import parse_document
from cdigen.cdi.rules.document_rules import check
from cdigen.cdi.rules.edit_rules import EDIT_LISTS
from cdigen.cdi.schema import check_schema, load_schema
from cdigen.cdi.schema_child import schema_errors, validator_of
from cdigen.model.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from jsonschema import ValidationError
    from support.values.spec_documents import Document

SCHEMA = load_schema("cdi.schema.json")
VALIDATOR = Draft202012Validator(SCHEMA)

TEXTS = (
    "", "a", "A=B", "=B", "A=\n", "A=b\n", "A=\x00", "A=\x7f\u2028", "A=\U0001f600", "a=b", "é", "x" * 300,
    "/dev/x", "/", "//", "/a/", "/a/../b", "/a/..", "/.a", "/..a/b", "/a\n", "/\u00e9", "/dev/x ", "dev",
    "vendor.com/gpu", "v/gpu", "a1/b2\n", "vendor.com/g.u", "v" * 254 + "/gp", "\u212aa/bb",
    "a" * 253 + "/x", "0", "a:b", "a\n", "-a", "0.3.0", "0.5.0", "1.1.0", "0.5.0\n", "b", "c", "p", "u",
    "rwm", "rr", "none", "bind", "rbind", "createContainer", "prestart", "..", "c" * 4095, "c" * 4096,
    "example.com/a", "A/b",
)  # fmt: skip
NUMBERS = (0, 1, -1, 438, 0o7777, 0o10000, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 1.0, 1.5, 10**30)
KEYS = (
    "cdiVersion", "kind", "annotations", "devices", "containerEdits", "name", "env", "deviceNodes",
    "mounts", "netDevices", "hooks", "intelRdt", "additionalGids", "path", "hostPath", "type", "options",
    "timeout", "example.com/a", "enableCMT", "schemata", "bad key", "x", "\u212a.com/a", "a\n", "y" * 64,
)  # fmt: skip
LONG = ("x" * 131_072, "/" + "x" * 4095, "/" + "x" * 131_071, "x=" + "y" * 131_070)
SCALARS = (*TEXTS, *NUMBERS, True, False, None)


class Mutation:
    """Random changes to a valid document; the changes are small, so many results are also valid."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def document(self) -> Document:
        choices = (plain(), rich(), rich(), with_node(), with_mount(), with_hook(), with_edits())
        document = self.random.choice(choices)
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            self.change(self.containers(document))
        return document

    def containers(self, document: Document) -> list[dict[str, object] | list[object]]:
        found: list[dict[str, object] | list[object]] = []
        waiting: list[object] = [document]
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict | list):
                found.append(value)
                waiting.extend(value.values() if isinstance(value, dict) else value)
        return found

    def change(self, containers: list[dict[str, object] | list[object]]) -> None:
        target = self.random.choice(containers)
        other = deepcopy(self.random.choice(containers))
        value = self.random.choice((self.random.choice(SCALARS), self.random.choice(TEXTS), other, [], {}))
        if isinstance(target, list):
            self.change_list(target, value)
        elif self.random.random() < 0.25 and target:
            del target[self.random.choice(list(target))]
        else:
            key = self.random.choice([*target, *target, self.random.choice(KEYS)])
            target[key] = self.like(target.get(key), value)

    def like(self, before: object, other: object) -> object:
        """Return a value of the type of BEFORE in half of the cases, else OTHER."""
        if self.random.random() < 0.5:
            if isinstance(before, str):
                return self.random.choice((*TEXTS, *LONG))
            if isinstance(before, int):
                return self.random.choice(NUMBERS)
        return other

    def change_list(self, target: list[object], value: object) -> None:
        index = self.random.randrange(len(target) + 1)
        value = self.like(target[index] if index < len(target) else None, value)
        if self.random.random() < 0.3:
            del target[index : index + 1]
        else:
            target[index : index + self.random.randrange(2)] = [value]


@pytest.fixture(scope="module")
def accepted() -> list[Document]:
    """Return random documents that the rules accept."""
    drawn = [Mutation(seed).document() for seed in range(4000)]
    good = [document for document in drawn if not any(f.severity == "error" for f in check(document))]
    assert len(good) > 400
    return good


def test_the_schema_accepts_every_document_that_the_rules_accept(accepted: list[Document]) -> None:
    refused = [
        (document, error.message) for document in accepted for error in VALIDATOR.iter_errors(document)
    ]
    assert refused == []


def test_the_newest_library_loads_every_document_that_the_rules_accept(accepted: list[Document]) -> None:
    refused = []
    for document in accepted:
        answers = verdicts(to_bytes(document), yaml=False, versions=("1.1.0", "main"))
        if set(answers.values()) != {"accept"}:
            refused.append(document)
    assert refused == []


def test_every_document_that_the_rules_accept_is_read_back_unchanged(accepted: list[Document]) -> None:
    for document in accepted:
        parsed = parse_document(to_bytes(document), yaml=False)
        assert (parsed.document, parsed.findings) == (document, ())


KEYWORDS = frozenset(
    (
        *("type", "enum", "required", "pattern", "minItems", "minLength", "maxLength", "minimum", "maximum"),
        *("additionalProperties", "contains", "not", "anyOf"),
    )
)


# Cases that are rare in random documents.
EDGES: tuple[object, ...] = (
    [],
    {**plain(), "annotations": {"a": "x" * (2**18 + 1)}},
    *({**plain(), "devices": [{"name": "0", "containerEdits": {field: []}}]} for field in EDIT_LISTS),
    with_edits(intelRdt={"closID": "c" * 4096}),
    with_edits(netDevices=[{"hostInterfaceName": "x" * 131_072, "name": "x" * 131_072}]),
    with_mount(type=""),
    with_edits(netDevices=[{"hostInterfaceName": "", "name": ""}]),
    with_edits(additionalGids=[-1, 2**32]),
    *(with_hook(timeout=value) for value in (-1, 2**63)),
    *(
        with_node(**{field: value})
        for field in ("major", "minor", "fileMode", "uid", "gid")
        for value in (-1, 2**63)
    ),
)


def demands(schema: dict[str, Any], path: str = "") -> dict[tuple[int, str], str]:
    """Return the path of each constraint of SCHEMA, by the id of the schema object and the keyword."""
    found = {
        (id(schema), keyword): f"{path}/{keyword}"
        for keyword, value in schema.items()
        if keyword in KEYWORDS and not (keyword == "additionalProperties" and value is not False)
    }
    for keyword, value in schema.items():
        if keyword in {"properties", "$defs"}:
            below = list(value.items())
        elif keyword in {"items", "propertyNames", "additionalProperties"} and isinstance(value, dict):
            below = [("", value)]
        else:
            below = list(enumerate(value)) if keyword == "anyOf" else []
        for name, each in below:
            found |= demands(each, f"{path}/{keyword}/{name}")
    return found


def broken(errors: Iterable[ValidationError]) -> Iterator[tuple[int, str]]:
    for error in errors:
        yield id(error.schema), str(error.validator)
        yield from broken(error.context or ())


def test_the_rules_check_every_constraint_of_the_schema() -> None:
    """For each constraint, a random document breaks the constraint, so the test finds a missing rule."""
    missing = demands(SCHEMA)
    for document in (*EDGES, *(Mutation(seed).document() for seed in range(20_000, 24_000))):
        errors = list(VALIDATOR.iter_errors(document))
        if errors:
            assert any(found.severity == "error" for found in check(document)), document
        for demand in broken(errors):
            missing.pop(demand, None)
    assert missing == {}


def test_the_validator_without_references_has_the_results_of_the_schema() -> None:
    inlined = validator_of(SCHEMA)
    for document in (*EDGES, *(Mutation(seed).document() for seed in range(500))):
        assert schema_errors(inlined, document) == schema_errors(VALIDATOR, document)


@examples(4)
@given(st.integers(min_value=30_000))
def test_no_random_document_passes_the_rules_and_fails_the_schema(seed: int) -> None:
    document = Mutation(seed).document()
    if not any(finding.severity == "error" for finding in check(document)):
        assert list(VALIDATOR.iter_errors(document)) == []


@pytest.mark.parametrize(
    "document",
    [
        {**plain(), "x": 1},
        {**plain(), "kind": "vendor.com/gpu\n"},
        {**plain(), "kind": "v/gpu"},
        {**plain(), "cdiVersion": "0.2.0"},
        {**plain(), "devices": []},
        {**plain(), "devices": [{"name": "0", "containerEdits": {"env": []}}]},
        {**plain(), "annotations": {"bad key!": "x"}},
        {**plain(), "annotations": {"a": 1}},
        with_edits(env=["A=b\n"]),
        with_edits(additionalGids=[0]),
        with_edits(deviceNodes=[None]),
        with_edits(intelRdt={"enableCMT": True}),
        with_edits(intelRdt={"closID": ".."}),
        with_node(path="/dev/../x"),
        with_node(path="/dev/x\n"),
        with_node(type="u"),
        with_node(permissions="none"),
        with_node(fileMode=4096),
        with_mount(type=""),
        with_mount(type="", options=["ro"]),
        with_hook(timeout=0),
        with_hook(hookName="x"),
    ],
)
def test_the_schema_itself_rejects_bad_documents(document: Document) -> None:
    assert {finding.rule for finding in check_schema(document)} == {"schema"}


def test_the_schema_accepts_a_document_with_every_field() -> None:
    assert check_schema(rich()) == ()


def test_a_schema_finding_has_a_path_and_a_short_message() -> None:
    (finding,) = check_schema(with_edits(env=["x" * 10_000]))
    assert finding.path == "$.devices[0].containerEdits.env[0]"
    assert len(finding.message) < 300


def test_the_schema_is_itself_valid() -> None:
    Draft202012Validator.check_schema(load_schema("cdi.schema.json"))


def test_a_missing_schema_is_an_error_with_the_file_name() -> None:
    with pytest.raises(StoreError, match=r"nothing\.schema\.json"):
        load_schema("nothing.schema.json")
