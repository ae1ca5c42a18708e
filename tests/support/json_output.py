"""The output of `--json`, checked against schemas/output/."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from cdigen.cli.main import split_command
from support.paths import REPOSITORY

SCHEMAS = REPOSITORY / "schemas"
OUTPUTS = sorted(path.name.removesuffix(".schema.json") for path in (SCHEMAS / "output").iterdir())
# Larger documents are not checked: the check of 100,000 devices takes a minute.
MAX_SIZE = 4 << 20


def check(arguments: tuple[str, ...], code: int, text: str) -> None:
    """Check the format of TEXT, which `cdigen ARGUMENTS` printed before it ended with CODE."""
    if not text or len(text) > MAX_SIZE:
        return
    document = json.loads(text)
    if isinstance(document, dict) and "error" in document:
        validator("error").validate(document)
        assert code not in {0, 1}
    else:
        validator(schema_of(arguments)).validate(document)


def schema_of(arguments: tuple[str, ...]) -> str:
    """Return the name of the schema for the output of `cdigen ARGUMENTS --json`."""
    command, others = split_command(list(arguments))
    if command == "generate" and {"--write", "--output", "--output-dir"} & {
        word.partition("=")[0] for word in others
    }:
        return "generate-write"
    if command == "inspect" and "--stats" in others:
        return "inspect-stats"
    if command == "doctor" and "--migrate" in others:
        return "doctor-migrate"
    if command == "health" and {"--mark", "--clear"} & set(others):
        return "health-mark"
    return "config-check" if command == "config" else command


@cache
def validator(name: str) -> Draft202012Validator:
    """Return the validator of schemas/output/NAME.schema.json."""
    registry: Registry[Any] = Registry()
    for path in (*SCHEMAS.glob("*.json"), *SCHEMAS.glob("output/*.json")):
        schema = json.loads(path.read_text())
        registry = registry.with_resource(schema["$id"], Resource.from_contents(schema))
    schema = json.loads((SCHEMAS / f"output/{name}.schema.json").read_text())
    return Draft202012Validator(schema, registry=registry)
