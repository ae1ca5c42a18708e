"""A program that checks a document against a JSON Schema: ``python -I schema_child.py SCHEMA``.

The program reads the document from standard input. It prints the errors as a JSON list of paths and messages.
``schema.check_in_child`` starts the program. The import of jsonschema takes 10 MB, and the daemon must not
need this memory. The program imports no module of cdigen.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from jsonschema import Draft202012Validator

MAX_ERRORS = 100
MAX_MESSAGE = 200


def validator_of(schema: dict[str, Any]) -> Draft202012Validator:
    """Return jsonschema's validator of SCHEMA; the import of jsonschema takes 72 ms."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - schema.py imports this module

    # jsonschema resolves a reference again for each value. This takes half of the time, so references are
    # replaced first.
    return Draft202012Validator(_inlined(schema, schema.get("$defs", {})))


def _inlined(part: Any, definitions: dict[str, Any]) -> Any:
    """Return PART of a schema; each reference is replaced by its entry in DEFINITIONS."""
    if isinstance(part, list):
        return [_inlined(item, definitions) for item in part]
    if not isinstance(part, dict):
        return part
    beside = {key: _inlined(item, definitions) for key, item in part.items() if key not in {"$defs", "$ref"}}
    if "$ref" not in part:
        return beside
    named = _inlined(definitions[part["$ref"].removeprefix("#/$defs/")], definitions)
    return {"allOf": [named], **beside} if beside.keys() - {"description"} else named


def schema_errors(validator: Draft202012Validator, document: object) -> list[tuple[str, str]]:
    """Return the JSON path and the message of each error that VALIDATOR finds in DOCUMENT.

    The result has at most MAX_ERRORS errors. ``parse_document`` limits the depth of DOCUMENT to
    ``MAX_DEPTH``, because jsonschema uses recursion.
    """
    errors = islice(validator.iter_errors(document), MAX_ERRORS)
    return sorted((error.json_path, _shortened(error.message)) for error in errors)


def _shortened(message: str) -> str:
    """Return MESSAGE without its middle part if MESSAGE is long.

    A message is long if it quotes a large value.
    """
    half = MAX_MESSAGE // 2
    return message if len(message) <= MAX_MESSAGE else f"{message[:half]} ... {message[-half:]}"


def main() -> None:
    """Read the schema and the document, check the document, and print the errors."""
    # jsonschema is installed in the folder that contains the package cdigen. -I excludes this folder.
    sys.path.append(os.path.abspath(__file__).rsplit("/", 3)[0])
    with open(sys.argv[1], encoding="utf-8") as file:
        validator = validator_of(json.load(file))
    json.dump(schema_errors(validator, json.load(sys.stdin.buffer)), sys.stdout)


if __name__ == "__main__":
    main()
