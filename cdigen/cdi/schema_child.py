"""Program that checks a document against a JSON Schema: ``python -I schema_child.py SCHEMA``.

The document comes on standard input; what is wrong with it is printed as a JSON list of paths and messages.
``schema.check_in_child`` starts it: the import of jsonschema takes 10 MB, which the daemon shall not carry.
Nothing of cdigen is imported here: it is a program of its own.
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
    """Return jsonschema's validator, whose import takes 72 ms, of SCHEMA."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 -- see schema.py, which imports this module

    # It would look each reference up anew for every value, which is half of its time.
    return Draft202012Validator(_inlined(schema, schema.get("$defs", {})))


def _inlined(part: Any, definitions: dict[str, Any]) -> Any:
    """Return PART of a schema with what each reference to one of DEFINITIONS names in its place."""
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
    """Return the JSON path and the message of what VALIDATOR finds wrong.

    DOCUMENT is at most ``MAX_DEPTH`` deep, as ``parse_document`` sees to: jsonschema recurses.
    """
    errors = islice(validator.iter_errors(document), MAX_ERRORS)
    return sorted((error.json_path, _shortened(error.message)) for error in errors)


def _shortened(message: str) -> str:
    """Return MESSAGE, which quotes the whole value, cut in its middle."""
    half = MAX_MESSAGE // 2
    return message if len(message) <= MAX_MESSAGE else f"{message[:half]} ... {message[-half:]}"


def main() -> None:
    """Read, check and print."""
    # An installed cdigen has jsonschema beside it, in a folder that -I leaves out.
    sys.path.append(os.path.abspath(__file__).rsplit("/", 3)[0])
    with open(sys.argv[1], encoding="utf-8") as file:
        validator = validator_of(json.load(file))
    json.dump(schema_errors(validator, json.load(sys.stdin.buffer)), sys.stdout)


if __name__ == "__main__":
    main()
