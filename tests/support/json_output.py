"""The output of `--json`, checked against schemas/output/."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

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
    return Draft202012Validator(_schema(SCHEMAS / f"output/{name}.schema.json"))


@cache
def _schema(file: Path, definition: str = "") -> Any:
    """Return the schema in FILE, or its DEFINITION; a referenced schema replaces each reference.

    Old and new releases of jsonschema have no common argument for references to other files.
    """
    schema = json.loads(file.read_text())
    return _inlined(schema["$defs"][definition] if definition else schema, file)


def _inlined(part: Any, file: Path) -> Any:
    if isinstance(part, list):
        return [_inlined(item, file) for item in part]
    if not isinstance(part, dict):
        return part
    beside = {
        key: _inlined(value, file) for key, value in part.items() if key not in {"$id", "$defs", "$ref"}
    }
    if "$ref" not in part:
        return beside
    other, _, definition = part["$ref"].partition("#/$defs/")
    return {"allOf": [_schema((file.parent / other).resolve() if other else file, definition)], **beside}
